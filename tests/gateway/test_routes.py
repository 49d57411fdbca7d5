"""Every route of the gateway, from its own table of routes, meets the same bad bodies, ids, queries and headers: it
answers in its protocol's words, never with a 500, and the gateway works on."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, unquote

import httpx
import pytest
import pytest_asyncio

from canonical.value import Json, JsonObject
from tests.gateway.heard import hearing
from tests.gateway.hostile import BODIES, HEADERS, IDS, LIMIT, QUERY, UNKNOWN, WRONG, mutations
from tests.gateway.hubs import check_invariants
from tests.gateway.route import AGENT_SLOT, METHODS, ROUTES, Route, allowed, paths, words_of
from tests.gateway.shape import check_error, error_of
from tests.gateway.valid import MESSAGE, PUSH, RPC, V1, VALID, Rpc, rpc
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUERIES: Final[Mapping[str, Sequence[str]]] = {
    "/acp/agents": ("limit", "offset"),
    "/acp/runs/{run_id}/events": ("after",),
    "/.well-known/agent-card.json": ("assistant_id", "A2A-Version"),
    "/a2a/{agent}/.well-known/agent-card.json": ("A2A-Version",),
    "/a2a/{agent}/tasks": (
        "contextId",
        "status",
        "pageSize",
        "pageToken",
        "historyLength",
        "statusTimestampAfter",
        "includeArtifacts",
    ),
    "/a2a/{agent}/tasks/{task_id}": ("historyLength",),
    "/a2a/{agent}/tasks/{task_id}/pushNotificationConfigs": ("pageSize", "pageToken"),
    "/a2a/{agent}/v1/tasks": ("contextId", "pageSize", "pageToken"),
    "/a2a/{agent}/v1/tasks/{task_id}": ("historyLength",),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    folder = tmp_path_factory.mktemp("routes")
    with hearing(logging.ERROR) as heard:
        async with running(folder, limits={"body": LIMIT}) as gateway:
            yield gateway
            await check_invariants(gateway.hub)
    # What goes wrong in the middle of a stream, or behind an answer, reaches nobody but the log.
    assert heard.errors == []


@pytest_asyncio.fixture(loop_scope="module")
async def slots(gateway: Running) -> AsyncIterator[Mapping[str, str]]:
    """Ids of things that are there: a paused task of the agent `ask`, its session, its push config."""
    made = await gateway.http.post(
        "/acp/runs", json={"agent_name": "ask", "input": [{"role": "user", "parts": [{"content": "hi"}]}]}
    )
    run_id, session_id = made.json()["run_id"], made.json()["session_id"]
    push = await gateway.http.post(f"/a2a/ask/tasks/{run_id}/pushNotificationConfigs", headers=V1, json=PUSH)
    assert push.status_code == 200, push.text
    yield {
        "agent": "ask",
        "name": "ask",
        "run_id": run_id,
        "task_id": run_id,
        "session_id": session_id,
        "resource_id": f"{run_id}.0",
        "config_id": "p1",
        "blob": "0" * 64,
    }


async def works(gateway: Running) -> None:
    """The gateway still does what it is for, in both protocols."""
    said = await gateway.http.post(
        "/acp/runs", json={"agent_name": "echo", "input": [{"role": "user", "parts": [{"content": "still here"}]}]}
    )
    assert said.json()["output"][0]["parts"][0]["content"] == "still here"
    message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "still here"}]}
    sent = await gateway.http.post("/a2a/echo/message:send", headers=V1, json={"message": message})
    assert sent.json()["task"]["artifacts"][0]["parts"][0]["text"] == "still here"


def spared(route: Route, slots: Mapping[str, str]) -> Mapping[str, str]:
    """Slots for the route that do not make it wait, or tell of all that these tests have made."""
    if route.path.endswith(":subscribe"):  # of a waiting task it goes on for as long as nobody answers
        return {**slots, "task_id": UNKNOWN}
    return {**slots, "agent": "json"} if route.path.endswith("/tasks") else slots


def headers_for(route: Route) -> dict[str, str]:
    return dict(V1) if route.words in ("rest", "rpc") else {}


Case = tuple[str, Callable[[], Awaitable[httpx.Response]]]


async def problems(gateway: Running, route: Route, cases: Iterable[Case], *, refused: bool) -> list[str]:
    """What is wrong with the answers. `refused`: each must be an error. The gateway works afterwards."""
    found: list[str] = []
    gate = asyncio.Semaphore(8)

    async def one(name: str, send: Callable[[], Awaitable[httpx.Response]]) -> None:
        async with gate:
            response = await send()
        # By the path as it was understood: an encoded slash may lead to a path of another binding.
        words = words_of(route.method, unquote(response.request.url.raw_path.decode().partition("?")[0]))
        try:
            if refused or error_of(words, response):
                assert error_of(words, response), f"{response.status_code}: {response.text[:200]}"
                check_error(words, response)
        except (AssertionError, KeyError, IndexError, ValueError) as error:
            found.append(f"{route} with {name}: {type(error).__name__}: {error}")

    await asyncio.gather(*(one(name, send) for name, send in cases))
    await works(gateway)
    return found


def sending(gateway: Running, route: Route, path: str, **request: Any) -> Callable[[], Awaitable[httpx.Response]]:
    headers = {**headers_for(route), **request.pop("headers", {})}
    return lambda: gateway.http.request(route.method, path, headers=headers, **request)


async def test_every_route_with_a_body_is_in_the_table_of_valid_bodies() -> None:
    """A new POST route comes with a valid body here, or is one of those that read none."""
    without = {f"POST {path}" for path in paths() if path.endswith((":cancel", ":subscribe", "/cancel"))}
    posts = {str(route) for route in ROUTES if route.method in ("POST", "PUT", "PATCH")}
    assert posts == set(VALID) | without | {"POST /a2a/{agent}"}


@pytest.mark.parametrize("route", ROUTES, ids=str)
async def test_a_bad_body_is_refused_or_ignored(gateway: Running, slots: Mapping[str, str], route: Route) -> None:
    """Routes that read a body refuse every one of these; the others do not look at it."""
    path = route.at(spared(route, slots))
    reads = str(route) in VALID or route.words == "rpc"
    cases = [(name, sending(gateway, route, path, content=body)) for name, body in BODIES.items()]
    assert await problems(gateway, route, cases, refused=reads) == []


@pytest.mark.parametrize("route", [r for r in ROUTES if str(r) in VALID or r.words == "rpc"], ids=str)
async def test_a_body_over_the_limit_is_413(gateway: Running, slots: Mapping[str, str], route: Route) -> None:
    async def chunked() -> AsyncIterator[bytes]:
        for _ in range(2 * LIMIT // 2**18):
            yield b" " * 2**18

    body = b'{"a": "' + b"x" * LIMIT + b'"}'
    for content in (body, chunked()):
        response = await gateway.http.request(
            route.method, route.at(slots), content=content, headers=headers_for(route)
        )
        assert response.status_code == 413
        check_error(route.words, response)


@pytest.mark.parametrize("route", [route for route in ROUTES if str(route) in VALID], ids=str)
async def test_wrong_types_in_every_field_are_refused(gateway: Running, slots: Mapping[str, str], route: Route) -> None:
    """Some of these are requests all the same (an unknown member, an empty list); none is a 500."""
    if "message" in route.path:
        slots = {**slots, "agent": "echo"}
    wrong = WRONG[:2] if "message" in route.path else WRONG  # messages meet them all in JSON-RPC
    cases = [
        (name, sending(gateway, route, route.at(slots), content=dumped(body)))
        for name, body in mutations(VALID[str(route)], wrong)
    ]
    assert await problems(gateway, route, cases, refused=False) == []


def dumped(value: Json) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize("route", [route for route in ROUTES if route.slots], ids=str)
async def test_a_bad_id_is_not_found(gateway: Running, slots: Mapping[str, str], route: Route) -> None:
    body = rpc("GetTask", {"id": slots["task_id"]}) if route.words == "rpc" else VALID.get(str(route))
    cases: list[Case] = []
    for slot in route.slots:
        if slot == "config_id" and route.method == "DELETE":
            continue  # deleting what is not there is no error (A2A 1.0, 3.1.10)
        cases += [
            (f"{slot} = {name}", sending(gateway, route, route.at({**slots, slot: bad}), json=body))
            for name, bad in IDS.items()
        ]
    assert await problems(gateway, route, cases, refused=True) == []


@pytest.mark.parametrize("route", [route for route in ROUTES if route.slots], ids=str)
async def test_an_unknown_id_is_404_and_not_some_other_error(
    gateway: Running, slots: Mapping[str, str], route: Route
) -> None:
    body = rpc("GetTask", {"id": slots["task_id"]}) if route.words == "rpc" else VALID.get(str(route))
    for slot in route.slots:
        if slot == "config_id" and route.method == "DELETE":
            continue
        unknown = "nobody" if slot in AGENT_SLOT else UNKNOWN
        path = route.at({**slots, slot: unknown})
        response = await gateway.http.request(route.method, path, json=body, headers=headers_for(route))
        assert response.status_code == 404, (slot, response.text)


@pytest.mark.parametrize("path", list(QUERIES))
async def test_a_bad_query_is_refused_or_ignored(gateway: Running, slots: Mapping[str, str], path: str) -> None:
    route = Route("GET", path)
    at = route.at(spared(route, slots))
    cases = [
        (f"{name}={value[:20]}", sending(gateway, route, f"{at}?{name}={quote(value, safe='%')}"))
        for name in QUERIES[path]
        for value in QUERY
    ]
    assert await problems(gateway, route, cases, refused=False) == []


@pytest.mark.parametrize("route", ROUTES, ids=str)
async def test_bad_headers_are_refused_or_ignored(gateway: Running, slots: Mapping[str, str], route: Route) -> None:
    path = route.at(spared(route, slots))
    cases = [
        (str(headers), sending(gateway, route, path, headers=headers, content=b"{}"))
        for headers in HEADERS
        if not (route.path.endswith("/events") and b"event-stream" in headers.get("Accept", b""))
    ]
    assert await problems(gateway, route, cases, refused=False) == []


# Methods and paths


@pytest.mark.parametrize("path", paths())
async def test_a_method_that_a_path_does_not_have_is_405_with_allow(
    gateway: Running, slots: Mapping[str, str], path: str
) -> None:
    """RFC 9110, 15.5.6: the server MUST say in Allow which methods there are."""
    for method in (*METHODS, "TRACE"):
        if method in allowed(path):
            continue
        response = await gateway.http.request(method, Route(method, path).at(slots))
        assert response.status_code == 405, (method, response.text)
        check_error(words_of(method, path), response)
        listed = set(response.headers["allow"].split(", "))
        if "/tasks/{task_id}" in path and "/push" not in path:  # tasks and what is done to them share one segment
            assert listed >= allowed(path)
        else:
            assert listed == allowed(path)


@pytest.mark.parametrize("path", paths())
async def test_options_lists_the_methods(gateway: Running, slots: Mapping[str, str], path: str) -> None:
    response = await gateway.http.options(Route("OPTIONS", path).at(slots))
    assert response.status_code == 204
    assert response.content == b""
    assert set(response.headers["allow"].split(", ")) >= allowed(path)


@pytest.mark.parametrize("path", [path for path in paths() if "GET" in allowed(path) and "subscribe" not in path])
async def test_head_is_get_without_the_body(gateway: Running, slots: Mapping[str, str], path: str) -> None:
    at = Route("GET", path).at(slots)
    got, head = await gateway.http.get(at), await gateway.http.head(at)
    assert head.status_code == got.status_code
    assert head.content == b""
    assert head.headers["content-type"] == got.headers["content-type"]


async def test_head_of_a_stream_ends_at_once(gateway: Running, slots: Mapping[str, str]) -> None:
    """The run waits for an answer: a GET would wait with it."""
    async with asyncio.timeout(10):
        response = await gateway.http.head(
            f"/acp/runs/{slots['run_id']}/events", headers={"Accept": "text/event-stream"}
        )
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
        "/agent/echo/acp/nope",
        "/agent/echo/a2a/echo/nope",
        "/agent/nobody/acp/ping",
        "/acpx/ping",
        "/ACP/ping",
    ],
)
async def test_an_unknown_path_is_404_in_the_words_of_its_prefix(gateway: Running, method: str, path: str) -> None:
    response = await gateway.http.request(method, path, headers=V1)
    assert response.status_code == 404, response.text
    check_error(words_of(method, path.partition("?")[0]), response)


async def test_a_path_with_dots_leads_nowhere_else(gateway: Running) -> None:
    """Sent as it is: HTTP clients would tidy it up."""
    host, _, port = gateway.url.removeprefix("http://").partition(":")
    for path in ("/acp/../healthz", "/acp/runs/../../../../etc/passwd", "//evil.example/acp/nope", "/acp\\..\\healthz"):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
        assert answer.split()[1] in ("400", "404"), (path, answer)
        assert "root:" not in answer


# JSON-RPC


async def rpc_params(gateway: Running, slots: Mapping[str, str], each: Rpc) -> tuple[str, JsonObject]:
    """The agent to call, and params that it takes."""
    if "message" in each.valid:
        return "echo", each.valid
    if "$task" not in each.valid.values():
        return "ask", {name: slots["task_id"] if v == "$open" else v for name, v in each.valid.items()}
    made = await gateway.http.post("/a2a/echo", json=rpc("SendMessage", {"message": MESSAGE}), headers=V1)
    ended = made.json()["result"]["task"]["id"]
    return "echo", {name: ended if v == "$task" else v for name, v in each.valid.items()}


def calling(gateway: Running, each: Rpc, agent: str, body: Json) -> Callable[[], Awaitable[httpx.Response]]:
    headers = {} if each.old else dict(V1)
    return lambda: gateway.http.post(f"/a2a/{agent}", content=dumped(body), headers=headers)


@pytest.mark.parametrize("each", RPC, ids=lambda each: each.name)
async def test_a_method_refuses_params_that_are_no_object(
    gateway: Running, slots: Mapping[str, str], each: Rpc
) -> None:
    agent, _ = await rpc_params(gateway, slots, each)
    bad: list[Json] = [[1], ["x", {}], 7, "x", True, 1.5]
    cases = [(repr(params), calling(gateway, each, agent, rpc(each.name, params))) for params in bad]
    assert await problems(gateway, each.route, cases, refused=True) == []


@pytest.mark.parametrize("each", [each for each in RPC if not each.bare], ids=lambda each: each.name)
async def test_a_method_refuses_params_without_what_it_needs(
    gateway: Running, slots: Mapping[str, str], each: Rpc
) -> None:
    bad: list[Json] = [None, {}, {"nope": 1}, {"call": 1, "context": 2, "self": 3, "params": 4}]
    for params in bad:
        response = await calling(gateway, each, "ask", rpc(each.name, params))()
        check_error("rpc", response)
        assert '"code":-32602' in response.text, (params, response.text)


@pytest.mark.parametrize("each", RPC, ids=lambda each: each.name)
async def test_a_method_survives_wrong_types_in_every_param(
    gateway: Running, slots: Mapping[str, str], each: Rpc
) -> None:
    agent, valid = await rpc_params(gateway, slots, each)
    wrong = WRONG[:2] if "stream" in each.name.lower() else WRONG
    cases = [(name, calling(gateway, each, agent, rpc(each.name, params))) for name, params in mutations(valid, wrong)]
    assert await problems(gateway, each.route, cases, refused=False) == []


@pytest.mark.parametrize(
    ("method", "part"),
    [
        ("SendMessage", {"raw": "aGk=", "filename": "a.txt", "mediaType": "text/plain"}),
        ("SendMessage", {"url": "http://127.0.0.1:9/a", "filename": "a.txt", "mediaType": "text/plain"}),
        ("message/send", {"kind": "file", "file": {"bytes": "aGk=", "name": "a.txt", "mimeType": "text/plain"}}),
        ("message/send", {"kind": "file", "file": {"uri": "http://127.0.0.1:9/a"}}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
async def test_a_file_survives_wrong_types_in_every_field(gateway: Running, method: str, part: JsonObject) -> None:
    each = Rpc(method, {})
    role = "user" if each.old else "ROLE_USER"
    cases = [
        (name, calling(gateway, each, "files", rpc(method, {"message": {"messageId": "1", "role": role, **parts}})))
        for name, parts in mutations({"parts": [part]})
        if isinstance(parts, dict)
    ]
    assert await problems(gateway, each.route, cases, refused=False) == []


async def test_ids_in_a_message_survive_wrong_types(gateway: Running) -> None:
    message: JsonObject = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    ids: JsonObject = {"contextId": "routes", "taskId": UNKNOWN, "referenceTaskIds": [UNKNOWN], "extensions": ["x"]}
    each = Rpc("SendMessage", {})
    cases = [
        (name, calling(gateway, each, "echo", rpc("SendMessage", {"message": {**message, **changed}})))
        for name, changed in mutations(ids)
        if isinstance(changed, dict)
    ]
    assert await problems(gateway, each.route, cases, refused=False) == []


@pytest.mark.parametrize("each", RPC, ids=lambda each: each.name)
async def test_a_method_of_the_other_generation_is_refused_by_its_version(
    gateway: Running, slots: Mapping[str, str], each: Rpc
) -> None:
    agent, valid = await rpc_params(gateway, slots, each)
    for version in ("9.9", "0.3" if not each.old else "1.0"):
        response = await gateway.http.post(
            f"/a2a/{agent}", json=rpc(each.name, valid), headers={"A2A-Version": version}
        )
        check_error("rpc", response)
        assert ("-32600" if each.old else "-32009") in response.text


@pytest.mark.parametrize(
    ("body", "code", "reply_id"),
    [
        ([], -32600, None),
        ([rpc("GetTask", {"id": UNKNOWN})], -32600, None),
        ({}, -32600, None),
        ({"jsonrpc": "1.0", "id": 7, "method": "GetTask"}, -32600, 7),
        ({"id": 7, "method": "GetTask"}, -32600, 7),
        ({"jsonrpc": 2.0, "id": "x", "method": "GetTask"}, -32600, "x"),
        ({"jsonrpc": "2.0", "id": 7}, -32600, 7),
        (rpc("", {}), -32600, 7),
        (rpc(7, {}), -32600, 7),
        (rpc(None, {}), -32600, 7),
        (rpc({"a": 1}, {}), -32600, 7),
        (rpc("nope", {}), -32601, 7),
        (rpc("gettask", {}), -32601, 7),
        (rpc("__class__", {}), -32601, 7),
        (rpc("rpc.discover", {}), -32601, 7),
        (rpc("x" * 100_000, {}), -32601, 7),
        (rpc("GetTask", {}, True), -32600, None),
        (rpc("GetTask", {}, {}), -32600, None),
        (rpc("GetTask", {}, [1]), -32600, None),
        (rpc("GetTask", {}, "x"), -32602, "x"),
        (rpc("GetTask", {}, 10**30), -32602, 10**30),
        (rpc("GetTask", {}, 1.5), -32602, 1.5),
        (rpc("GetTask", {}, None), -32602, None),
        ({**rpc("GetTask", {}), "extra": 1}, -32602, 7),
    ],
    ids=lambda value: json.dumps(value)[:60] if isinstance(value, dict | list) else None,
)
async def test_what_is_no_request_is_refused_with_its_id(
    gateway: Running, body: Json, code: int, reply_id: Json
) -> None:
    response = await gateway.http.post("/a2a/echo", content=dumped(body), headers=V1)
    check_error("rpc", response)
    assert response.json()["error"]["code"] == code
    assert response.json()["id"] == reply_id


async def test_a_notification_gets_no_answer(gateway: Running) -> None:
    for method in ("ListTasks", "nope"):
        response = await gateway.http.post("/a2a/echo", json={"jsonrpc": "2.0", "method": method}, headers=V1)
        assert (response.status_code, response.content) == (204, b"")


@pytest.mark.parametrize("name", ["not JSON", "invalid UTF-8", "a lone surrogate", "NaN", "1 000 levels", "1e999"])
async def test_what_is_no_json_is_a_parse_error(gateway: Running, name: str) -> None:
    response = await gateway.http.post("/a2a/echo", content=BODIES[name], headers=V1)
    check_error("rpc", response)
    assert response.json()["error"]["code"] == -32700
    assert response.json()["id"] is None
