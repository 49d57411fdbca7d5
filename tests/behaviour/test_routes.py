"""Bad bodies, ids, queries and headers for every route of the gateway, taken from its route table.

The gateway answers in the form of the protocol, never with a 500, and keeps working.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Final
from urllib.parse import quote
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

from babelgate.canonical.value import Json, JsonObject
from tests.gateway.hostile import (
    BODIES,
    EVENT_IDS,
    FORMS,
    HARMLESS,
    HEADERS,
    IDS,
    LIMIT,
    QUERY,
    UNKNOWN,
    WRONG,
    mutations,
)
from tests.gateway.route import (
    AGENT_SLOT,
    CHANGES,
    FREE_SLOT,
    METHODS,
    ROUTES,
    Route,
    allowed,
    paths,
    protocol_of,
    words_of,
)
from tests.gateway.shape import check_error, not_found
from tests.gateway.siege import Case, body_for, create_targets, dumped, headers_for, problems, sending, spared
from tests.gateway.valid import BLOCKS, EVENTS, LENIENT, UPLOAD, V1, VALID, command
from tests.running import Running

pytestmark = pytest.mark.asyncio(loop_scope="module")

RUN = "/threads/{thread_id}/runs/{run_id}"
QUERIES: Final[Mapping[str, Sequence[str]]] = {
    "GET /acp/agents": ("limit", "offset"),
    "GET /acp/runs/{run_id}/events": ("after",),
    "GET /.well-known/agent-card.json": ("assistant_id", "A2A-Version"),
    "GET /a2a/{agent}/.well-known/agent-card.json": ("A2A-Version",),
    "GET /a2a/{agent}/tasks": (
        "contextId",
        "status",
        "pageSize",
        "pageToken",
        "historyLength",
        "statusTimestampAfter",
        "includeArtifacts",
    ),
    "GET /a2a/{agent}/tasks/{task_id}": ("historyLength",),
    "GET /a2a/{agent}/tasks/{task_id}/pushNotificationConfigs": ("pageSize", "pageToken"),
    "GET /a2a/{agent}/v1/tasks": ("contextId", "pageSize", "pageToken"),
    "GET /a2a/{agent}/v1/tasks/{task_id}": ("historyLength",),
    "GET /ap/v1/agent/tasks": ("current_page", "page_size"),
    "GET /ap/v1/agent/tasks/{task_id}/steps": ("current_page", "page_size"),
    "GET /ap/v1/agent/tasks/{task_id}/artifacts": ("current_page", "page_size"),
    "GET /threads/{thread_id}": ("include",),
    "GET /threads/{thread_id}/history": ("limit", "before"),
    "GET /threads/{thread_id}/state": ("select", "subgraphs"),
    "GET /threads/{thread_id}/state/{checkpoint_id}": ("select", "subgraphs"),
    "GET /threads/{thread_id}/runs": ("limit", "offset", "status", "select"),
    "GET /threads/{thread_id}/stream": ("stream_modes", "stream_mode"),
    f"GET {RUN}/join": ("cancel_on_disconnect",),
    f"GET {RUN}/wait": ("cancel_on_disconnect",),
    f"GET {RUN}/stream": ("stream_mode", "cancel_on_disconnect"),
    f"POST {RUN}/cancel": ("wait", "action"),
    "GET /runs/{run_id}/stream": ("stream_mode", "cancel_on_disconnect"),
    "POST /agent-protocol/runs/{run_id}/cancel": ("wait", "action"),
    "POST /runs/cancel": ("action",),
    "GET /store/items": ("key", "namespace", "refresh_ttl"),
    "GET /agent-protocol/store/items": ("key", "namespace", "refresh_ttl"),
    "DELETE /assistants/{assistant_id}": ("delete_threads",),
    "GET /assistants/{assistant_id}/graph": ("xray",),
    "GET /assistants/{assistant_id}/subgraphs": ("recurse",),
    "GET /ok": ("check_db",),
    "GET /v1/chat/completions": ("limit", "after", "order", "model", "metadata[a]"),
    "GET /v1/responses/{response_id}": ("stream", "starting_after"),
    "GET /v1/chat/completions/{completion_id}/messages": ("limit", "after", "order"),
    "GET /v1/conversations/{conversation_id}/items": ("limit", "after", "order"),
    "GET /v1/responses/{response_id}/input_items": ("limit", "after", "order"),
}
STREAMS: Final = (
    Route("GET", f"{RUN}/stream"),
    Route("GET", "/runs/{run_id}/stream"),
    Route("GET", "/threads/{thread_id}/stream"),
    Route("POST", "/threads/{thread_id}/stream/events"),
)
READS: Final = frozenset({*VALID, UPLOAD, "POST /a2a/{agent}"})


class Standing:
    """Ids for requests that only read or are refused; created once for each protocol."""

    def __init__(self, gateway: Running) -> None:
        self._gateway = gateway
        self._slots: dict[str, Mapping[str, str]] = {}

    async def of(self, path: str) -> Mapping[str, str]:
        protocol = protocol_of(path)
        if protocol not in self._slots:
            self._slots[protocol] = await create_targets(self._gateway, path)
        return self._slots[protocol]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def standing(gateway: Running) -> Standing:
    return Standing(gateway)


def thinned(route: Route, cases: Sequence[Case]) -> Sequence[Case]:
    """Return a fifth of the cases for a route that repeats another one in a second dialect.

    Only the form of its answers is new.
    """
    return cases[::5] if route.again else cases


async def test_every_route_with_a_body_has_a_valid_body() -> None:
    """Require a valid body in the table for each new POST route, unless the route reads no body."""
    without = {
        f"POST {path}" for path in paths() if path.endswith((":cancel", ":subscribe", "}/cancel", "/copy", "}/stop"))
    }
    without |= {str(route) for route in ROUTES if route.path.startswith("/admin/")}  # off: the gateway has no keys
    without.add("POST /console/api/v1/jobs")  # a valid body starts a program
    posts = {str(route) for route in ROUTES if route.method in ("POST", "PUT", "PATCH")}
    assert posts <= READS | without
    assert {str(route) for route in ROUTES} >= READS
    assert set(QUERIES) <= {str(route) for route in ROUTES}


@pytest.mark.parametrize("route", ROUTES, ids=str)
async def test_a_request_for_a_foreign_host_is_refused(gateway: Running, standing: Standing, route: Route) -> None:
    """Refuse DNS rebinding: a page of evil.example calls the gateway under that name."""
    slots = await standing.of(route.path)
    refused = await sending(gateway, route, route.at(slots), headers={"Host": "evil.example"})()
    assert refused.status_code == 403
    check_error(route.words, refused)
    assert "hosts" in refused.text


@pytest.mark.parametrize("route", ROUTES, ids=str)
async def test_a_bad_body_is_refused_or_ignored(gateway: Running, route: Route) -> None:
    """Check that each route that reads a body refuses each bad body, and that the other routes ignore it."""
    path = route.at(spared(route, await create_targets(gateway, route.path)))
    harmless = HARMLESS if str(route) in LENIENT else frozenset[str]()
    refused = [
        (name, sending(gateway, route, path, content=body)) for name, body in BODIES.items() if name not in harmless
    ]
    ignored = [(name, sending(gateway, route, path, content=BODIES[name])) for name in harmless]
    assert await problems(gateway, route, thinned(route, refused), refused=str(route) in READS) == []
    assert await problems(gateway, route, ignored, refused=False) == []


@pytest.mark.parametrize("route", [route for route in ROUTES if str(route) in READS], ids=str)
async def test_a_body_over_the_limit_is_413(gateway: Running, route: Route) -> None:
    async def chunked() -> AsyncIterator[bytes]:
        for _ in range(2 * LIMIT // 2**18):
            yield b" " * 2**18

    slots = await create_targets(gateway, route.path)
    body = b'{"a": "' + b"x" * LIMIT + b'"}'
    for content in (body, chunked()):
        response = await gateway.http.request(
            route.method, route.at(slots), content=content, headers=headers_for(route)
        )
        assert response.status_code == 413
        check_error(route.words, response)


def runs(route: Route) -> bool:
    """Return True if the route makes an agent run.

    Only one such route of each protocol gets all mutations of its body: JSON-RPC, POST /runs/wait and POST /v1/runs.
    """
    return "message" in route.path or (
        route.protocol in ("langchain", "runtime") and route.path.endswith(("/runs", "/wait", "/runs/stream"))
    )


@pytest.mark.parametrize("route", [route for route in ROUTES if str(route) in VALID], ids=str)
async def test_wrong_types_in_every_field_are_refused(gateway: Running, route: Route) -> None:
    """Check that no mutation causes a 500.

    Some are valid requests, such as those with an unknown member or an empty list.
    """
    slots = await create_targets(gateway, route.path)
    if "message" in route.path:
        slots = {**slots, "agent": "echo"}
    wrong = WRONG[:2] if runs(route) and route.path not in ("/runs/wait", "/v1/runs") else WRONG
    cases = [
        (name, sending(gateway, route, route.at(slots), content=dumped(body)))
        for name, body in mutations(VALID[str(route)], wrong)
    ]
    assert await problems(gateway, route, thinned(route, cases), refused=False) == []


@pytest.mark.parametrize("kind", BLOCKS)
async def test_a_block_of_a_message_survives_wrong_types(gateway: Running, kind: str) -> None:
    route = Route("POST", "/runs/wait")
    cases = [
        (name, sending(gateway, route, route.path, json={"assistant_id": "echo", "input": {"messages": [message]}}))
        for name, message in mutations({"role": "user", "content": ["a", BLOCKS[kind]]}, (*WRONG[:3], *WRONG[7:]))
    ]
    assert await problems(gateway, route, cases, refused=False) == []


async def test_a_message_of_every_role_survives_wrong_types(gateway: Running) -> None:
    call = {"id": "c1", "name": "f", "args": {"a": 1}, "type": "tool_call"}
    messages: list[JsonObject] = [
        {"type": "ai", "content": "", "tool_calls": [call], "usage_metadata": {"input_tokens": 1}, "name": "x"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": "{"}}],
        },
        {"type": "tool", "content": "1", "tool_call_id": "c1", "status": "error", "artifact": {"a": 1}},
        {"type": "remove", "id": "m1", "content": ""},
        {
            "lc": 1,
            "type": "constructor",
            "id": ["langchain", "HumanMessage"],
            "kwargs": {"content": "hi", "type": "human"},
        },
    ]
    for path, holder in (("/threads/{thread_id}/state", "values"), ("/runs/wait", "input")):
        for each in messages:
            route = Route("POST", path)
            at = route.at(await create_targets(gateway, path))
            cases = [
                (name, sending(gateway, route, at, json={"assistant_id": "echo", holder: {"messages": [message]}}))
                for name, message in mutations(each, WRONG[:5:2])
            ]
            assert await problems(gateway, route, cases, refused=False) == []


@pytest.mark.parametrize("name", list(FORMS))
async def test_an_invalid_upload_is_refused(gateway: Running, name: str) -> None:
    route = next(route for route in ROUTES if str(route) == UPLOAD)
    at = route.at(await create_targets(gateway, route.path))
    kind, body = FORMS[name]
    headers = {"Content-Type": kind.encode("latin-1")} if kind else {}
    cases = [(name, sending(gateway, route, at, content=body, headers=headers))]
    assert await problems(gateway, route, cases, refused=True) == []
    assert (await gateway.http.get(at)).json()["pagination"]["total_items"] == 1, (
        "a refused request must not store anything"
    )


@pytest.mark.parametrize("route", [route for route in ROUTES if set(route.slots) - FREE_SLOT], ids=str)
async def test_a_bad_id_is_not_found(gateway: Running, route: Route) -> None:
    slots = await create_targets(gateway, route.path)
    body = body_for(route, slots)
    cases: list[Case] = []
    for slot in route.slots:
        if slot in FREE_SLOT or (slot == "config_id" and route.method == "DELETE"):
            continue  # deleting what is not there is no error (A2A 1.0, 3.1.10)
        cases += [
            (f"{slot} = {name}", sending(gateway, route, route.at({**slots, slot: bad}), json=body))
            for name, bad in IDS.items()
            if not (route.waits and bad.lower() == UNKNOWN)  # there may be such a thread later
        ]
    assert await problems(gateway, route, thinned(route, cases), refused=True) == []


@pytest.mark.parametrize(
    "route",
    [route for route in ROUTES if set(route.slots) - FREE_SLOT and not route.waits],
    ids=str,
)
async def test_an_unknown_id_is_404_and_not_some_other_error(
    gateway: Running, standing: Standing, route: Route
) -> None:
    slots = await standing.of(route.path)
    body = body_for(route, slots)
    for slot in route.slots:
        if slot in FREE_SLOT or (slot == "config_id" and route.method == "DELETE"):
            continue
        for unknown in (UNKNOWN, "nobody") if slot in AGENT_SLOT else (UNKNOWN,):
            path = route.at({**slots, slot: unknown})
            response = await gateway.http.request(route.method, path, json=body, headers=headers_for(route))
            assert not_found(route.words, response), (slot, response.status_code, response.text)


WAITING = [route for route in ROUTES if route.waits]


@pytest.mark.parametrize("route", WAITING, ids=str)
async def test_a_stream_of_an_unknown_thread_stays_empty(gateway: Running, route: Route) -> None:
    """Check section 4 of CDDL 0.0.13: the stream of an unknown thread is not a 404, but empty."""
    thread_id = str(uuid4())
    body: JsonObject = {"channels": ["lifecycle"]}
    async with (
        asyncio.timeout(30),
        gateway.http.stream("POST", route.at({"thread_id": thread_id}), json=body) as response,
    ):
        assert response.status_code == 200
        start = command("run.start", {"assistant_id": "echo", "input": "hello"})
        started = await gateway.http.post(f"/threads/{thread_id}/commands", json=start)
        assert started.json()["type"] == "success"
        async for line in response.aiter_lines():
            if line and not line.startswith(":"):
                assert line == "event: lifecycle"
                break


async def full_stream(gateway: Running, route: Route, body: Json) -> httpx.Response:
    """Return the whole stream of a thread with one run, which is then erased to end the stream."""
    thread_id = str(uuid4())
    async with (
        asyncio.timeout(30),
        gateway.http.stream("POST", route.at({"thread_id": thread_id}), json=body) as response,
    ):
        if response.status_code == 200:
            run = {"assistant_id": "echo", "input": "hello", "if_not_exists": "create"}
            assert (await gateway.http.post(f"/threads/{thread_id}/runs/wait", json=run)).status_code == 200
            assert (await gateway.http.delete(f"/threads/{thread_id}")).status_code == 204
        await response.aread()
    return response


@pytest.mark.parametrize("route", WAITING, ids=str)
async def test_a_subscription_survives_wrong_types_until_its_end(gateway: Running, route: Route) -> None:
    """Read these streams to their end. The other tests read only their head."""
    cases = [(name, partial(full_stream, gateway, route, body)) for name, body in mutations({**EVENTS, "since": 0})]
    assert await problems(gateway, route, thinned(route, cases), refused=False) == []
    # A reader may start only after the thread was erased, so erase it after the first event.
    thread_id, first_event = str(uuid4()), ""
    run = {"assistant_id": "echo", "input": "hello", "if_not_exists": "create"}
    async with (
        asyncio.timeout(30),
        gateway.http.stream("POST", route.at({"thread_id": thread_id}), json={"channels": ["messages"]}) as response,
    ):
        assert (await gateway.http.post(f"/threads/{thread_id}/runs/wait", json=run)).status_code == 200
        async for line in response.aiter_lines():
            if not first_event and line and not line.startswith(":"):
                first_event = line
                assert (await gateway.http.delete(f"/threads/{thread_id}")).status_code == 204
    assert first_event == "event: messages"


@pytest.mark.parametrize("name", list(QUERIES))
async def test_a_bad_query_is_refused_or_ignored(gateway: Running, name: str) -> None:
    route = next(route for route in ROUTES if str(route) == name)
    at = route.at(spared(route, await create_targets(gateway, route.path)))
    cases = [
        (
            f"{name}={value[:20]}",
            sending(gateway, route, f"{at}?{name}={quote(value, safe='%')}", json=VALID.get(str(route))),
        )
        for name in QUERIES[name]
        for value in QUERY
    ]
    assert await problems(gateway, route, cases, refused=False) == []


@pytest.mark.parametrize("route", ROUTES, ids=str)
async def test_bad_headers_are_refused_or_ignored(gateway: Running, route: Route) -> None:
    path = route.at(spared(route, await create_targets(gateway, route.path)))
    cases = [
        (str(headers), sending(gateway, route, path, headers=headers, content=b"{}"))
        for headers in HEADERS
        if not (route.path.endswith("/events") and b"event-stream" in headers.get("Accept", b""))
    ]
    assert await problems(gateway, route, thinned(route, cases), refused=False) == []


@pytest.mark.parametrize("route", STREAMS, ids=str)
async def test_a_bad_event_id_is_refused_or_ignored(gateway: Running, route: Route) -> None:
    at = route.at(spared(route, await create_targets(gateway, route.path)))
    body = VALID.get(str(route))
    cases = [
        (repr(event_id), sending(gateway, route, at, headers={"Last-Event-ID": event_id}, json=body))
        for event_id in EVENT_IDS
    ]
    assert await problems(gateway, route, cases, refused=False) == []


# Methods and paths


@pytest.mark.parametrize("path", paths())
async def test_an_unsupported_method_is_405_with_allow(gateway: Running, standing: Standing, path: str) -> None:
    """Check RFC 9110, 15.5.6: the server MUST list the methods in Allow."""
    slots = await standing.of(path)
    for method in (*METHODS, "TRACE"):
        if method in allowed(path):
            continue
        response = await gateway.http.request(method, Route(method, path).at(slots))
        assert response.status_code == 405, (method, response.text)
        check_error(words_of(method, path), response)
        listed = set(response.headers["allow"].split(", "))
        if "/a2a/" in path and "/tasks/{task_id}" in path and "/push" not in path:
            assert listed >= allowed(path)  # a task and the operations on it share one path segment
        else:
            assert listed == allowed(path)


@pytest.mark.parametrize("path", paths())
async def test_options_lists_the_methods(gateway: Running, standing: Standing, path: str) -> None:
    response = await gateway.http.options(Route("OPTIONS", path).at(await standing.of(path)))
    assert response.status_code == 204
    assert response.content == b""
    assert {*METHODS, "HEAD", "OPTIONS"} >= set(response.headers["allow"].split(", ")) >= allowed(path)


@pytest.mark.parametrize(
    "path", [path for path in paths() if "GET" in allowed(path) and "subscribe" not in path and path != CHANGES]
)
async def test_head_is_get_without_the_body(gateway: Running, standing: Standing, path: str) -> None:
    route = Route("GET", path)
    at = route.at(spared(route, await standing.of(path)))
    get, head = await gateway.http.get(at), await gateway.http.head(at)
    assert head.status_code == get.status_code
    assert head.content == b""
    assert head.headers.get("content-type") == get.headers.get("content-type")  # none with 204


@pytest.mark.parametrize("path", ["/acp/runs/{run_id}/events", "/threads/{thread_id}/stream", CHANGES])
async def test_head_of_a_stream_ends_at_once(gateway: Running, path: str) -> None:
    """Check a run that waits for an answer, on which a GET would wait."""
    at = Route("HEAD", path).at(await create_targets(gateway, path))
    async with asyncio.timeout(30):
        response = await gateway.http.head(at, headers={"Accept": "text/event-stream"})
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.content == b""


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "path",
    [
        "/nope",
        "/nope/nope?x=1",
        "/.well-known/nope.json",
        "/acp",
        "/acp/nope",
        "/acp/runs/a/b/c",
        "/acp/runs/%00/events/nope",
        "/acp/%2E%2E/healthz",
        "/a2a",
        "/a2a/echo/nope",
        "/a2a/echo/v1",
        "/a2a/echo/v1/nope",
        "/a2a/echo/v2/tasks",
        "/a2a/echo/tasks/a/b",
        "/agent",
        "/agent/echo/nope",
        "/agent/tasks",
        "/agent/tasks/x/steps",
        "/agent/echo/acp/nope",
        "/agent/echo/a2a/echo/nope",
        "/agent/nobody/acp/ping",
        "/acpx/ping",
        "/ap",
        "/ap/v1",
        "/ap/v1/agent",
        "/ap/v1/tasks",
        "/ap/v1/agent/tasks/a/b",
        "/ap/v1/agent/tasks/a/steps/b/c",
        "/ap/v2/agent/tasks",
        "/apx/versions",
        "/threads/a/b",
        "/threads/a/runs/b/c",
        "/threads/a/state/b/c",
        "/threads/a/stream/b",
        "/threads/a/stream/events/b",
        "/threads/a/commands/b",
        "/threadsx",
        "/runs/a/b",
        "/store",
        "/store/nope",
        "/store/a/b/c",
        "/assistants/a/b",
        "/agents",
        "/agents/a/b",
        "/ok/nope",
        "/info/nope",
        "/agent-protocol",
        "/agent-protocol/nope",
        "/agent-protocol/assistants/search",
        "/agent-protocol/threads/a/b",
        "/agent-protocol/threads/a/commands/b",
        "/agent/echo/threads/a/b",
        "/agent/echo/ap/v1/nope",
        "/agent/nobody/threads",
        "/agent/nobody/ap/versions",
        "/Threads",
        "/ACP/ping",
    ],
)
async def test_an_unknown_path_is_404_in_its_protocols_form(gateway: Running, method: str, path: str) -> None:
    response = await gateway.http.request(method, path, headers=V1)
    assert response.status_code == 404, response.text
    check_error(words_of(method, path.partition("?")[0]), response)


async def test_a_path_with_dots_leads_nowhere_else(gateway: Running) -> None:
    """Send the path unchanged over a socket, because HTTP clients would normalize it."""
    host, _, port = gateway.url.removeprefix("http://").partition(":")
    for path in ("/acp/../healthz", "/acp/runs/../../../../etc/passwd", "//evil.example/acp/nope", "/acp\\..\\healthz"):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
        assert answer.split()[1] in ("400", "404"), (path, answer)
        assert "root:" not in answer
