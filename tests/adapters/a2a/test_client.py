"""Client of another A2A server: the requests that it sends, and the events that it reads."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import httpx
import pytest

from babelgate.adapters.a2a import client as client_module
from babelgate.adapters.a2a.client import Client
from babelgate.adapters.a2a.client.http import HttpClient
from babelgate.adapters.kit.client import driver
from babelgate.adapters.kit.server.sse import frame
from babelgate.canonical import DataPart, Event, FaultCode, FilePart, Invocation, Message, Record, TextPart
from babelgate.canonical.event import (
    InterruptAnswered,
    InterruptRaised,
    LossNoted,
    MessageStarted,
    PartAdded,
    RunEnded,
    UpstreamBound,
)
from babelgate.canonical.message import ReasoningPart
from babelgate.canonical.replay import ReplayCursor
from tests.adapters.a2a.far import CONTEXT, TASK, Body, Far, card_0_3, card_1_0, far_server
from tests.adapters.a2a.replies import DONE, artifact, status, task, text
from tests.driving import BOUND, all_of, fault_of, streamed_text, until_first_token
from tests.submissions import make

CARD = "GET /.well-known/agent-card.json"
STREAM = "SendStreamingMessage"
RUN = "22222222-2222-4222-8222-222222222222"
IDS = {"task": TASK, "context": CONTEXT}

WORKING: dict[str, Any] = task()["task"]


def piece(words: str, *, append: bool = True, last: bool = False) -> dict[str, Any]:
    return artifact(text(words), append=append, lastChunk=last)


def whole(words: str, state: str = "TASK_STATE_COMPLETED") -> dict[str, Any]:
    artifacts = [{"artifactId": "a", "parts": [{"text": words}]}]
    return {**WORKING, "status": {"state": state}, "artifacts": artifacts}


QUESTION = {"messageId": "q", "role": "ROLE_AGENT", "parts": [{"text": "Name?"}]}
ASKED = status("TASK_STATE_INPUT_REQUIRED", status={"message": QUESTION, "timestamp": "T1"})
PLAIN: list[Any] = [{"task": WORKING}, piece("a", append=False), piece("b", last=True), DONE]
STARTED = PLAIN[:2]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "FIRST_WAIT", 0.0)
    monkeypatch.setattr(client_module, "LAST_WAIT", 0.0)
    monkeypatch.setattr(client_module, "DRAIN", 0.01)


@pytest.fixture
async def far() -> AsyncGenerator[Far]:
    async with far_server() as server:
        server.set(CARD, card_1_0(server.url))
        server.set(STREAM, PLAIN)
        server.set("CancelTask", WORKING)
        yield server


@pytest.fixture
async def agent(far: Far) -> AsyncGenerator[Client]:
    client = Client(far.url, "far", headers={"Authorization": "Bearer secret"})
    yield client
    await client.aclose()


def make_call(**fields: Any) -> Invocation:
    fields.setdefault("messages", (Message.of("Hello", "user").replace(message_id="1"),))
    return make(Invocation, agent="near", thread_id="t", task_id="k", run_id=RUN, **fields)


def log_of(events: Sequence[Event], run_id: str = RUN) -> list[Record]:
    return [Record(seq, seq, "k", run_id, 1, event) for seq, event in enumerate(events, start=1)]


async def text_from(agent: Client, call: Invocation | None = None) -> str:
    return streamed_text(await all_of(agent.run(call or make_call())))


async def code_from(agent: Client, call: Invocation | None = None) -> FaultCode:
    return (await fault_of(agent.run(call or make_call())))[0]


# A task


async def test_a_task_is_streamed_and_bound_to_its_ids(far: Far, agent: Client) -> None:
    events = await all_of(agent.run(make_call()))
    assert events[0] == UpstreamBound(protocol="a2a", ids=IDS)
    assert streamed_text(events) == "ab"
    assert far.calls() == [STREAM]


async def test_request_has_the_version_and_only_configured_headers(far: Far, agent: Client) -> None:
    await all_of(agent.run(make_call(metadata={"trip": 7}, config={"accepted_output_modes": ["text/plain"]})))
    _, headers, params = far.requests[-1]
    assert headers["a2a-version"] == "1.0"
    assert headers["accept"].startswith("text/event-stream")
    assert headers["content-type"] == "application/json"
    assert headers["authorization"] == "Bearer secret"
    assert params == {
        "message": {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "Hello"}]},
        "configuration": {"acceptedOutputModes": ["text/plain"]},
        "metadata": {"trip": 7},
    }


async def test_the_card_is_read_once(far: Far, agent: Client) -> None:
    for _ in range(2):
        await all_of(agent.run(make_call()))
    assert [name for name, _, _ in far.requests].count("GET /.well-known/agent-card.json") == 1


async def test_transcript_is_sent_only_without_a_context(far: Far, agent: Client) -> None:
    history = (Message.of("Hi", "user"), Message.of("Hello, Ada."))
    await all_of(agent.run(make_call(history=history)))
    parts = far.body(STREAM)["message"]["parts"]
    assert parts[1] == {"text": "Hello"}
    joined = "".join(part["text"] for part in parts)  # as servers read it
    assert joined == "Said before in this conversation:\nuser: Hi\nagent: Hello, Ada.\n\nSaid now:\nHello"


BEFORE = (Message.of("before", "user"),)
IMAGE = FilePart(name="a.png", media_type="image/png", inline=b"\0\1")
PICTURE = (Message(role="user", parts=(IMAGE,)),)
OWN = {"messageId": "own", "referenceTaskIds": ["elsewhere"], "extensions": ["urn:x"], "mood": "x"}
SEVERAL = (
    Message.of("One.", "system"),
    Message(role="user", parts=(TextPart(text="Two."), IMAGE), metadata={"m": 1}, extra={"a2a": OWN}),
)
THOUGHT = (Message(role="user", message_id="1", parts=(ReasoningPart(text="hm"), TextPart(text="Hi"))),)
YES = (Message.of("yes", "user").replace(message_id="2"),)
ASKED_TWICE = [InterruptRaised(interrupt_id=f"ours {name}", extra={"a2a": {"id": name}}) for name in "12"]
DECLINED = (InterruptAnswered(interrupt_id="i", action="decline"),)


def answering(*past: Event, value: Any = "Ada", **fields: Any) -> Invocation:
    """Return a call that answers the questions in `past`, the events of an earlier run."""

    async def records() -> Sequence[Record]:
        return log_of(past, "before")

    raised = [event for event in past if isinstance(event, InterruptRaised)]
    answers = tuple(InterruptAnswered(interrupt_id=each.interrupt_id or "i", value=value) for each in raised)
    fields.setdefault("messages", (Message.of(str(value), "user").replace(message_id="2"),))
    return make_call(cause="answer", answers=answers, upstream=IDS, past=records, **fields)


def message(*parts: Any, **more: Any) -> dict[str, Any]:
    return {"role": "ROLE_USER", "parts": list(parts or [{"text": "Hello"}]), **more}


SAME = {"taskId": TASK, "contextId": CONTEXT}
RESUME = {"resume": [{"id": "1", "value": "Ada"}, {"id": "2", "value": "Ada"}]}
SENT_IMAGE = {"raw": "AAE=", "filename": "a.png", "mediaType": "image/png"}
SENT_SEVERAL = message(
    {"text": "One."}, {"text": "Two."}, SENT_IMAGE, metadata={"m": 1}, extensions=["urn:x"], mood="x"
)


SENT: list[tuple[Invocation, dict[str, Any], str]] = [
    (make_call(upstream={"context": CONTEXT}, history=BEFORE), message(contextId=CONTEXT), ""),
    # The next input of a task starts a new task.
    (make_call(cause="follow_up", upstream=IDS), message(contextId=CONTEXT, referenceTaskIds=[TASK]), ""),
    # A history without text is not a transcript.
    (make_call(history=PICTURE), message(), ""),
    (make_call(messages=SEVERAL), SENT_SEVERAL, ""),
    (make_call(messages=(), data={"message": "Hi"}), message({"text": "Hi"}), ""),
    (make_call(messages=(), data={"a": 1, "b": None}), message({"data": {"a": 1, "b": None}}), ""),
    (make_call(messages=(), data=[1]), message({"data": [1]}), ""),
    (make_call(messages=(), data={}), message({"text": ""}), ""),
    (make_call(messages=THOUGHT), message({"text": "Hi"}), "reasoning"),
    # A value that is data is sent as data, even if the caller's message is text.
    (answering(InterruptRaised(), value={"n": 1}, messages=YES), message({"data": {"n": 1}}, **SAME), ""),
    (answering(*ASKED_TWICE), message({"data": RESUME}, **SAME), ""),
    (make_call(answers=DECLINED, messages=(), upstream=IDS), message({"data": None}, **SAME), "question"),
]


@pytest.mark.parametrize(("call", "expected", "lost"), SENT)
async def test_invocation_is_one_message(far: Far, agent: Client, call: Invocation, expected: Any, lost: str) -> None:
    events = await all_of(agent.run(call))
    sent = far.body(STREAM)["message"]
    assert (sent.pop("messageId") == "own") == ("mood" in expected)
    assert sent == expected
    assert "".join(event.feature for event in events if isinstance(event, LossNoted)) == lost


async def test_message_may_be_an_answer_without_a_task(far: Far, agent: Client) -> None:
    reply: dict[str, Any] = {"messageId": "m", "role": "ROLE_AGENT", "contextId": CONTEXT, "parts": [{"text": "Hi"}]}
    far.set(STREAM, [{"message": reply}])
    events = await all_of(agent.run(make_call()))
    assert (events[0], streamed_text(events)) == (UpstreamBound(protocol="a2a", ids={"context": CONTEXT}), "Hi")
    assert far.calls() == [STREAM]


async def test_events_after_the_end_are_ignored(far: Far, agent: Client) -> None:
    far.set(STREAM, [*PLAIN, b"data: {garbage\n\n", {"task": WORKING}])
    far.holds = True
    assert await text_from(agent) == "ab"
    assert not far.on("CancelTask").is_set()


async def test_comments_and_multiline_events_are_read(far: Far, agent: Client) -> None:
    pretty = b'data: {"jsonrpc": "2.0", "id": 1,\r\ndata:  "result": {"task":\r\ndata: {"id": "t"}}}\r\n\r\n'
    far.set(STREAM, [b": ping\n\n", pretty, b"data: [DONE]\n\n", *PLAIN[1:]])
    assert await text_from(agent) == "ab"


# Without a stream


async def test_json_response_to_a_streaming_method_is_followed(far: Far, agent: Client) -> None:
    far.set(STREAM, {"task": whole("a", "TASK_STATE_WORKING")})
    far.set("GetTask", whole("ab"))
    assert await text_from(agent) == "ab"


async def test_task_is_polled_until_it_stops_without_streaming(far: Far, agent: Client) -> None:
    far.set(CARD, card_1_0(far.url, capabilities={}))
    far.set("SendMessage", {"task": {**WORKING, "status": {"state": "TASK_STATE_SUBMITTED"}}})
    far.set("GetTask", WORKING, whole("a", "TASK_STATE_WORKING"), whole("ab", "TASK_STATE_WORKING"), whole("ab"))
    events = await all_of(agent.run(make_call()))
    assert streamed_text(events) == "ab"
    assert [type(event) for event in events].count(MessageStarted) == 1
    assert far.calls() == ["SendMessage", "GetTask", "GetTask", "GetTask", "GetTask"]
    assert far.body("SendMessage")["configuration"] == {"returnImmediately": True}
    assert far.body("GetTask") == {"id": TASK}


async def test_server_without_streams_is_called_without_them_afterwards(far: Far, agent: Client) -> None:
    far.fail(STREAM, -32004, "No streams")
    far.set("SendMessage", {"task": whole("ab")})
    for _ in range(2):
        assert await text_from(agent) == "ab"
    assert far.calls() == [STREAM, "SendMessage", "SendMessage"]


# Versions and bindings


OLD: list[Any] = [
    {"kind": "task", "id": TASK, "contextId": CONTEXT, "status": {"state": "working"}},
    {
        "kind": "artifact-update",
        "taskId": TASK,
        "contextId": CONTEXT,
        "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": "ab"}]},
    },
    {
        "kind": "status-update",
        "taskId": TASK,
        "contextId": CONTEXT,
        "status": {"state": "completed"},
        "final": True,
    },
]


async def test_card_of_0_3_selects_version_0_3(far: Far, agent: Client) -> None:
    far.set(CARD, card_0_3(far.url + "/"))
    far.set("message/stream", OLD)
    data = Message(role="user", message_id="1", parts=(DataPart(data=7),))
    assert streamed_text(await all_of(agent.run(make_call(messages=(data,))))) == "ab"
    _, headers, params = far.requests[-1]
    assert "a2a-version" not in headers
    compat: dict[str, Any] = {"kind": "data", "data": {"value": 7}, "metadata": {"data_part_compat": True}}
    assert params == {"message": {"kind": "message", "messageId": "1", "role": "user", "parts": [compat]}}


async def test_langgraph_card_of_1_0_selects_version_0_3(far: Far, agent: Client) -> None:
    far.set(CARD, card_1_0(far.url, url=far.url))
    far.set("message/stream", [OLD[0]])
    far.set("tasks/resubscribe")
    far.set("tasks/get", {**OLD[0], "status": {"state": "completed"}})
    await all_of(agent.run(make_call()))
    # langgraph-api requires the context of every task, too.
    assert far.body("tasks/get") == {"id": TASK, "contextId": CONTEXT}


@pytest.mark.parametrize("code", [-32601, -32009])
async def test_unknown_method_or_version_selects_0_3(far: Far, agent: Client, code: int) -> None:
    far.fail(STREAM, code, "What?")
    far.set("message/stream", OLD)
    for _ in range(2):
        assert await text_from(agent) == "ab"
    assert far.calls() == [STREAM, "message/stream", "message/stream"]


async def test_url_is_the_endpoint_without_a_card(far: Far) -> None:
    agent = Client(far.url + "/some/agent")
    assert await text_from(agent) == "ab"
    await agent.aclose()
    assert [name for name, _, _ in far.requests[:4]] == [
        "GET /some/agent/.well-known/agent-card.json",
        "GET /some/agent/.well-known/agent.json",
        "GET /.well-known/agent-card.json",
        STREAM,
    ]


async def test_task_is_run_by_rest_of_1_0(far: Far, agent: Client) -> None:
    far.set(CARD, card_1_0(far.url + "/a/", "GRPC", "HTTP+JSON"))
    far.set("POST /a/message:stream", STARTED)
    far.set("GET /a/tasks/t", whole("ab"))
    assert await text_from(agent) == "ab"
    assert far.body("POST /a/message:stream")["message"]["parts"] == [{"text": "Hello"}]


async def test_rest_of_0_3_is_below_v1_and_wraps_data(far: Far, agent: Client) -> None:
    far.set(CARD, card_0_3(far.url, "HTTP+JSON"))
    data: dict[str, Any] = {"artifactId": "a", "parts": [{"data": {"data": {"n": 1}}}]}
    done = {**WORKING, "status": {"state": "TASK_STATE_COMPLETED"}, "artifacts": [data]}
    far.set("POST /v1/message:stream", [{"task": WORKING}])
    far.set("GET /v1/tasks/t", done)
    events = await all_of(agent.run(make_call()))
    assert [event.part for event in events if isinstance(event, PartAdded)] == [DataPart(data={"n": 1})]
    assert far.body("POST /v1/message:stream")["message"]["content"] == [{"text": "Hello"}]


async def test_tenant_of_the_card_is_sent(far: Far, agent: Client) -> None:
    card = card_1_0(far.url)
    card["supportedInterfaces"][0]["tenant"] = "blue"
    far.set(CARD, card)
    await all_of(agent.run(make_call()))
    assert far.body(STREAM)["tenant"] == "blue"


# Broken streams


async def test_broken_stream_is_resumed_without_repeated_events(far: Far, agent: Client) -> None:
    far.set(STREAM, STARTED)
    far.cuts = True
    far.set("GetTask", whole("a", "TASK_STATE_WORKING"))
    far.set("SubscribeToTask", [{"task": whole("ab", "TASK_STATE_WORKING")}, piece("c"), DONE])
    events = await all_of(agent.run(make_call()))
    assert streamed_text(events) == "abc"
    assert [type(event) for event in events].count(MessageStarted) == 1
    assert far.calls() == [STREAM, "GetTask", "SubscribeToTask"]


async def test_task_is_polled_if_the_subscription_omits_it(far: Far, agent: Client) -> None:
    far.set(STREAM, STARTED)
    far.set("GetTask", whole("a", "TASK_STATE_WORKING"), whole("abc", "TASK_STATE_WORKING"), whole("abcd"))
    far.set("SubscribeToTask", [piece("c")])
    assert await text_from(agent) == "abcd"


async def test_task_without_a_subscription_is_polled(far: Far, agent: Client) -> None:
    far.set(STREAM, STARTED)
    far.fail("SubscribeToTask", -32004, "It has ended")
    far.set("GetTask", WORKING, whole("ab"))
    assert await text_from(agent) == "ab"


async def test_an_invalid_reply_of_a_subscription_is_a_failure(far: Far, agent: Client) -> None:
    far.set(STREAM, STARTED)
    far.set("GetTask", WORKING, whole("ab"))
    far.set("SubscribeToTask", [{"task": WORKING}, {"statusUpdate": {"status": {"state": 7}}}])
    assert await code_from(agent) is FaultCode.AGENT_INVALID


async def test_unknown_task_after_a_break_is_a_failure(far: Far, agent: Client) -> None:
    far.set(STREAM, STARTED)
    far.fail("GetTask", -32001, "Task not found")
    assert await fault_of(agent.run(make_call())) == (
        FaultCode.AGENT_FAILED,
        "The agent's server answered -32001: Task not found",
    )


async def test_poll_without_a_response_is_a_timeout(far: Far, agent: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "POLL_TIMEOUT", 0.05)
    far.set(STREAM, STARTED)
    far.set("GetTask", [])
    original = far._answer  # pyright: ignore[reportPrivateUsage]

    async def never(status: int, answer: Body, *rest: Any) -> None:
        if answer == []:
            await rest[1]()
            return
        await original(status, answer, *rest)

    monkeypatch.setattr(far, "_answer", never)
    assert await code_from(agent) is FaultCode.AGENT_TIMEOUT


async def test_end_of_a_task_is_noticed_on_a_silent_stream(
    far: Far, agent: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "SILENCE", 0.01)
    far.set(STREAM, STARTED)
    far.holds = True
    far.set("GetTask", whole("ab", "TASK_STATE_WORKING"), whole("abc"))
    assert await text_from(agent) == "abc"
    assert far.calls() == [STREAM, "GetTask", "GetTask"]


async def test_a_silent_dead_server_is_unreachable(far: Far, agent: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "SILENCE", 0.01)
    far.set(STREAM, STARTED)
    far.holds = True
    far.set("GetTask", b"", status=503)
    assert await code_from(agent) is FaultCode.AGENT_UNREACHABLE


# Questions and answers


async def test_answer_goes_to_the_task_and_context_of_its_question(far: Far, agent: Client) -> None:
    far.set(STREAM, [{"task": WORKING}, ASKED])
    first_events = await all_of(agent.run(make_call()))
    assert isinstance(first_events[-1], InterruptRaised)
    assert first_events[-1].message.text == "Name?"
    # Servers show the question until their agent sends its next output.
    stale = {**WORKING, "status": {"state": "TASK_STATE_INPUT_REQUIRED", "message": QUESTION}}
    far.set(STREAM, [{"task": stale}, *PLAIN[1:]])
    events = await all_of(agent.run(answering(*first_events)))
    assert events[0] == UpstreamBound(protocol="a2a", ids=IDS)
    assert streamed_text(events) == "ab"
    message = far.body(STREAM)["message"]
    assert (message["taskId"], message["contextId"], message["parts"]) == (TASK, CONTEXT, [{"text": "Ada"}])
    assert not far.on("CancelTask").is_set()


async def test_retried_answer_after_a_crash_repeats_recorded_events(far: Far, agent: Client) -> None:
    question = InterruptRaised(interrupt_id="i", extra={"a2a": {"messageId": "q"}})
    recorded = await all_of(agent.run(answering(question)))
    again = answering(question, attempt=2)

    async def records() -> Sequence[Record]:
        return [*log_of([question], "before"), *log_of(recorded)]

    assert await all_of(agent.run(replace(again, past=records))) == recorded


async def test_answer_without_a_task_id_is_a_fault(far: Far, agent: Client) -> None:
    lost = make_call(answers=(InterruptAnswered(interrupt_id="i", value="Ada"),))
    assert await code_from(agent, lost) is FaultCode.AGENT_INVALID
    assert far.calls() == []


async def test_answer_that_fails_without_a_message_is_retried_once(far: Far, agent: Client) -> None:
    far.set(STREAM, {"error": {"code": -32603, "message": ""}}, PLAIN)
    assert await text_from(agent, answering(InterruptRaised())) == "ab"
    far.fail(STREAM, -32603, "")
    assert await code_from(agent, answering(InterruptRaised())) is FaultCode.AGENT_FAILED
    assert far.calls().count(STREAM) == 4


async def test_task_that_continued_without_the_answer_is_followed(far: Far, agent: Client) -> None:
    far.fail(STREAM, -32602, "The task has ended")
    far.set("GetTask", whole("ab"))
    assert await text_from(agent, answering(InterruptRaised())) == "ab"


async def test_answer_rejected_by_a_waiting_task_is_a_fault(far: Far, agent: Client) -> None:
    far.fail(STREAM, -32602, "Not like that")
    question = InterruptRaised(extra={"a2a": {"messageId": "q"}})
    far.set("GetTask", {**WORKING, "status": {"state": "TASK_STATE_INPUT_REQUIRED", "message": QUESTION}})
    _, words = await fault_of(agent.run(answering(question)))
    assert words == "The agent's server answered -32602: Not like that"


# Re-attaching


def attached(past: Sequence[Event]) -> Invocation:
    async def records() -> Sequence[Record]:
        return log_of(past)

    return make_call(upstream=IDS, past=records, attempt=2)


async def test_reattached_run_repeats_the_log_and_continues(far: Far, agent: Client) -> None:
    first = await all_of(agent.run(make_call()))
    far.set("GetTask", whole("abc"))
    for count in range(1, len(first) - 1):
        before = first[:count]
        past = ReplayCursor(before, closed=False)
        new = [each for event in await all_of(agent.reattach(attached(before))) for each in past.new_events(event)]
        assert streamed_text([*before, *new]) == "abc", count
    assert far.calls().count(STREAM) == 1


async def test_reattached_run_with_a_question_has_no_new_events(far: Far, agent: Client) -> None:
    far.set(STREAM, [{"task": WORKING}, ASKED])
    first = await all_of(agent.run(make_call()))
    assert await all_of(agent.reattach(attached(first))) == first
    assert far.calls() == [STREAM]


async def test_reattach_without_a_task_id_is_a_fault(agent: Client) -> None:
    assert (await fault_of(agent.reattach(make_call())))[0] is FaultCode.AGENT_INVALID


# Cancel


async def test_reattached_run_can_be_cancelled(far: Far, agent: Client) -> None:
    async with aclosing(agent.reattach(attached([UpstreamBound(protocol="a2a", ids=IDS)]))) as events:
        await anext(events)
    assert far.calls() == ["CancelTask"]
    assert far.body("CancelTask") == {"id": TASK}


@pytest.mark.parametrize("code", [-32002, -32001])
async def test_rejected_cancel_does_not_block(far: Far, agent: Client, code: int) -> None:
    far.set(STREAM, STARTED)
    far.fail("CancelTask", code, "no")
    far.holds = True
    async with asyncio.timeout(BOUND):
        async with aclosing(agent.run(make_call())) as events:
            await until_first_token(events)


async def test_unanswered_cancel_does_not_block(far: Far, agent: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "CANCEL_TIMEOUT", 0.05)
    far.set(STREAM, STARTED)
    far.set("CancelTask", [b""])
    far.holds = True
    async with asyncio.timeout(BOUND):
        async with aclosing(agent.run(make_call())) as events:
            await until_first_token(events)


# Faults


@pytest.mark.parametrize(
    ("status", "answer", "code", "words"),
    [
        (200, {"error": {"code": -32603, "message": "Boom"}}, FaultCode.AGENT_FAILED, "answered -32603: Boom"),
        (200, {"error": {"code": -32005, "message": "No images"}}, FaultCode.UNSUPPORTED_TYPE, "No images"),
        (200, {"error": {"code": -32006, "message": "What?"}}, FaultCode.AGENT_INVALID, "What?"),
        (200, [{"error": {"code": -32603, "message": "Boom"}}], FaultCode.AGENT_FAILED, "answered -32603: Boom"),
        (200, {"error": "Boom"}, FaultCode.AGENT_FAILED, "answered 200"),
        (401, {"error": {"code": -32000, "message": "A key, please"}}, FaultCode.AGENT_FAILED, "401: A key, please"),
        (404, {"detail": "Not Found"}, FaultCode.AGENT_FAILED, "answered 404: Not Found"),
        (500, b"<html>secret</html>", FaultCode.AGENT_FAILED, "The agent's server answered 500"),
        (502, b"", FaultCode.AGENT_UNREACHABLE, "answered 502"),
        (503, b"", FaultCode.AGENT_UNREACHABLE, "answered 503"),
        (504, b"", FaultCode.AGENT_TIMEOUT, "answered 504"),
        (302, b"", FaultCode.AGENT_FAILED, "answered 302"),
        (200, b"Hello", FaultCode.AGENT_INVALID, "did not answer with JSON"),
        (200, b"[]", FaultCode.AGENT_INVALID, "an answer is not a JSON object"),
        (200, b"{}", FaultCode.AGENT_INVALID, "did not answer with a task"),
        (200, [], FaultCode.AGENT_INVALID, "did not answer with a task"),
    ],
)
async def test_error_of_the_server_keeps_its_message(
    far: Far, agent: Client, status: int, answer: Body, code: FaultCode, words: str
) -> None:
    for method in (STREAM, "message/stream", "SendMessage", "message/send"):
        far.set(method, answer, status=status)
    found, message = await fault_of(agent.run(make_call()))
    assert (found, words in message) == (code, True), message
    assert "secret" not in message


async def test_fault_code_of_another_gateway_is_preserved(far: Far, agent: Client) -> None:
    reason = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "AGENT_TIMEOUT", "domain": "babelgate"}]
    far.fail(STREAM, -32603, "Too slow", data=reason)
    assert await code_from(agent) is FaultCode.AGENT_TIMEOUT


@pytest.mark.parametrize(
    "event",
    [
        b"data: {garbage\n\n",
        b"data: NaN\n\n",
        b"data: \xff\n\n",
        b"data: []\n\n",
        frame(b'{"result": ' + b"[" * 100 + b"]" * 100 + b"}"),
        {"artifactUpdate": {"artifact": {"parts": [{"text": "x", "url": "y"}]}}},
        {"artifactUpdate": {"artifact": {"parts": [{"raw": "!"}]}}},
        {"statusUpdate": {"status": {"state": 5}}},
    ],
)
async def test_invalid_events_are_the_agents_fault(far: Far, agent: Client, event: Any) -> None:
    far.set(STREAM, [{"task": WORKING}, event])
    assert await code_from(agent) is FaultCode.AGENT_INVALID
    assert far.on("CancelTask").is_set()


async def test_error_within_a_stream_ends_the_run(far: Far, agent: Client) -> None:
    error = b'event: error\ndata: {"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "Boom"}}\n\n'
    far.set(STREAM, [*STARTED, error])
    assert await fault_of(agent.run(make_call())) == (
        FaultCode.AGENT_FAILED,
        "The agent's server answered -32603: Boom",
    )


@pytest.mark.parametrize(
    "error", [{"error": {"code": 500, "status": "INTERNAL", "message": "Boom"}}, {"message": "Boom", "code": -32603}]
)
async def test_error_within_a_rest_stream_ends_the_run(far: Far, agent: Client, error: Any) -> None:
    far.set(CARD, card_1_0(far.url, "HTTP+JSON"))
    far.set("POST /message:stream", [*STARTED, error])
    far.set("POST /tasks/t:cancel", WORKING)
    assert (await fault_of(agent.run(make_call())))[1].endswith(": Boom")
    assert far.on("POST /tasks/t:cancel").is_set()


async def test_a_failed_task_is_the_agents_failure(far: Far, agent: Client) -> None:
    far.set(STREAM, [*STARTED, status("TASK_STATE_FAILED", "Boom")])
    ended = (await all_of(agent.run(make_call())))[-1]
    assert isinstance(ended, RunEnded) and ended.fault is not None
    assert (ended.fault.code, ended.fault.message) == (FaultCode.AGENT_FAILED, "Boom")


async def test_response_over_the_limit_is_a_fault(far: Far, agent: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpClient, "answer_limit", 10)
    far.set(STREAM, {"task": whole("ab" * 1000)})
    assert await code_from(agent) is FaultCode.AGENT_INVALID


async def test_unreachable_fault_hides_the_address() -> None:
    agent = Client("http://127.0.0.1:1")
    for _ in range(2):  # a closed client can be used again
        code, message = await fault_of(agent.run(make_call()))
        assert code is FaultCode.AGENT_UNREACHABLE
        assert "127.0.0.1" not in message
        await agent.aclose()


async def test_silent_server_is_a_timeout(far: Far) -> None:
    far.set(STREAM, STARTED)
    far.holds = True
    agent = Client(far.url, timeout=httpx.Timeout(5, read=0.1))
    assert await code_from(agent) is FaultCode.AGENT_TIMEOUT
    await agent.aclose()
    assert far.on("CancelTask").is_set()


async def test_cookies_are_not_sent_with_the_next_call(far: Far, agent: Client) -> None:
    far.headers = [(b"set-cookie", b"session=alice")]
    for _ in range(2):
        await all_of(agent.run(make_call()))
    assert all("cookie" not in headers for _, headers, _ in far.requests)
