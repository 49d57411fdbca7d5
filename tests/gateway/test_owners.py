"""What one owner made does not exist for another: not to read, list, stream, answer, cancel, delete, nor as a conflict.

Every position of an id, in every route and method, is given the ids of another owner's things, and the answer is
compared with the answer to ids that nobody ever had: but for the ids they are the same.
"""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, cast
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

from canonical import Answers, FaultError, Message, Record, Scope, Submission, TaskFilter, Webhook
from canonical.value import JsonObject
from gateway.hub import Hub
from tests.gateway.heard import Heard, hearing
from tests.gateway.hubs import check_invariants
from tests.gateway.route import AGENT_SLOT, METHODS, ROUTES, Route, paths, words_of
from tests.gateway.shape import check_error
from tests.gateway.valid import PUSH, RPC, V1, VALID, rpc
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALICE, BOB = "alice-0123456789-key", "bob-0123456789-key"
TOKEN, CREDENTIALS = "push-token-of-alice", "push-credentials-of-alice"
SECRETS: Final = (ALICE, BOB, TOKEN, CREDENTIALS)

OPEN: Final = {"/healthz", "/readyz", "/acp/ping"}
"""Answered without a key, and so are the public cards."""


def is_open(path: str) -> bool:
    return path in OPEN or path.endswith((".well-known/agent-card.json", ".well-known/agent.json"))


@dataclass
class Place:
    """A gateway with two owners, and everything that it has said and logged."""

    gateway: Running
    alice: httpx.AsyncClient
    bob: httpx.AsyncClient
    nobody: httpx.AsyncClient
    heard: Heard
    said: list[str] = field(default_factory=list[str])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Place]:
    said: list[str] = []

    async def keep(response: httpx.Response) -> None:
        text = (await response.aread()).decode("utf-8", "replace")
        said.append(f"{response.request.method} {response.request.url} → {response.headers} {text}")

    def client(url: str, key: str | None) -> httpx.AsyncClient:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return httpx.AsyncClient(base_url=url, headers=headers, event_hooks={"response": [keep]}, timeout=10)

    folder = tmp_path_factory.mktemp("owners")
    settings: dict[str, Any] = {"keys": {"alice": ALICE, "bob": BOB}, "limits": {"inline": 16}}
    with hearing() as heard:
        async with running(folder, **settings) as gateway:
            url = gateway.url
            async with client(url, ALICE) as alice, client(url, BOB) as bob, client(url, None) as nobody:
                yield Place(gateway, alice, bob, nobody, heard, said)
            await check_invariants(gateway.hub)
    assert heard.errors == []


@dataclass(frozen=True)
class Made:
    """Ids of an owner's things, or ids that nobody had. The task waits for an answer, `ended` does not."""

    task_id: str
    session_id: str
    ended: str
    run_id: str
    """Of the ended one, as the gateway itself counts."""
    resource_id: str
    blob: str
    context_id: str
    config_id: str = "p1"

    @property
    def slots(self) -> dict[str, str]:
        return {
            "agent": "ask",
            "name": "ask",
            "run_id": self.task_id,
            "task_id": self.task_id,
            "session_id": self.session_id,
            "resource_id": self.resource_id,
            "config_id": self.config_id,
            "blob": self.blob,
        }

    def hidden(self, text: str) -> str:
        """A text in which each id is its name."""
        for name in ("resource_id", "task_id", "session_id", "ended", "run_id", "blob", "context_id"):
            text = text.replace(getattr(self, name), f"<{name}>")
        return text


def unknown() -> Made:
    return Made(
        task_id=str(uuid4()),
        session_id=str(uuid4()),
        ended=str(uuid4()),
        run_id=str(uuid4()),
        resource_id=f"{uuid4()}.0",
        blob=sha256(uuid4().bytes).hexdigest(),
        context_id=f"context-{uuid4()}",
    )


def acp_run(agent: str, text: str, **fields: Any) -> JsonObject:
    return {"agent_name": agent, "input": [{"role": "user", "parts": [{"content": text}]}], **fields}


async def make(client: httpx.AsyncClient) -> Made:
    """One of everything."""
    asked = (await client.post("/acp/runs", json=acp_run("ask", "a question of alice"))).json()
    answer = await client.post("/acp/runs", json=acp_run("echo", "a secret of alice"))
    told = answer.json()
    history = (await client.get(f"/acp/sessions/{told['session_id']}")).json()["history"]
    config = {**PUSH, "token": TOKEN, "authentication": {"scheme": "Bearer", "credentials": CREDENTIALS}}
    push = await client.post(f"/a2a/ask/tasks/{asked['run_id']}/pushNotificationConfigs", json=config, headers=V1)
    assert push.status_code == 200, push.text
    context_id = f"context-{uuid4()}"
    content = b"a file of alice " + uuid4().bytes
    part = {"raw": b64encode(content).decode(), "filename": "a.bin", "mediaType": "application/octet-stream"}
    sent = await client.post(
        "/a2a/files/message:send",
        json={"message": {"messageId": "1", "role": "ROLE_USER", "parts": [part], "contextId": context_id}},
        headers=V1,
    )
    assert sent.status_code == 200, sent.text
    assert sha256(content).hexdigest() in sent.text, "the file is given by URL"
    return Made(
        task_id=asked["run_id"],
        session_id=asked["session_id"],
        ended=told["run_id"],
        run_id=answer.headers["babelgate-run"],
        resource_id=history[0].rpartition("/")[2],
        blob=sha256(content).hexdigest(),
        context_id=context_id,
    )


@pytest_asyncio.fixture(loop_scope="module")
async def made(place: Place) -> AsyncIterator[Made]:
    """Alice's things; whatever a test lets Bob do, they look the same afterwards."""
    made = await make(place.alice)
    before = await look(place.alice, made)
    assert made.task_id in before
    yield made


async def look(client: httpx.AsyncClient, made: Made) -> str:
    """Everything that can be seen of these things."""
    looks = [
        f"/acp/runs/{made.task_id}",
        f"/acp/runs/{made.task_id}/events",
        f"/acp/runs/{made.ended}",
        f"/acp/sessions/{made.session_id}",
        f"/acp/resources/{made.resource_id}",
        f"/a2a/ask/tasks/{made.task_id}",
        f"/a2a/ask/tasks/{made.task_id}/pushNotificationConfigs",
        f"/a2a/files/tasks?contextId={made.context_id}&includeArtifacts=true",
        f"/a2a/files/files/{made.blob}",
    ]
    answers = [await client.get(path, headers=V1) for path in looks]
    assert [answer.status_code for answer in answers] == [200] * len(looks), [answer.text for answer in answers]
    return "\n".join(answer.text for answer in answers)


# Positions of ids


@dataclass(frozen=True)
class Position:
    name: str
    ask: Callable[[Made], tuple[str, str, dict[str, Any]]]
    """(method, path, what else httpx takes) with these ids."""
    alike: bool = False
    """To whom they belong the answer is the same too: nothing there tells."""

    def __str__(self) -> str:
        return self.name


def _by_path() -> list[Position]:
    found: list[Position] = []
    for route in ROUTES:
        if not set(route.slots) - AGENT_SLOT:
            continue

        def ask(made: Made, route: Route = route) -> tuple[str, str, dict[str, Any]]:
            slots = made.slots
            if route.path.endswith(":subscribe"):  # of the owner's waiting task it would not end
                slots |= {"agent": "echo", "task_id": made.ended}
            if "blob" in route.slots:
                slots["agent"] = "files"
            kwargs: dict[str, Any] = {"headers": V1 if route.words == "rest" else {}}
            if str(route) in VALID:
                kwargs["json"] = VALID[str(route)]
            return route.method, route.at(slots), kwargs

        found.append(Position(str(route), ask))
    return found


def _by_method() -> list[Position]:
    found: list[Position] = []
    for each in RPC:
        if not {"$open", "$task"} & {v for v in each.valid.values() if isinstance(v, str)}:
            continue

        def ask(made: Made, name: str = each.name, valid: JsonObject = each.valid) -> tuple[str, str, dict[str, Any]]:
            ids = {"$open": made.task_id, "$task": made.ended}
            params: JsonObject = {k: ids.get(str(v), v) for k, v in valid.items()}
            agent = "echo" if "$task" in valid.values() else "ask"
            headers = {} if "/" in name else V1
            return "POST", f"/a2a/{agent}", {"json": rpc(name, params), "headers": headers}

        found.append(Position(each.name, ask))
    return found


def _message(**fields: Any) -> JsonObject:
    return {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "Bob"}], **fields}


def _send(**fields: str) -> Callable[[Made], tuple[str, str, dict[str, Any]]]:
    """A message with some of the ids in these members."""

    def ask(made: Made) -> tuple[str, str, dict[str, Any]]:
        ids = {name: getattr(made, value) for name, value in fields.items()}
        return "POST", "/a2a/ask/message:send", {"json": {"message": _message(**ids)}, "headers": V1}

    return ask


def _replay(made: Made) -> tuple[str, str, dict[str, Any]]:
    return "GET", f"/a2a/echo/tasks/{made.ended}:subscribe", {"headers": {**V1, "Babelgate-From": "0"}}


def _events(made: Made) -> tuple[str, str, dict[str, Any]]:
    return "GET", f"/acp/runs/{made.ended}/events", {"headers": {"Accept": "text/event-stream"}}


def _list(made: Made) -> tuple[str, str, dict[str, Any]]:
    return "GET", f"/a2a/files/tasks?contextId={made.context_id}", {"headers": V1}


def _list_thread(made: Made) -> tuple[str, str, dict[str, Any]]:
    return "GET", f"/a2a/ask/tasks?contextId={made.session_id}", {"headers": V1}


def _list_0_3(made: Made) -> tuple[str, str, dict[str, Any]]:
    return "GET", f"/a2a/files/v1/tasks?contextId={made.context_id}", {}


def _list_rpc(made: Made) -> tuple[str, str, dict[str, Any]]:
    return "POST", "/a2a/files", {"json": rpc("ListTasks", {"contextId": made.context_id}), "headers": V1}


def _import(host: str) -> Callable[[Made], tuple[str, str, dict[str, Any]]]:
    """A session descriptor that names one of the gateway's own resources."""

    def ask(made: Made) -> tuple[str, str, dict[str, Any]]:
        session = {
            "id": "0b5b3b0a-3a55-4a5e-9a4e-1f0e0a5ad001",
            "history": [f"{host}/acp/resources/{made.resource_id}"],
        }
        return "POST", "/acp/runs", {"json": acp_run("echo", "hi", session=session)}

    return ask


POSITIONS: Final = (
    *_by_path(),
    *_by_method(),
    Position("taskId of a message", _send(taskId="task_id")),
    Position("taskId and contextId of a message", _send(taskId="task_id", contextId="session_id")),
    Position("the replay of an ended task", _replay),
    Position("the stream of a run's events", _events),
    Position("contextId of a list", _list),
    Position("contextId of a list, a thread", _list_thread),
    Position("contextId of a list of 0.3", _list_0_3),
    Position("contextId of ListTasks", _list_rpc),
    Position("history of a session", _import("{url}")),
    # The gateway calls itself there, and it has no key.
    Position("history of a session, by another name of the host", _import("{localhost}"), alike=True),
)

_VARIES: Final = {"date", "content-length", "x-request-id"}


async def told(
    client: httpx.AsyncClient, position: Position, made: Made, url: str
) -> tuple[int, Mapping[str, str], str]:
    """The answer, but for the ids and what differs between any two answers."""
    method, path, kwargs = position.ask(made)
    body = json.dumps(kwargs.pop("json")) if "json" in kwargs else None
    if body is not None:
        body = body.replace("{url}", url).replace("{localhost}", url.replace("127.0.0.1", "localhost"))
    response = await client.request(method, path, content=body, **kwargs)
    headers = {name: made.hidden(value) for name, value in response.headers.items() if name not in _VARIES}
    return response.status_code, headers, made.hidden(response.text)


@pytest.mark.parametrize("position", POSITIONS, ids=str)
async def test_the_ids_of_another_owner_are_ids_of_nothing(place: Place, made: Made, position: Position) -> None:
    url, nothing = place.gateway.url, unknown()
    before = await look(place.alice, made)
    theirs = await told(place.bob, position, made, url)
    assert theirs == await told(place.bob, position, nothing, url)
    assert await look(place.alice, made) == before, "and nothing happened to them"
    if not position.alike:
        own = await told(place.alice, position, made, url)
        assert own != await told(place.alice, position, nothing, url), "the ids lead somewhere"


async def test_every_position_of_an_id_in_the_routes_is_compared() -> None:
    slots = {slot for route in ROUTES for slot in route.slots} - AGENT_SLOT
    assert slots <= set(unknown().slots)
    assert {str(route) for route in ROUTES if set(route.slots) - AGENT_SLOT} <= {each.name for each in POSITIONS}


# The same one floor below: an adapter that forgot to ask whose a task is would still be told of none.


async def _first(hub: Hub, owner: str, scope: Scope) -> object:
    async with aclosing(cast("AsyncGenerator[Sequence[Record]]", hub.read(owner, scope))) as reading:
        return await anext(reading)


def _hook(made: Made) -> Webhook:
    return Webhook(webhook_id="p2", task_id=made.task_id, dialect="a2a-1.0", url="http://127.0.0.1:9/")


def _input(**fields: Any) -> Submission:
    return Submission(agent="echo", messages=(Message.of("Bob"),), **fields)


CALLS: Final[Mapping[str, Callable[[Hub, str, Made], Awaitable[object]]]] = {
    "submit, following up": lambda hub, owner, made: hub.submit(owner, _input(follow_up=made.task_id)),
    "submit, continuing": lambda hub, owner, made: hub.submit(owner, _input(continues=made.ended)),
    "submit, to a thread": lambda hub, owner, made: hub.submit(
        owner, _input(thread_id=made.session_id, if_missing="reject")
    ),
    "answer": lambda hub, owner, made: hub.answer(owner, Answers(task_id=made.task_id, bare="Bob")),
    "cancel": lambda hub, owner, made: hub.cancel(owner, made.task_id),
    "delete_thread": lambda hub, owner, made: hub.delete_thread(owner, made.session_id),
    "remove_run": lambda hub, owner, made: hub.remove_run(owner, made.run_id),
    "task": lambda hub, owner, made: hub.task(owner, made.task_id),
    "run": lambda hub, owner, made: hub.run(owner, made.run_id),
    "thread": lambda hub, owner, made: hub.thread(owner, made.session_id),
    "thread_of": lambda hub, owner, made: hub.thread_of(owner, "a2a", "files", made.context_id),
    "open_interrupts": lambda hub, owner, made: hub.open_interrupts(owner, made.task_id),
    "tasks": lambda hub, owner, made: hub.tasks(owner, TaskFilter(thread_id=made.session_id), limit=10),
    "chain": lambda hub, owner, made: hub.chain(owner, made.task_id),
    "records": lambda hub, owner, made: hub.records(owner, Scope(made.session_id)),
    "records of a task": lambda hub, owner, made: hub.records(owner, Scope(made.session_id, "task", made.task_id)),
    "read": lambda hub, owner, made: _first(hub, owner, Scope(made.session_id)),
    "file": lambda hub, owner, made: hub.file(owner, made.blob),
    "set_webhook": lambda hub, owner, made: hub.set_webhook(owner, _hook(made)),
    "webhooks": lambda hub, owner, made: hub.webhooks(owner, made.task_id),
    "delete_webhook": lambda hub, owner, made: hub.delete_webhook(owner, made.task_id, made.config_id),
}


async def outcome(call: Callable[[Hub, str, Made], Awaitable[object]], hub: Hub, owner: str, made: Made) -> str:
    try:
        return made.hidden(f"gave {await call(hub, owner, made)!r}")
    except FaultError as error:
        return made.hidden(f"raised {error.fault!r}")


@pytest.mark.parametrize("name", list(CALLS))
async def test_the_hub_too_knows_nothing_of_another_owner_s_things(place: Place, made: Made, name: str) -> None:
    hub, nothing = place.gateway.hub, unknown()
    before = await look(place.alice, made)
    assert await outcome(CALLS[name], hub, "bob", made) == await outcome(CALLS[name], hub, "bob", nothing)
    assert await look(place.alice, made) == before
    own = await outcome(CALLS[name], hub, "alice", made)
    assert own != await outcome(CALLS[name], hub, "alice", nothing)


async def test_an_alias_is_told_to_its_owner_only(place: Place, made: Made) -> None:
    hub = place.gateway.hub
    thread_id = await hub.thread_of("alice", "a2a", "files", made.context_id)
    assert thread_id is not None
    assert await hub.aliases("alice", "a2a", [thread_id]) == {thread_id: made.context_id}
    assert await hub.aliases("bob", "a2a", [thread_id]) == {}


# Lists, conflicts, names


async def test_lists_hold_what_is_the_caller_s_own(place: Place, made: Made) -> None:
    mine = await place.bob.post("/a2a/ask/message:send", json={"message": _message()}, headers=V1)
    mine_id = mine.json()["task"]["id"]
    for page in (
        (await place.bob.get("/a2a/ask/tasks?pageSize=100", headers=V1)).json(),
        (await place.bob.get("/a2a/ask/v1/tasks?pageSize=100")).json(),
        (await place.bob.post("/a2a/ask", json=rpc("ListTasks", {"pageSize": 100}), headers=V1)).json()["result"],
    ):
        ids = {task["id"] for task in page["tasks"]}
        assert mine_id in ids
        assert made.task_id not in ids
        assert page["totalSize"] == len(ids) < 100
    alices = (await place.alice.get("/a2a/ask/tasks?pageSize=1", headers=V1)).json()
    assert alices["totalSize"] != page["totalSize"]


async def test_a_page_of_another_owner_s_list_is_not_continued(place: Place) -> None:
    for _ in range(2):
        await place.alice.post("/a2a/echo/message:send", json={"message": _message()}, headers=V1)
    token = (await place.alice.get("/a2a/echo/tasks?pageSize=1", headers=V1)).json()["nextPageToken"]
    assert token
    page = await place.bob.get(f"/a2a/echo/tasks?pageSize=100&pageToken={token}", headers=V1)
    alices = (await place.alice.get("/a2a/echo/tasks?pageSize=100", headers=V1)).json()["tasks"]
    assert not {task["id"] for task in page.json().get("tasks", [])} & {task["id"] for task in alices}


async def test_a_session_of_another_owner_is_no_conflict_and_not_joined(place: Place, made: Made) -> None:
    """Ids are unique per owner: under the same id Bob has a session of his own."""
    run = acp_run("echo", "Bob was here", session_id=made.session_id)
    mine = await place.bob.post("/acp/runs", json=run)
    assert (mine.status_code, mine.json()["status"]) == (200, "completed")
    assert mine.json()["session_id"] == made.session_id
    alices = (await place.alice.get(f"/acp/sessions/{made.session_id}")).json()["history"]
    bobs = (await place.bob.get(f"/acp/sessions/{made.session_id}")).json()["history"]
    assert len(bobs) == 2
    assert not set(bobs) & set(alices)
    assert "Bob was here" not in await look(place.alice, made)
    messages = [(await place.bob.get(url)).text for url in bobs]
    assert not any("alice" in message for message in messages)


async def test_a_context_of_the_same_name_is_another_one(place: Place, made: Made) -> None:
    """Of a name of the caller's own, and of the id of a thread."""
    for context_id in (made.context_id, made.session_id):
        body = {"message": _message(contextId=context_id)}
        mine = await place.bob.post("/a2a/echo/message:send", json=body, headers=V1)
        assert mine.status_code == 200
        assert mine.json()["task"]["contextId"] == context_id
        task_id = mine.json()["task"]["id"]
        assert (await place.alice.get(f"/a2a/echo/tasks/{task_id}", headers=V1)).status_code == 404
        again = await place.bob.post("/a2a/echo/message:send", json=body, headers=V1)
        assert again.headers["babelgate-thread"] == mine.headers["babelgate-thread"]
        listed = (await place.bob.get(f"/a2a/echo/tasks?contextId={context_id}", headers=V1)).json()["tasks"]
        assert {task["id"] for task in listed} == {task_id, again.json()["task"]["id"]}
        files = (await place.alice.get(f"/a2a/files/tasks?contextId={made.context_id}", headers=V1)).json()
        assert files["totalSize"] == 1
        assert task_id not in await look(place.alice, made)


async def test_a_reference_to_another_owner_s_task_brings_nothing(place: Place, made: Made) -> None:
    body = {"message": _message(referenceTaskIds=[made.ended])}
    mine = await place.bob.post("/a2a/echo/message:send", json=body, headers=V1)
    assert mine.status_code == 200
    assert "secret of alice" not in mine.text


async def test_the_same_bytes_of_two_owners_are_a_file_of_each(place: Place) -> None:
    """Blobs are kept once, and reached through the things that name them."""
    content = b"the same bytes for both of them " + uuid4().bytes
    blob = sha256(content).hexdigest()
    part = {"raw": b64encode(content).decode(), "filename": "a.bin"}
    for client, other in ((place.alice, place.bob), (place.bob, None)):
        sent = await client.post("/a2a/files/message:send", json={"message": _message(parts=[part])}, headers=V1)
        assert sent.status_code == 200
        assert (await client.get(f"/a2a/files/files/{blob}")).content == content
        assert (await client.get(f"/acp/resources/{blob}")).content == content
        if other is not None:
            assert (await other.get(f"/a2a/files/files/{blob}")).status_code == 404
            assert (await other.get(f"/acp/resources/{blob}")).status_code == 404


async def test_a_stream_of_one_owner_does_not_carry_the_other_s_events(place: Place, made: Made) -> None:
    """Both on sessions of the same id, at the same time."""

    async def stream(client: httpx.AsyncClient, text: str) -> str:
        run = acp_run("stream", text, session_id=made.session_id, mode="stream")
        return (await client.post("/acp/runs", json=run)).text

    await place.alice.post(f"/acp/runs/{made.task_id}/cancel")
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
    for path in ("/acp/agents", "/a2a/echo/tasks", "/"):
        response = await place.nobody.get(path, headers={**V1, **headers})
        assert response.status_code == 401, (path, response.text)


@pytest.mark.parametrize("path", [path for path in paths() if not is_open(path)])
async def test_without_a_key_every_path_is_401_in_its_protocol_s_words(place: Place, path: str) -> None:
    slots = unknown().slots
    for method in (*METHODS, "OPTIONS"):
        route = Route(method, path)
        response = await place.nobody.request(method, route.at(slots), json={})
        assert response.status_code == 401, (method, response.text)
        assert response.headers["www-authenticate"] == "Bearer"
        check_error(words_of(method, path), response)


@pytest.mark.parametrize(
    "path", ["/nope", "/acp/nope", "/a2a/echo/nope", "/agent/echo/acp/agents", "/agent/nobody/acp"]
)
async def test_without_a_key_nobody_learns_which_paths_there_are(place: Place, path: str) -> None:
    response = await place.nobody.get(path)
    assert response.status_code == 401
    check_error(words_of("GET", path), response)


@pytest.mark.parametrize("path", [path for path in paths() if is_open(path)])
async def test_health_checks_and_public_cards_need_no_key(place: Place, path: str) -> None:
    for prefix in ("", "/agent/ask"):
        response = await place.nobody.get(prefix + Route("GET", path).at(unknown().slots))
        assert response.status_code == 200, response.text


async def test_an_open_path_opens_nothing_beside_it(place: Place) -> None:
    for path in (
        "/healthz/../acp/agents",
        "/acp/ping/../agents",
        "/acp/runs/%2Ehealthz",
        "/acp/resources/.well-known%2Fagent-card.json",
        "/acp/runs?x=/healthz",
        "/a2a/echo/files/agent-card.json",
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
async def test_a_key_is_taken_from_either_header(place: Place, made: Made, headers: Mapping[str, str]) -> None:
    response = await place.nobody.get(f"/acp/runs/{made.task_id}", headers=headers)
    assert response.status_code == 200


async def test_the_extended_card_is_for_those_with_a_key(place: Place) -> None:
    card = (await place.nobody.get("/a2a/echo/.well-known/agent-card.json")).json()
    assert card["capabilities"]["extendedAgentCard"] is True
    assert card["supportsAuthenticatedExtendedCard"] is True
    assert (await place.nobody.get("/a2a/echo/extendedAgentCard", headers=V1)).status_code == 401
    assert (await place.bob.get("/a2a/echo/extendedAgentCard", headers=V1)).status_code == 200


async def test_a_push_config_s_secrets_are_told_to_its_owner_only(place: Place, made: Made) -> None:
    """To the owner the specification gives them back."""
    path = f"/a2a/ask/tasks/{made.task_id}/pushNotificationConfigs/{made.config_id}"
    assert (await place.alice.get(path, headers=V1)).json()["token"] == TOKEN
    assert TOKEN not in (await place.bob.get(path, headers=V1)).text


async def test_secrets_are_in_no_answer_and_in_no_log(place: Place, made: Made) -> None:
    """After everything above, and a question that went wrong with a key in each place where one could be put."""
    await place.alice.get(f"/acp/agents/{ALICE}?key={ALICE}")
    await place.bob.post("/acp/runs", content=b"{" + BOB.encode())
    own = ("/pushNotificationConfigs", f'"{made.task_id}"')
    for text in place.said:
        request, _, answer = text.partition(" → ")
        assert BOB not in answer
        if ALICE in request:
            continue  # it asked for an agent of that name, and is told that there is none
        assert ALICE not in answer
        if not any(each in request for each in own) and "/a2a/ask " not in f"{request} ":
            assert TOKEN not in answer
            assert CREDENTIALS not in answer
    logged = place.heard.of("babelgate.request")
    assert any(made.task_id in line and "owner=alice" in line for line in logged)
    for secret in SECRETS:
        assert secret not in "\n".join(line for line in logged if f"/acp/agents/{ALICE}" not in line)
    others = "\n".join(r.getMessage() for r in place.heard.records if r.name not in ("babelgate.request", "httpx"))
    assert not any(secret in others for secret in SECRETS)
