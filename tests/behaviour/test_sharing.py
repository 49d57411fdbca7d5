"""Shared threads in every protocol: what a grantee reads, continues, and may not do."""

import json
import re
from collections.abc import AsyncGenerator
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

from babelgate.canonical import FaultError, Principal, Scope
from babelgate.canonical.value import JsonObject
from babelgate.gateway.access.guard import GuardedHub
from babelgate.gateway.access.policy import AllowAll
from tests.gateway.hubs import within
from tests.gateway.owning import CREDENTIALS, TOKEN, Place, acp_run, look, message, two_owners, unknown
from tests.gateway.position import POSITIONS, Position
from tests.gateway.siege import ask
from tests.gateway.valid import MCP, V1, rpc

pytestmark = pytest.mark.asyncio(loop_scope="module")

OF_THE_OWNER: Final = (
    "assistant",
    "cron",
    "pushNotificationConfigs",
    "store",
    "namespace",
    "an item by",
    "contextId",
    "before a page",
)
"""Words in the names of positions whose answer a grant does not make equal for both owners. These are resources that no
thread contains, and names that each owner has for itself."""
NOT_SHARED: Final = "may not do this with a thread of another owner"
READ_ONLY: Final = "key:bob may only read this thread: its grant has the level read."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Place]:
    async with two_owners(tmp_path_factory.mktemp("sharing")) as place:
        yield place


async def share(client: httpx.AsyncClient, thread_id: str, **fields: Any) -> httpx.Response:
    body = {"thread_id": thread_id, "grantee": "owner:bob", "level": "read", **fields}
    return await client.post("/grants", json=body)


async def share_all(place: Place) -> None:
    threads = await place.gateway.hub.journal.query(all_threads)
    for thread_id in threads:
        assert (await share(place.alice, thread_id)).status_code == 200


def all_threads(connection: Any) -> list[str]:
    return [row[0] for row in connection.exec_driver_sql("SELECT thread_id FROM thread WHERE owner = 'alice'")]


async def answer_to(client: httpx.AsyncClient, position: Position, things: Any, url: str) -> tuple[int, str]:
    method, path, kwargs = position.ask(things)
    body = json.dumps(kwargs.pop("json")) if "json" in kwargs else None
    if body is not None:
        body = body.replace("{url}", url).replace("{localhost}", url.replace("127.0.0.1", "localhost"))
    response = await ask(client, method, path, content=body, **kwargs)
    return response.status_code, things.hidden(response.text)


@pytest.mark.parametrize("position", [each for each in POSITIONS if "/admin/" not in each.name], ids=str)
async def test_a_read_grant_opens_reads_and_nothing_else(place: Place, position: Position) -> None:
    url, nothing = place.gateway.url, unknown()
    things, before = await place.shared_ids()
    await share_all(place)
    answer = await answer_to(place.bob, position, things, url)
    is_read = position.ask(nothing)[0] in ("GET", "HEAD")
    if is_read and not any(word in position.name for word in OF_THE_OWNER):
        assert answer == await answer_to(place.alice, position, things, url)
    assert TOKEN not in answer[1] and CREDENTIALS not in answer[1]
    assert await look(place.alice, things) == before, "Alice's resources must not change"


async def test_calls_that_a_grant_does_not_include_are_refused(place: Place) -> None:
    things, _ = await place.shared_ids()
    await share_all(place)
    thread, run = things.thread_id, things.later
    resume = {"assistant_id": "ask", "command": {"resume": "x"}}
    more: dict[str, Any] = {"assistant_id": "echo", "input": {}}
    refusals: list[tuple[str, str, Any, str]] = [
        ("POST", f"/threads/{thread}/runs/wait", more, READ_ONLY),
        ("POST", f"/threads/{thread}/runs/wait", resume, READ_ONLY),
        ("POST", f"/threads/{things.later_thread}/runs/{run}/cancel", None, READ_ONLY),
        ("PATCH", f"/threads/{thread}", {"metadata": {"a": 1}}, NOT_SHARED),
        ("POST", f"/threads/{thread}/state", {"values": {"a": 1}}, NOT_SHARED),
        ("POST", f"/threads/{thread}/copy", None, NOT_SHARED),
        ("DELETE", f"/threads/{thread}", None, NOT_SHARED),
    ]
    for level, expected in (("read", READ_ONLY), ("write", NOT_SHARED)):
        await share(place.alice, thread, level=level)
        for method, path, body, words in refusals:
            if words == NOT_SHARED or expected == READ_ONLY:
                response = await place.bob.request(method, path, json=body)
                assert (response.status_code, words in response.text) == (403, True), (path, response.text)
    webhook = {**more, "webhook": "http://127.0.0.1:9/"}
    response = await place.bob.post(f"/threads/{thread}/runs", json=webhook)
    assert "Only the owner of a thread registers webhooks for its runs." in response.text
    for path in ("/grants", f"/grants?thread_id={thread}&grantee=owner:bob"):
        method = "POST" if path == "/grants" else "DELETE"
        body = {"thread_id": thread, "grantee": "owner:bob"}
        assert (await place.bob.request(method, path, json=body)).status_code == 404


def _mcp_call(thread: str) -> JsonObject:
    return rpc("tools/call", {"name": "echo", "arguments": {"message": "a word", "thread_id": thread}})


def _completion(thread: str) -> JsonObject:
    return {"model": "echo", "messages": [{"role": "user", "content": "a word"}], "metadata": {"thread_id": thread}}


CALL: Final[JsonObject] = {"name": "echo", "arguments": {"message": "a word of bob", "thread_id": "{id}"}}
CONTINUED: Final[list[Any]] = [
    ("POST /acp/runs", acp_run("echo", "a word of bob", session={"id": "{id}"}), {}),
    ("POST /a2a/echo/message:send", {"message": message(contextId="{id}", parts=[{"text": "a word of bob"}])}, V1),
    (
        "POST /threads/{id}/runs/wait",
        {"assistant_id": "echo", "input": {"messages": [{"role": "user", "content": "a word of bob"}]}},
        {},
    ),
    (
        "POST /agent-protocol/threads/{id}/runs/wait",
        {"agent_id": "echo", "messages": [{"role": "user", "content": "a word of bob"}]},
        {},
    ),
    ("POST /v1/threads/{id}/runs", {"assistant_id": "echo", "input": {"message": "a word of bob"}}, {}),
    ("POST /v1/responses", {"model": "echo", "input": "a word of bob", "conversation": "conv_{hex}"}, {}),
    ("POST /ap/v1/agent/tasks/{id}/steps", {"input": "a word of bob"}, {}),
    (
        "POST /mcp",
        rpc("tools/call", CALL),
        MCP,
    ),
]


@pytest.mark.parametrize(
    ("route", "body", "headers"), CONTINUED, ids=lambda value: value if isinstance(value, str) else ""
)
async def test_a_grantee_continues_a_thread_in_every_protocol(
    place: Place, route: str, body: Any, headers: dict[str, str]
) -> None:
    thread_id = await make_thread(place)
    await share(place.alice, thread_id, level="write")
    method, _, path = route.replace("{id}", thread_id).partition(" ")
    content = json.dumps(body).replace("{id}", thread_id).replace("{hex}", thread_id.replace("-", ""))
    headers = {"Content-Type": "application/json", **headers}
    response = await place.bob.request(method, path, content=content, headers=headers)
    assert response.status_code < 300, response.text
    state = (await place.alice.get(f"/threads/{thread_id}/state")).text
    assert "a word of alice" in state and "a word of bob" in state
    assert (await place.bob.get(f"/threads/{thread_id}/state")).text == state
    search = await place.bob.post("/threads/search", json={"limit": 100})
    assert thread_id not in search.text, "lists contain only the caller's own threads"


NAMED: Final[list[Any]] = [
    # A request with the name that Alice chose, or without one, and a request with the name that a grantee uses.
    (
        "POST /a2a/echo/message:send",
        {"message": message(contextId="{name}", parts=[{"text": "a word"}])},
        {"message": message(contextId="{id}", parts=[{"text": "a word"}])},
        V1,
    ),
    ("POST /mcp", _mcp_call("{name}"), _mcp_call("{id}"), MCP),
    ("POST /v1/chat/completions", _completion("{name}"), _completion("{id}"), {}),
    (
        "POST /acp/runs",
        acp_run("echo", "a word", session={"id": "{id}"}),
        acp_run("echo", "a word", session={"id": "{id}"}),
        {},
    ),
    (
        "POST /v1/responses",
        {"model": "echo", "input": "a word"},
        {"model": "echo", "input": "a word", "previous_response_id": "{response}"},
        {},
    ),
    (
        "POST /v1/responses",
        {"model": "echo", "input": "a word"},
        {"model": "echo", "input": "a word", "conversation": "conv_{hex}"},
        {},
    ),
]


@pytest.mark.parametrize(
    ("route", "first", "later", "headers"), NAMED, ids=lambda value: value if type(value) is str else ""
)
async def test_a_grantee_names_a_thread_by_ids_not_aliases(
    place: Place, route: str, first: Any, later: Any, headers: dict[str, str]
) -> None:
    method, _, path = route.partition(" ")
    names = {"name": f"trip {uuid4()}", "id": str(uuid4())}

    async def call(client: httpx.AsyncClient, body: Any) -> httpx.Response:
        content = json.dumps(body)
        for name, value in names.items():
            content = content.replace(f"{{{name}}}", value)
        json_headers = {"Content-Type": "application/json", **headers}
        response = await client.request(method, path, content=content, headers=json_headers)
        assert response.status_code == 200, response.text
        return response

    async def count_words() -> int:
        state = (await place.alice.get(f"/threads/{thread_id}/state")).json()
        return len(state["values"]["messages"])

    started = await call(place.alice, first)
    thread_id = thread_of(started)
    names |= {"id": thread_id, "hex": thread_id.replace("-", "")}
    if "/responses" in route:
        names["response"] = started.json()["id"]
    await share(place.alice, thread_id, level="write")
    count = await count_words()
    assert thread_of(await call(place.bob, later)) == thread_id
    assert await count_words() == 2 * count
    if "{name}" in json.dumps(first):
        assert thread_of(await call(place.bob, first)) != thread_id, "a grant must not capture a name of the grantee"
        assert thread_of(await call(place.alice, first)) == thread_id
        assert await count_words() == 3 * count


def thread_of(response: httpx.Response) -> str:
    """Return the id of the thread of a response."""
    if "babelgate-thread" in response.headers:
        return response.headers["babelgate-thread"]
    matched = re.search(r'"thread(?:_id|Id)?":"([0-9a-f-]{36})"', response.text)
    assert matched is not None, response.text
    return matched[1]


async def test_lists_include_shared_threads_requested_by_id(place: Place) -> None:
    body = {"message": message(contextId=f"trip {uuid4()}")}
    response = await place.alice.post("/a2a/echo/message:send", json=body, headers=V1)
    thread_id, task = thread_of(response), response.json()["task"]
    bobs_thread = (await place.bob.post("/threads", json={})).json()["thread_id"]
    search = {"ids": [bobs_thread, thread_id], "limit": 10}

    async def list_all() -> tuple[set[str], int, int, int]:
        threads = await place.bob.post("/threads/search", json=search)
        count = int(threads.headers["x-pagination-total"])
        runs = await place.bob.get(f"/threads/{thread_id}/runs")
        tasks = await place.bob.get("/a2a/echo/tasks", params={"contextId": thread_id}, headers=V1)
        assert all((each["id"], each["contextId"]) == (task["id"], thread_id) for each in tasks.json()["tasks"])
        everything = await place.bob.post("/threads/search", json={"limit": 1000})
        assert thread_id not in everything.text, "a list without ids contains only the caller's own threads"
        ids = {each["thread_id"] for each in threads.json()}
        return ids, count, len(runs.json()) if runs.is_success else 0, len(tasks.json()["tasks"])

    assert await list_all() == ({bobs_thread}, 1, 0, 0)
    await share(place.alice, thread_id)
    assert await list_all() == ({bobs_thread, thread_id}, 2, 1, 1)
    await place.bob.post("/threads", json={"thread_id": thread_id, "metadata": {"of": "bob"}})
    threads = (await place.bob.post("/threads/search", json=search)).json()
    assert [each["metadata"] for each in threads if each["thread_id"] == thread_id] == [{"of": "bob"}]
    await place.bob.delete(f"/threads/{thread_id}")
    await place.alice.delete("/grants", params={"thread_id": thread_id, "grantee": "owner:bob"})
    assert await list_all() == ({bobs_thread}, 1, 0, 0)


async def make_thread(place: Place) -> str:
    """Return the id of a thread that fits every protocol: an AIEF task whose first step has run."""
    task = (await place.alice.post("/agent/echo/ap/v1/agent/tasks", json={"input": "a word of alice"})).json()
    await place.alice.post(f"/agent/echo/ap/v1/agent/tasks/{task['task_id']}/steps", json={})
    return task["task_id"]


async def test_grants_are_listed_changed_and_deleted(place: Place) -> None:
    thread_id = await make_thread(place)
    grant = (await share(place.alice, thread_id, expires="2100-01-01T00:00:00Z")).json()
    at = grant.pop("at")
    assert at.endswith("Z") and grant == {
        "thread_id": thread_id,
        "owner": "alice",
        "grantee": "owner:bob",
        "level": "read",
        "by": "key:alice",
        "expires": "2100-01-01T00:00:00Z",
    }
    assert (await share(place.alice, thread_id, level="write")).json()["expires"] is None
    listed = (await place.alice.get("/grants", params={"thread_id": thread_id})).json()
    assert [(each["grantee"], each["level"]) for each in listed["given"]] == [("owner:bob", "write")]
    assert thread_id in {each["thread_id"] for each in (await place.alice.get("/grants")).json()["given"]}
    received = (await place.bob.get("/grants")).json()["received"]
    assert thread_id in {each["thread_id"] for each in received}
    query = {"thread_id": thread_id, "grantee": "owner:bob"}
    assert (await place.alice.delete("/grants", params=query)).status_code == 204
    assert (await place.alice.delete("/grants", params=query)).status_code == 404
    assert (await place.bob.get(f"/threads/{thread_id}")).status_code == 404


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"grantee": "bob"}, "grantee: expected owner:NAME or group:NAME"),
        ({"grantee": "group:"}, "grantee: expected owner:NAME or group:NAME"),
        ({"level": "all"}, "level: Input should be 'read' or 'write'"),
        ({"expires": "2020-01-01T00:00:00Z"}, "expires: the time is in the past."),
        ({"expires": "tomorrow"}, "expires: "),
        ({"for": "bob"}, "for: There is no such member"),
    ],
)
async def test_a_wrong_grant_is_refused(place: Place, fields: Any, words: str) -> None:
    thread_id = await make_thread(place)
    response = await share(place.alice, thread_id, **fields)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid")
    assert words in response.text
    assert (await share(place.bob, thread_id)).json()["error"]["message"] == f"Thread {thread_id} not found"


async def test_things_of_the_caller_precede_shared_ones(place: Place) -> None:
    thread_id = await make_thread(place)
    await place.bob.post("/threads", json={"thread_id": thread_id, "metadata": {"of": "bob"}})
    await share(place.alice, thread_id)
    assert (await place.bob.get(f"/threads/{thread_id}")).json()["metadata"]["of"] == "bob"


async def test_a_stream_of_a_shared_thread_ends_with_its_grant(place: Place) -> None:
    thread_id = await make_thread(place)
    await share(place.alice, thread_id)
    principal = Principal(subject="key:bob", owner="bob")
    hub = GuardedHub(place.gateway.hub, AllowAll(), "acp")
    reading = hub.reads.follow(principal, Scope(thread_id))
    assert await within(anext(reading))
    await place.alice.delete("/grants", params={"thread_id": thread_id, "grantee": "owner:bob"})
    await place.alice.post(f"/threads/{thread_id}/runs/wait", json={"assistant_id": "echo", "input": {}})
    with pytest.raises(FaultError, match=f"Thread {thread_id} not found"):
        await within(anext(reading))


async def test_a_group_may_be_a_grantee(place: Place) -> None:
    thread_id = await make_thread(place)
    await share(place.alice, thread_id, grantee="group:dev")
    reads = GuardedHub(place.gateway.hub, AllowAll(), "acp").reads
    member = Principal(subject="user:corp:carol", owner="carol", groups=frozenset({"dev"}))
    assert (await reads.thread(member, thread_id)).thread_id == thread_id
    with pytest.raises(FaultError, match="not found"):
        await reads.thread(Principal(subject="user:corp:dan", owner="dan"), thread_id)


async def test_an_erased_thread_has_no_grants(place: Place) -> None:
    thread_id = await make_thread(place)
    await share(place.alice, thread_id)
    assert (await place.alice.delete(f"/threads/{thread_id}")).status_code == 204
    await place.alice.post("/threads", json={"thread_id": thread_id})
    assert (await place.bob.get(f"/threads/{thread_id}")).status_code == 404
    assert (await place.alice.get("/grants", params={"thread_id": thread_id})).json() == {"given": []}
