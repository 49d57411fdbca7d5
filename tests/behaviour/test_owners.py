"""Isolation of owners in every route and method.

Another owner's things do not exist for the caller: they cannot be read, listed, streamed, answered, cancelled or
deleted, and cause no conflict.

Each test puts the ids of another owner's things into every position of an id. The answer must equal the answer to ids
that never existed, except for the ids.
"""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from hashlib import sha256
from typing import Final
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

from babelgate.gateway.http.front import JWKS_PATH
from babelgate.gateway.runs.consents import CALLBACK
from tests.gateway.hubs import within
from tests.gateway.owning import (
    ALICE,
    BOB,
    CREDENTIALS,
    SECRETS,
    STEPS,
    TOKEN,
    OwnerIds,
    Place,
    acp_run,
    look,
    make,
    message,
    unknown,
)
from tests.gateway.position import NO_ID, POSITIONS, Position
from tests.gateway.route import METHODS, PAGE_PATHS, ROUTES, Route, paths, protocol_of, words_of
from tests.gateway.shape import check_error
from tests.gateway.siege import ask
from tests.gateway.valid import V1, command, rpc

pytestmark = pytest.mark.asyncio(loop_scope="module")

OPEN: Final = {"/healthz", "/readyz", "/ok", "/acp/ping", JWKS_PATH}
"""Paths answered without a key, in addition to the public cards."""


def is_open(path: str) -> bool:
    return path in (OPEN | PAGE_PATHS | {CALLBACK}) or path.endswith(
        (".well-known/agent-card.json", ".well-known/agent.json")
    )


@pytest_asyncio.fixture(loop_scope="module")
async def things(place: Place) -> OwnerIds:
    return await place.make()


_VARIES: Final = {"date", "content-length", "x-request-id"}


async def answer_to(
    client: httpx.AsyncClient, position: Position, things: OwnerIds, url: str
) -> tuple[int, Mapping[str, str], str]:
    """Return status, headers and body of the answer, without ids and without what varies between any two answers."""
    method, path, kwargs = position.ask(things)
    body = json.dumps(kwargs.pop("json")) if "json" in kwargs else None
    if body is not None:
        body = body.replace("{url}", url).replace("{localhost}", url.replace("127.0.0.1", "localhost"))
    response = await ask(client, method, path, content=body, **kwargs)
    headers = {name: things.hidden(value) for name, value in response.headers.items() if name not in _VARIES}
    return response.status_code, headers, things.hidden(response.text)


@pytest.mark.parametrize("position", POSITIONS, ids=str)
async def test_the_ids_of_another_owner_count_as_unknown(place: Place, position: Position) -> None:
    url, nothing = place.gateway.url, unknown()
    things, before = await place.shared_ids()
    foreign = await answer_to(place.bob, position, things, url)
    assert foreign == await answer_to(place.bob, position, nothing, url)
    assert await look(place.alice, things) == before, "Alice's resources must not change"
    if not position.alike:
        is_read = position.ask(nothing)[0] in ("GET", "HEAD")
        answer = await answer_to(place.alice, position, things if is_read else await place.make(), url)
        assert answer != await answer_to(place.alice, position, nothing, url), "the ids lead somewhere"


async def test_every_position_of_an_id_in_the_routes_is_compared() -> None:
    for route in ROUTES:
        assert set(route.slots) <= set(unknown().slots(route.protocol))
    assert {str(route) for route in ROUTES if set(route.slots) - NO_ID} <= {each.name for each in POSITIONS}


# Lists, conflicts, names


async def test_a2a_lists_hold_only_tasks_of_the_caller(place: Place, things: OwnerIds) -> None:
    mine = await place.bob.post("/a2a/ask/message:send", json={"message": message()}, headers=V1)
    mine_id = mine.json()["task"]["id"]
    for page in (
        (await place.bob.get("/a2a/ask/tasks?pageSize=100", headers=V1)).json(),
        (await place.bob.get("/a2a/ask/v1/tasks?pageSize=100")).json(),
        (await place.bob.post("/a2a/ask", json=rpc("ListTasks", {"pageSize": 100}), headers=V1)).json()["result"],
    ):
        ids = {task["id"] for task in page["tasks"]}
        assert mine_id in ids
        assert things.task_id not in ids
        assert page["totalSize"] == len(ids) < 100
    alices = (await place.alice.get("/a2a/ask/tasks?pageSize=1", headers=V1)).json()
    assert alices["totalSize"] != page["totalSize"]


async def test_a_page_token_of_another_owner_shows_nothing(place: Place) -> None:
    for _ in range(2):
        await place.alice.post("/a2a/echo/message:send", json={"message": message()}, headers=V1)
    token = (await place.alice.get("/a2a/echo/tasks?pageSize=1", headers=V1)).json()["nextPageToken"]
    assert token
    page = await place.bob.get(f"/a2a/echo/tasks?pageSize=100&pageToken={token}", headers=V1)
    alices = (await place.alice.get("/a2a/echo/tasks?pageSize=100", headers=V1)).json()["tasks"]
    assert not {task["id"] for task in page.json().get("tasks", [])} & {task["id"] for task in alices}


async def test_a_session_of_another_owner_is_not_joined(place: Place, things: OwnerIds) -> None:
    """Give Bob a session of his own under the id of Alice's: ids are unique per owner."""
    run = acp_run("echo", "Bob was here", session_id=things.session_id)
    mine = await place.bob.post("/acp/runs", json=run)
    assert (mine.status_code, mine.json()["status"]) == (200, "completed")
    assert mine.json()["session_id"] == things.session_id
    alices = (await place.alice.get(f"/acp/sessions/{things.session_id}")).json()["history"]
    bobs = (await place.bob.get(f"/acp/sessions/{things.session_id}")).json()["history"]
    assert len(bobs) == 2
    assert not set(bobs) & set(alices)
    assert "Bob was here" not in await look(place.alice, things)
    messages = [(await place.bob.get(url)).text for url in bobs]
    assert not any("alice" in message for message in messages)


async def test_graph_lists_hold_only_resources_of_the_caller(place: Place, things: OwnerIds) -> None:
    mine = await make(place.bob)
    everything = {"limit": 1000}
    for prefix in ("", "/agent-protocol"):
        for path, body, own_id in (
            ("/threads/search", everything, mine.thread_id),
            ("/runs/search", everything, mine.asking_run),
            ("/store/items/search", everything, mine.label),
            ("/store/namespaces", everything, mine.label),
        ):
            listed = await place.bob.post(prefix + path, json=body)
            assert listed.status_code == 200
            assert own_id in listed.text
            assert mine.hidden(listed.text) == things.hidden(mine.hidden(listed.text)), path
        counted = (await place.bob.post(f"{prefix}/threads/count", json={})).json()
        assert counted == len((await place.bob.post(f"{prefix}/threads/search", json=everything)).json())
    assistants = await place.bob.post("/assistants/search", json=everything)
    assert mine.assistant_id in assistants.text and things.assistant_id not in assistants.text
    assert (await place.bob.post("/assistants/count", json={})).json() == len(assistants.json())
    crons = await place.bob.post("/runs/crons/search", json=everything)
    assert mine.cron_id in crons.text and things.cron_id not in crons.text
    assert (await place.bob.post("/runs/crons/count", json={})).json() == len(crons.json())
    tasks = (await place.bob.get(f"{STEPS}?page_size=1000")).json()
    assert mine.steps in {task["task_id"] for task in tasks["tasks"]}
    assert things.steps not in {task["task_id"] for task in tasks["tasks"]}
    assert tasks["pagination"]["total_items"] == len(tasks["tasks"])


async def test_a_thread_of_another_owner_is_not_joined(place: Place, things: OwnerIds) -> None:
    before = await look(place.alice, things)
    mine = await place.bob.post("/threads", json={"thread_id": things.thread_id, "if_exists": "raise"})
    assert (mine.status_code, mine.json()["metadata"]) == (200, {})
    again = await place.bob.post("/threads", json={"thread_id": things.thread_id, "if_exists": "raise"})
    assert again.status_code == 409
    run = {"assistant_id": "echo", "input": "Bob was here"}
    answer = await place.bob.post(f"/threads/{things.thread_id}/runs/wait", json=run)
    assert [message["content"] for message in answer.json()["messages"]] == ["Bob was here", "Bob was here"]
    assert (await place.bob.delete(f"/threads/{things.thread_id}")).status_code == 204
    assert await look(place.alice, things) == before


async def test_a_run_under_another_owners_id_creates_a_separate_thread(place: Place, things: OwnerIds) -> None:
    before = await look(place.alice, things)
    run = {
        "assistant_id": "echo",
        "input": "Bob was here",
        "if_not_exists": "create",
        "multitask_strategy": "rollback",
    }
    for thread_id in (things.thread_id, things.steps, things.session_id, things.later_thread):
        answer = await place.bob.post(f"/threads/{thread_id}/runs/wait", json=run)
        assert [message["content"] for message in answer.json()["messages"]] == ["Bob was here", "Bob was here"]
    assert await look(place.alice, things) == before


WAITING: Final = tuple(route for route in ROUTES if route.waits)


async def events(response: httpx.Response) -> AsyncGenerator[str]:
    """Yield the events of the stream as they arrive."""
    lines: list[str] = []
    async for line in response.aiter_lines():
        if line:
            lines.append(line)
        elif any(each.startswith("event: ") for each in lines):
            yield "\n".join(lines)
            lines.clear()


async def up_to_the_end(stream: AsyncIterator[str]) -> list[str]:
    received: list[str] = []
    while not (received and '"completed"' in received[-1]):
        received.append(await anext(stream))
    return received


@pytest.mark.parametrize("route", WAITING, ids=str)
async def test_a_stream_shows_only_the_callers_thread(place: Place, things: OwnerIds, route: Route) -> None:
    """Keep the stream silent until the caller has a thread of that id."""
    before = await look(place.alice, things)
    at, body = route.at(things.slots("langchain")), {"channels": ["values", "input", "lifecycle"]}
    start = command("run.start", {"assistant_id": "echo", "input": "Bob was here"})
    async with place.bob.stream("POST", at, json=body) as bobs, place.alice.stream("POST", at, json=body) as alices:
        assert (bobs.status_code, alices.status_code) == (200, 200)
        stream = events(alices)
        assert "a thread of alice" in "".join([await within(anext(stream), "an event") for _ in range(3)])
        started = await place.bob.post(f"/threads/{things.thread_id}/commands", json=start)
        assert started.json()["type"] == "success"
        received = await within(up_to_the_end(events(bobs)), "the end of Bob's run")
    assert "Bob was here" in "".join(received)
    assert not any("alice" in event or things.question in event or things.asking_run in event for event in received)
    assert await look(place.alice, things) == before


async def test_commands_find_no_question_or_checkpoint_of_another_owner(place: Place, things: OwnerIds) -> None:
    before = await look(place.alice, things)
    nothing, mine = unknown(), await make(place.bob)
    path = f"/threads/{mine.thread_id}/commands"
    replies: list[list[str]] = []
    for ids in (things, nothing):
        replies.append([])
        for body in (
            command("input.respond", {"interrupt_id": ids.question, "response": "Bob"}),
            command("state.listCheckpoints", {"before": ids.checkpoint_id}),
            command("state.fork", {"checkpoint_id": ids.checkpoint_id, "input": "Bob"}),
        ):
            reply = (await place.bob.post(path, json=body)).json()
            assert reply["error"] in ("no_such_interrupt", "no_such_checkpoint")
            replies[-1].append(ids.hidden(json.dumps(reply)))
    assert replies[0] == replies[1]
    assert await look(place.alice, things) == before


async def test_each_owner_has_an_item_of_the_same_name(place: Place, things: OwnerIds) -> None:
    before = await look(place.alice, things)
    item = {"namespace": [things.label, "notes"], "key": "k"}
    at = f"/store/items?key=k&namespace={things.label}.notes"
    assert (await place.bob.put("/store/items", json={**item, "value": {"of": "bob"}})).status_code == 204
    assert (await place.bob.get(at)).json()["value"] == {"of": "bob"}
    assert (await place.bob.request("DELETE", "/store/items", json=item)).status_code == 204
    assert (await place.bob.get(at)).json() is None
    assert await look(place.alice, things) == before


@pytest.mark.parametrize("prefix", ["", "/agent-protocol"])
async def test_cancelling_everything_cancels_only_runs_of_the_caller(
    place: Place, things: OwnerIds, prefix: str
) -> None:
    before = await look(place.alice, things)
    mine = await make(place.bob)
    assert (await place.bob.post(f"{prefix}/runs/cancel", json={"status": "all"})).status_code == 204
    run = (await place.bob.get(f"/threads/{mine.later_thread}/runs/{mine.later}")).json()
    assert run["status"] == "interrupted"
    assert await look(place.alice, things) == before


async def test_a_context_of_the_same_name_is_separate(place: Place, things: OwnerIds) -> None:
    """Try the caller's own context name, and the id of a thread."""
    for context_id in (things.context_id, things.session_id):
        body = {"message": message(contextId=context_id)}
        mine = await place.bob.post("/a2a/echo/message:send", json=body, headers=V1)
        assert mine.status_code == 200
        assert mine.json()["task"]["contextId"] == context_id
        task_id = mine.json()["task"]["id"]
        assert (await place.alice.get(f"/a2a/echo/tasks/{task_id}", headers=V1)).status_code == 404
        again = await place.bob.post("/a2a/echo/message:send", json=body, headers=V1)
        assert again.headers["babelgate-thread"] == mine.headers["babelgate-thread"]
        listed = (await place.bob.get(f"/a2a/echo/tasks?contextId={context_id}", headers=V1)).json()["tasks"]
        assert {task["id"] for task in listed} == {task_id, again.json()["task"]["id"]}
        files = (await place.alice.get(f"/a2a/files/tasks?contextId={things.context_id}", headers=V1)).json()
        assert files["totalSize"] == 1
        assert task_id not in await look(place.alice, things)


async def test_a_reference_to_another_owners_task_is_ignored(place: Place, things: OwnerIds) -> None:
    body = {"message": message(referenceTaskIds=[things.ended])}
    mine = await place.bob.post("/a2a/echo/message:send", json=body, headers=V1)
    assert mine.status_code == 200
    assert "secret of alice" not in mine.text


async def test_the_same_bytes_of_two_owners_are_two_files(place: Place) -> None:
    """Check that a blob stored once is reachable only through the things that name it."""
    content = b"the same bytes for both of them " + uuid4().bytes
    blob = sha256(content).hexdigest()
    part = {"raw": b64encode(content).decode(), "filename": "a.bin"}
    for client, other in ((place.alice, place.bob), (place.bob, None)):
        sent = await client.post("/a2a/files/message:send", json={"message": message(parts=[part])}, headers=V1)
        assert sent.status_code == 200
        assert (await client.get(f"/a2a/files/files/{blob}")).content == content
        assert (await client.get(f"/acp/resources/{blob}")).content == content
        if other is not None:
            assert (await other.get(f"/a2a/files/files/{blob}")).status_code == 404
            assert (await other.get(f"/acp/resources/{blob}")).status_code == 404


async def test_a_stream_excludes_another_owners_events(place: Place, things: OwnerIds) -> None:
    """Run both streams at the same time, on sessions of the same id."""

    async def stream(client: httpx.AsyncClient, text: str) -> str:
        run = acp_run("stream", text, session_id=things.session_id, mode="stream")
        return (await client.post("/acp/runs", json=run)).text

    await place.alice.post(f"/acp/runs/{things.task_id}/cancel")
    words = {"alice": "tick tack", "bob": "ping pong"}
    alice, bob = await asyncio.gather(stream(place.alice, words["alice"]), stream(place.bob, words["bob"]))
    assert "tick" in alice
    assert "ping" in bob
    assert not any(word in alice for word in words["bob"].split())
    assert not any(word in bob for word in words["alice"].split())


# Keys


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong-key-0123456789"},
        {"Authorization": f"Bearer {ALICE}x"},
        {"Authorization": f"Bearer {ALICE.upper()}"},
        {"Authorization": "Bearer"},
        {"Authorization": f"Basic {ALICE}"},
        {"Authorization": ALICE},
        {"Authorization": "Bearer wrong", "X-Api-Key": ALICE},
        {"X-Api-Key": ""},
        {"X-Api-Key": "alice"},
        {"Cookie": f"key={ALICE}"},
    ],
    ids=lambda headers: ", ".join(headers) or "none",
)
async def test_a_wrong_key_is_401(place: Place, headers: Mapping[str, str]) -> None:
    for path in ("/acp/agents", "/a2a/echo/tasks", STEPS, "/info", "/"):
        response = await place.nobody.get(path, headers={**V1, **headers})
        assert response.status_code == 401, (path, response.text)


@pytest.mark.parametrize("path", [path for path in paths() if not is_open(path)])
async def test_without_a_key_every_path_is_401(place: Place, path: str) -> None:
    slots = unknown().slots(protocol_of(path))
    for method in (*METHODS, "OPTIONS"):
        route = Route(method, path)
        response = await place.nobody.request(method, route.at(slots), json={})
        assert response.status_code == 401, (method, response.text)
        assert response.headers["www-authenticate"] == "Bearer"
        check_error(words_of(method, path), response)


@pytest.mark.parametrize(
    "path",
    [
        "/nope",
        "/acp/nope",
        "/a2a/echo/nope",
        "/ap/nope",
        "/threads/a/b",
        "/agent-protocol/nope",
        "/agent/echo/acp/agents",
        "/agent/nobody/acp",
        "/agent/nobody/ap/versions",
        "/agent/nobody/threads",
    ],
)
async def test_without_a_key_unknown_paths_are_401(place: Place, path: str) -> None:
    response = await place.nobody.get(path)
    assert response.status_code == 401
    check_error(words_of("GET", path), response)


@pytest.mark.parametrize("path", [path for path in paths() if is_open(path) and path not in {*PAGE_PATHS, CALLBACK}])
async def test_health_checks_and_public_cards_need_no_key(place: Place, path: str) -> None:
    for prefix in ("", "/agent/ask"):
        response = await place.nobody.get(prefix + Route("GET", path).at(unknown().slots(protocol_of(path))))
        assert response.status_code == 200, response.text


async def test_a_path_like_an_open_one_needs_a_key(place: Place) -> None:
    for path in (
        "/healthz/../acp/agents",
        "/acp/ping/../agents",
        "/acp/runs/%2Ehealthz",
        "/acp/resources/.well-known%2Fagent-card.json",
        "/runs/%2E%2E/ok",
        "/acp/runs?x=/healthz",
        "/a2a/echo/files/agent-card.json",
        "/ok/x",
        "/threads/ok",
        "/agent-protocol/ok",
        "/info?x=/ok",
    ):
        assert (await place.nobody.get(path)).status_code == 401, path


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": f"Bearer {ALICE}"},
        {"authorization": f"bearer {ALICE}"},
        {"Authorization": f"BEARER   {ALICE}"},
        {"X-Api-Key": ALICE},
        {"Authorization": "Basic d3Jvbmc6d3Jvbmc=", "X-Api-Key": ALICE},
    ],
    ids=str,
)
async def test_a_key_is_accepted_in_either_header(place: Place, things: OwnerIds, headers: Mapping[str, str]) -> None:
    response = await place.nobody.get(f"/acp/runs/{things.task_id}", headers=headers)
    assert response.status_code == 200


async def test_the_extended_card_needs_a_key(place: Place) -> None:
    card = (await place.nobody.get("/a2a/echo/.well-known/agent-card.json")).json()
    assert card["capabilities"]["extendedAgentCard"] is True
    assert card["supportsAuthenticatedExtendedCard"] is True
    assert (await place.nobody.get("/a2a/echo/extendedAgentCard", headers=V1)).status_code == 401
    assert (await place.bob.get("/a2a/echo/extendedAgentCard", headers=V1)).status_code == 200


async def test_secrets_of_a_push_config_are_returned_to_its_owner(place: Place, things: OwnerIds) -> None:
    """Return the secrets to the owner, as the specification requires."""
    path = f"/a2a/ask/tasks/{things.task_id}/pushNotificationConfigs/{things.config_id}"
    assert (await place.alice.get(path, headers=V1)).json()["token"] == TOKEN
    assert TOKEN not in (await place.bob.get(path, headers=V1)).text


async def test_secrets_are_in_no_answer_and_in_no_log(place: Place, things: OwnerIds) -> None:
    """Search all answers and log lines of this module, after a request with a key in each possible place."""
    await place.alice.get(f"/acp/agents/{ALICE}?key={ALICE}")
    await place.bob.post("/acp/runs", content=b"{" + BOB.encode())
    allowed = ("/pushNotificationConfigs", f'"{things.task_id}"')
    for text in place.responses:
        request, _, answer = text.partition(" → ")
        assert BOB not in answer
        if ALICE in request:
            continue  # a request for an agent of that name, answered with not found
        assert ALICE not in answer
        assert sha256(ALICE.encode()).hexdigest()[:8] not in answer, "the id of her key is for the operator"
        if not any(each in request for each in allowed) and "/a2a/ask " not in f"{request} ":
            assert TOKEN not in answer
            assert CREDENTIALS not in answer
    logged = place.log.of("babelgate.request")
    assert any(things.task_id in line and "owner=alice" in line for line in logged)
    for secret in SECRETS:
        assert secret not in "\n".join(line for line in logged if f"/acp/agents/{ALICE}" not in line)
    others = "\n".join(r.getMessage() for r in place.log.records if r.name not in ("babelgate.request", "httpx"))
    assert not any(secret in others for secret in SECRETS)
