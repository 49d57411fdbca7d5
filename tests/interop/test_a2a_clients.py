"""The unmodified official A2A clients of both versions, over all bindings, against the gateway on real sockets."""

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.gateway import demo
from tests.adapters.a2a.receiver import Receiver, receiving
from tests.interop.driver import ClientError, OfficialClient, start_client
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

GATE: Final = asyncio.Event()
"""Gate at which agents of this module wait in the middle of their answers."""


async def gated(text: str) -> AsyncGenerator[str]:
    """Yield one word, and the next when the gate opens."""
    yield "first"
    await GATE.wait()
    yield " second"


AGENTS: Final[Mapping[str, object]] = {
    "echo": demo.echo,
    "stream": demo.stream,
    "ask": demo.ask,
    "approve": demo.approve,
    "files": demo.files,
    "json": demo.json,
    "fail": demo.fail,
    "gated": gated,
}


@dataclass(frozen=True, slots=True)
class Peer:
    """One official client over one binding, with helpers that read the answers of all clients alike."""

    name: str
    binding: str
    client: OfficialClient
    url: str
    compat: bool = False
    """True for the 1.0 client in its compatibility with 0.3."""

    @property
    def old(self) -> bool:
        return self.name == "a2a-0.3"

    @asynccontextmanager
    async def at(self, agent: str) -> AsyncGenerator["Peer"]:
        await self.client.call("use", base_url=f"{self.url}/a2a/{agent}")
        yield self

    async def sent(self, agent: str, text: str | None = None, call: str = "send", **more: Any) -> Any:
        async with self.at(agent):
            return (await self.client.call(call, text=text, **more))["task"]

    def part(self, **part: Any) -> Any:
        """Return a part in the client's JSON: text, data, or file=(name, media type, bytes)."""
        if "file" not in part:
            return {"kind": next(iter(part)), **part} if self.old else part
        name, media_type, content = part["file"]
        encoded = b64encode(content).decode()
        if self.old:
            return {"kind": "file", "file": {"bytes": encoded, "name": name, "mimeType": media_type}}
        return {"raw": encoded, "filename": name, "mediaType": media_type}

    def file(self, part: Any) -> tuple[str, bytes]:
        if self.old:
            return part["file"]["name"], b64decode(part["file"]["bytes"])
        return part.get("filename", ""), b64decode(part["raw"])


PEERS: Final = (
    ("a2a-1.0", "JSONRPC", "1.0"),
    ("a2a-1.0", "HTTP+JSON", "1.0"),
    ("a2a-grpc", "GRPC", "1.0"),
    ("a2a-1.0", "JSONRPC", "0.3"),
    ("a2a-1.0", "HTTP+JSON", "0.3"),
    ("a2a-0.3", "JSONRPC", "0.3"),
    ("a2a-0.3", "HTTP+JSON", "0.3"),
)


def state(task: Any) -> str:
    return task["status"]["state"].removeprefix("TASK_STATE_").lower().replace("-", "_")


def text_of(task: Any) -> str:
    return "".join(part.get("text", "") for artifact in task.get("artifacts", ()) for part in artifact["parts"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with running(tmp_path_factory.mktemp("gateway"), AGENTS, default_agent="echo", serves_grpc=True) as served:
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=PEERS, ids=lambda each: "-".join(each))
async def peer(request: pytest.FixtureRequest, gateway: Running) -> AsyncGenerator[Peer]:
    name, binding, version = request.param
    options = {"transport": binding, **({"version": version} if name != "a2a-0.3" else {})}
    async with start_client(name, base_url=f"{gateway.url}/a2a/echo", **options) as client:
        yield Peer(name, binding, client, gateway.url, compat=name == "a2a-1.0" and version == "0.3")


@pytest_asyncio.fixture(loop_scope="module")
async def receiver() -> AsyncGenerator[Receiver]:
    async with receiving() as receiver:
        yield receiver


@pytest.fixture(autouse=True)
def closed_gate() -> None:
    GATE.clear()


async def test_cards_are_resolved_at_the_agent_and_the_origin(peer: Peer, gateway: Running) -> None:
    async with peer.at("stream"):
        assert (await peer.client.call("card"))["name"] == "stream"
    await peer.client.call("use", base_url=gateway.url)
    assert (await peer.client.call("card"))["name"] == "echo"
    old = await peer.client.call("card", path="/.well-known/agent.json")
    assert old["name"] == "echo"


async def test_sending_a_message_returns_the_completed_task(peer: Peer) -> None:
    task = await peer.sent("echo", "Hello")
    assert (state(task), text_of(task)) == ("completed", "Hello")
    assert task["history"][0]["messageId"]


async def test_structured_output_arrives(peer: Peer) -> None:
    part = (await peer.sent("json", "two words"))["artifacts"][0]["parts"][0]
    assert part["data"] == {"text": "two words", "words": 2, "length": 9}


async def test_a_failure_arrives_with_its_reason(peer: Peer) -> None:
    task = await peer.sent("fail", "on purpose")
    assert (state(task), text_of(task)) == ("failed", "Failing.")
    assert "on purpose" in json.dumps(task["status"]["message"])


def token_of(event: Any) -> str | None:
    """Return the artifact text of an event of either client. Skip the last piece, which repeats the whole text."""
    update: dict[str, Any] = event.get("artifactUpdate") or event.get("update") or {}
    artifact: dict[str, Any] | None = update.get("artifact")
    if update.get("lastChunk") and not update.get("append"):
        return None
    return None if artifact is None else "".join(part.get("text", "") for part in artifact["parts"])


async def test_the_first_token_arrives_before_the_agent_continues(peer: Peer) -> None:
    async with peer.at("gated"), peer.client.stream("stream", text="x") as events:
        first = await anext(events)
        assert "task" in first
        while token_of(event := await anext(events)) is None:
            pass
        assert token_of(event) == "first"
        GATE.set()
        rest = [event async for event in events]
    assert "".join(token_of(event) or "" for event in rest) == " second"
    last = rest[-1].get("statusUpdate") or rest[-1]["update"]
    assert state(last) == "completed"
    task = await peer.client.call("get_task", id=first["task"]["id"])
    assert (state(task), text_of(task)) == ("completed", "first second")


async def test_unicode_line_separators_pass_in_streams(peer: Peer) -> None:
    text = "a\x0bb\x0cc\x1cd\x1de\x1ef\x85g\u2028h\u2029i"
    async with peer.at("echo"):
        events = await peer.client.call("stream", text=text)
    assert "".join(token_of(event) or "" for event in events) == text
    assert state(events[-1].get("statusUpdate") or events[-1]["update"]) == "completed"


async def test_conversations_continue_in_a_context_of_the_caller(peer: Peer) -> None:
    name = f"talk-{peer.name}-{peer.binding}-{peer.compat}"
    first = await peer.sent("echo", "one", context_id=name)
    second = await peer.sent("echo", "two", context_id=name)
    assert first["contextId"] == second["contextId"] == name
    assert first["id"] != second["id"]


async def test_a_question_is_answered_with_and_without_its_context(peer: Peer) -> None:
    for names_context in (True, False):
        paused = await peer.sent("ask", "x")
        assert state(paused) == "input_required"
        assert paused["status"]["message"]["parts"][0]["text"] == "What is your name?"
        named = {"context_id": paused["contextId"]} if names_context else {}
        done = await peer.sent("ask", "Ada", task_id=paused["id"], **named)
        assert (done["id"], done["contextId"]) == (paused["id"], paused["contextId"])
        assert (state(done), text_of(done)) == ("completed", "Hello, Ada.")


async def test_two_questions_are_answered_at_once_by_a_data_part(peer: Peer) -> None:
    paused = await peer.sent("approve", "x")
    questions = [part["data"] for part in paused["status"]["message"]["parts"] if "data" in part]
    assert [question["value"]["action"] for question in questions] == ["write", "send"]
    answers = [{"id": question["id"], "value": {"approved": True}} for question in questions]
    part = peer.part(data={"resume": answers})
    done = await peer.sent("approve", None, parts=[part], task_id=paused["id"])
    assert text_of(done) == "write: approved\nsend: approved\n"


async def test_files_are_sent_and_returned(peer: Peer) -> None:
    content = bytes(range(256))
    parts = [peer.part(file=("in.bin", "application/octet-stream", content)), peer.part(text="a note")]
    task = await peer.sent("files", None, parts=parts)
    found = [peer.file(artifact["parts"][0]) for artifact in task["artifacts"]]
    assert [data for _, data in found] == [content, b"a note"]
    assert found[1][0] == task["artifacts"][1]["name"] == "report.txt"


async def test_a_send_that_does_not_wait_answers_an_open_task(peer: Peer) -> None:
    task = await peer.sent("gated", "x", call="send_nowait")
    assert state(task) in ("submitted", "working")
    GATE.set()
    async with peer.client.stream("subscribe", id=task["id"]) as events:
        try:
            last = [event async for event in events][-1]
        except ClientError:  # the task ended before the subscription
            last = None
    if last is not None:
        assert state(last.get("statusUpdate") or last.get("update") or last["task"]) == "completed"
    assert text_of(await peer.client.call("get_task", id=task["id"])) == "first second"


async def test_a_disconnected_client_subscribes_again(peer: Peer) -> None:
    async with peer.at("gated"):
        async with peer.client.stream("stream", text="x") as events:
            task_id = (await anext(events))["task"]["id"]
            while token_of(await anext(events)) is None:
                pass
        async with peer.client.stream("subscribe", id=task_id) as events:
            first = await anext(events)
            assert text_of(first["task"]) == "first"
            GATE.set()
            rest = [event async for event in events]
    assert "".join(token_of(event) or "" for event in rest) == " second"


async def test_a_stream_is_replayed_from_its_start(peer: Peer) -> None:
    async with peer.at("stream"):
        events = await peer.client.call("stream", text="one two three")
        task_id = events[0]["task"]["id"]
        again = await peer.client.call("subscribe", id=task_id, headers={"Babelgate-From": "0"})
    assert [token_of(event) for event in again] == [token_of(event) for event in events]


async def test_a_task_is_cancelled(peer: Peer) -> None:
    async with peer.at("gated"), peer.client.stream("stream", text="x") as events:
        task_id = (await anext(events))["task"]["id"]
        while token_of(await anext(events)) is None:
            pass
        cancelled = await peer.client.call("cancel", id=task_id)
        assert state(cancelled) in ("canceled", "cancelled")
        last = [event async for event in events][-1]
    assert state(last.get("statusUpdate") or last["update"]) in ("canceled", "cancelled")


async def test_history_has_the_requested_length(peer: Peer) -> None:
    task = await peer.sent("echo", "Hello")
    async with peer.at("echo"):
        short = await peer.client.call("get_task", id=task["id"], history_length=1)
        assert len(short["history"]) == 1
        assert len((await peer.client.call("get_task", id=task["id"]))["history"]) == 2


async def test_tasks_are_listed_if_the_version_can(peer: Peer) -> None:
    if peer.old or peer.compat:
        pytest.skip("the types of 0.3 have no list (a2a.json 0.3.0, A2ARequest)")
    name = f"list-{peer.binding}"
    task_ids = [(await peer.sent("echo", str(n), context_id=name))["id"] for n in range(3)]
    page = await peer.client.call("list_tasks", contextId=name, pageSize=2)
    rest = await peer.client.call("list_tasks", contextId=name, pageSize=2, pageToken=page["nextPageToken"])
    assert [task["id"] for task in [*page["tasks"], *rest["tasks"]]] == task_ids[::-1]
    assert page["totalSize"] == 3


# Errors


async def refused(peer: Peer, name: str, **args: Any) -> ClientError:
    with pytest.raises(ClientError) as error:
        await peer.client.call(name, **args)
    return error.value


UNKNOWN: Final = "00000000-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    ("call", "args", "status", "code"),
    [
        ("get_task", {"id": UNKNOWN}, 404, -32001),
        ("cancel", {}, 409, -32002),
        ("send", {"text": "more"}, 422, -32004),
        ("stream", {"text": "x", "task_id": UNKNOWN}, 404, -32001),
        ("subscribe", {"id": UNKNOWN}, 400, -32001),
    ],
)
async def test_clients_raise_errors_with_the_expected_codes(
    peer: Peer, call: str, args: dict[str, Any], status: int, code: int
) -> None:
    """Check the code of each error.

    Over REST the 0.3 client keeps only the status. For a subscription it checks the media type of the response and not
    the status, and reads each event as one of a task, so an error event would break it.
    """
    done = {"cancel": "id", "send": "task_id"}.get(call)
    if done is not None:
        args = {**args, done: (await peer.sent("echo", "Hello"))["id"]}
    async with peer.at("echo"):
        error = await refused(peer, call, **args)
    if peer.old and peer.binding == "HTTP+JSON":
        assert error.data["status_code"] == status
    else:
        is_send_of_old = call == "send" and (peer.old or peer.compat)
        assert error.data["code"] == (-32602 if is_send_of_old else code)


# Push notifications


async def test_a_config_is_stored_and_pushed_in_its_version(peer: Peer, receiver: Receiver) -> None:
    paused = await peer.sent("ask", "x")
    config: dict[str, Any] = {"id": "p1", "url": receiver.url, "token": "t0k"}
    old = peer.old or peer.compat
    if peer.old:
        config |= {"task_id": paused["id"], "authentication": {"schemes": ["Bearer"], "credentials": "s3cret"}}
    else:
        config |= {"taskId": paused["id"], "authentication": {"scheme": "Bearer", "credentials": "s3cret"}}
    stored = await peer.client.call("push_set", **config)
    assert stored == await peer.client.call("push_get", task_id=paused["id"], id="p1")
    assert receiver.url in json.dumps(stored)
    await peer.sent("ask", "Ada", task_id=paused["id"])
    found = await receiver.until("completed" if old else "TASK_STATE_COMPLETED")
    assert {each.headers["x-a2a-notification-token"] for each in found} == {"t0k"}
    assert {each.headers["authorization"] for each in found} == {"Bearer s3cret"}
    if old:
        assert {each.body["kind"] for each in found} == {"task"}
        assert text_of(found[-1].body) == "Hello, Ada."
    else:
        assert {key for each in found for key in each.body} == {"statusUpdate", "artifactUpdate"}


async def test_configs_are_listed_and_deleted_if_the_client_can(peer: Peer, receiver: Receiver) -> None:
    if peer.old or peer.compat:
        pytest.skip("the official client of 0.3 has no call for it")
    paused = await peer.sent("ask", "x")
    await peer.client.call("push_set", taskId=paused["id"], id="p1", url=receiver.url)
    await peer.client.call("push_set", taskId=paused["id"], id="p2", url=receiver.url)
    listed = await peer.client.call("push_list", task_id=paused["id"])
    assert [each["id"] for each in listed["configs"]] == ["p1", "p2"]
    await peer.client.call("push_delete", task_id=paused["id"], id="p1")
    listed = await peer.client.call("push_list", task_id=paused["id"])
    assert [each["id"] for each in listed["configs"]] == ["p2"]


async def test_an_inline_config_is_pushed_from_the_first_event(peer: Peer, receiver: Receiver) -> None:
    old = peer.old or peer.compat
    if peer.old and peer.binding == "HTTP+JSON":
        pytest.skip(
            "the 0.3 client itself fails on an inline config over REST: 'dict' has no attribute 'authentication'"
        )
    name = "pushNotificationConfig" if peer.old else "taskPushNotificationConfig"
    configuration = {name: {"url": receiver.url, "token": "t0k"}}
    task = await peer.sent("echo", "Hello", configuration=configuration)
    found = await receiver.until("completed" if old else "TASK_STATE_COMPLETED")
    assert (found[0].body["id"] if old else found[0].body["task"]["id"]) == task["id"]


# Keys


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def keyed(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    folder = tmp_path_factory.mktemp("keyed")
    keys = {"alice": "alice-key", "bob": "bob-key"}
    async with running(folder, AGENTS, default_agent="echo", keys=keys, serves_grpc=True) as served:
        yield served


async def test_the_extended_card_requires_a_key(peer: Peer, keyed: Running) -> None:
    await peer.client.call("use", base_url=f"{keyed.url}/a2a/echo")
    card = await peer.client.call("card")
    assert card["name"] == "echo"
    with pytest.raises(ClientError):
        await peer.client.call("extended_card")
    extended = await peer.client.call("extended_card", headers={"Authorization": "Bearer alice-key"})
    assert extended["name"] == "echo"


async def test_a_key_is_required_and_grants_only_its_tasks(peer: Peer, keyed: Running) -> None:
    await peer.client.call("use", base_url=f"{keyed.url}/a2a/echo")
    error = await refused(peer, "send", text="x")
    assert any(text in str(error) for text in ("401", "UNAUTHENTICATED")) or error.data
    sent = await peer.client.call("send", text="x", headers={"X-Api-Key": "alice-key"})
    task_id = sent["task"]["id"]
    await refused(peer, "subscribe", id=task_id, headers={"X-Api-Key": "bob-key", "Babelgate-From": "0"})
    again = await peer.client.call("subscribe", id=task_id, headers={"X-Api-Key": "alice-key", "Babelgate-From": "0"})
    assert again[0]["task"]["id"] == task_id
