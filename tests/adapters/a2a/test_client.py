"""An agent on another A2A server: what the client asks of it, and what it makes of its answers."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import httpx
import pytest

from babelgate.adapters._client import driver
from babelgate.adapters._server.sse import frame
from babelgate.adapters.a2a import client as client_module
from babelgate.adapters.a2a.client import Client
from babelgate.adapters.a2a.client.http import HttpClient
from babelgate.canonical import DataPart, Event, FaultCode, FilePart, Invocation, Message, Record, TextPart
from babelgate.canonical.agent import DETACH
from babelgate.canonical.event import (
    InterruptAnswered,
    InterruptRaised,
    LossNoted,
    MessageStarted,
    PartAdded,
    PartDelta,
    RunEnded,
    UpstreamBound,
)
from babelgate.canonical.message import ReasoningPart
from babelgate.canonical.replay import ReplayCursor
from tests.adapters.a2a.far import CONTEXT, TASK, Body, Far, card_0_3, card_1_0, far_server
from tests.driving import BOUND, all_of, fault_of
from tests.given import make

RUN = "22222222-2222-4222-8222-222222222222"
IDS = {"task": TASK, "context": CONTEXT}

WORKING: dict[str, Any] = {"id": TASK, "contextId": CONTEXT, "status": {"state": "TASK_STATE_WORKING"}}


def piece(words: str, *, append: bool = True, last: bool = False) -> dict[str, Any]:
    artifact = {"artifactId": "a", "parts": [{"text": words}]}
    return {
        "artifactUpdate": {
            "taskId": TASK,
            "contextId": CONTEXT,
            "artifact": artifact,
            "append": append,
            "lastChunk": last,
        }
    }


def status(state: str, **more: Any) -> dict[str, Any]:
    return {"statusUpdate": {"taskId": TASK, "contextId": CONTEXT, "status": {"state": state, **more}}}


def whole(words: str, state: str = "TASK_STATE_COMPLETED") -> dict[str, Any]:
    artifacts = [{"artifactId": "a", "parts": [{"text": words}]}]
    return {**WORKING, "status": {"state": state}, "artifacts": artifacts}


QUESTION = {"messageId": "q", "role": "ROLE_AGENT", "parts": [{"text": "Name?"}]}
ASKED = status("TASK_STATE_INPUT_REQUIRED", message=QUESTION, timestamp="T1")
DONE = status("TASK_STATE_COMPLETED")
PLAIN: list[Any] = [{"task": WORKING}, piece("a", append=False), piece("b", last=True), DONE]
STARTED = PLAIN[:2]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "FIRST_WAIT", 0.0)
    monkeypatch.setattr(client_module, "LAST_WAIT", 0.0)
    monkeypatch.setattr(client_module, "DRAIN", 0.01)


@pytest.fixture
async def far() -> AsyncGenerator[Far]:
    async with far_server() as made:
        made.set("GET /.well-known/agent-card.json", card_1_0(made.url))
        made.set("SendStreamingMessage", PLAIN)
        made.set("CancelTask", WORKING)
        yield made


@pytest.fixture
async def agent(far: Far) -> AsyncGenerator[Client]:
    client = Client(far.url, "far", headers={"Authorization": "Bearer secret"})
    yield client
    await client.aclose()


def call(**given: Any) -> Invocation:
    given.setdefault("messages", (Message.of("Hello", "user").replace(message_id="1"),))
    return make(Invocation, agent="near", thread_id="t", task_id="k", run_id=RUN, **given)


def log_of(events: Sequence[Event], run_id: str = RUN) -> list[Record]:
    return [Record(seq, seq, "k", run_id, 1, event) for seq, event in enumerate(events, start=1)]


def answering(*past: Event, value: Any = "Ada", **given: Any) -> Invocation:
    """A call that answers the questions in `past`, which an earlier run said."""

    async def records() -> Sequence[Record]:
        return log_of(past, "before")

    asked = [event for event in past if isinstance(event, InterruptRaised)]
    answers = tuple(InterruptAnswered(interrupt_id=each.interrupt_id or "i", value=value) for each in asked)
    given.setdefault("messages", (Message.of(str(value), "user").replace(message_id="2"),))
    return call(cause="answer", answers=answers, upstream=IDS, past=records, **given)


def said(events: Sequence[Event]) -> str:
    text = ""
    for event in events:
        match event:
            case PartDelta(text=more) | PartAdded(part=TextPart(text=more)):
                text += more
            case _:
                pass
    return text


# A task


async def test_a_task_is_streamed_and_bound_to_its_ids(far: Far, agent: Client) -> None:
    events = await all_of(agent.run(call()))
    assert events[0] == UpstreamBound(protocol="a2a", ids=IDS)
    assert said(events) == "ab"
    assert far.calls() == ["SendStreamingMessage"]


async def test_the_version_is_told_and_only_the_configured_headers_go_along(far: Far, agent: Client) -> None:
    await all_of(agent.run(call(metadata={"trip": 7}, config={"accepted_output_modes": ["text/plain"]})))
    _, headers, params = far.asked[-1]
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
        await all_of(agent.run(call()))
    assert [name for name, _, _ in far.asked].count("GET /.well-known/agent-card.json") == 1


async def test_a_known_context_goes_on_with_its_id_alone(far: Far, agent: Client) -> None:
    await all_of(agent.run(call(upstream={"context": CONTEXT}, history=(Message.of("before", "user"),))))
    message = far.body("SendStreamingMessage")["message"]
    assert message["contextId"] == CONTEXT
    assert "taskId" not in message
    assert message["parts"] == [{"text": "Hello"}]


async def test_the_next_input_of_a_task_is_a_task_of_its_own_that_refers_to_the_ended_one(
    far: Far, agent: Client
) -> None:
    await all_of(agent.run(call(cause="follow_up", upstream=IDS)))
    message = far.body("SendStreamingMessage")["message"]
    assert (message["contextId"], message["referenceTaskIds"]) == (CONTEXT, [TASK])
    assert "taskId" not in message


async def test_a_transcript_goes_along_only_where_no_context_remembers_it(far: Far, agent: Client) -> None:
    history = (Message.of("Hi", "user"), Message.of("Hello, Ada."))
    await all_of(agent.run(call(history=history)))
    parts = far.body("SendStreamingMessage")["message"]["parts"]
    assert parts[1] == {"text": "Hello"}
    joined = "".join(part["text"] for part in parts)  # as servers read it
    assert joined == "Said before in this conversation:\nuser: Hi\nagent: Hello, Ada.\n\nSaid now:\nHello"


async def test_a_history_without_words_is_no_transcript(far: Far, agent: Client) -> None:
    image = Message(role="user", parts=(FilePart(name="a.png", media_type="image/png", inline=b"\0"),))
    await all_of(agent.run(call(history=(image,))))
    assert far.body("SendStreamingMessage")["message"]["parts"] == [{"text": "Hello"}]


async def test_all_that_was_said_is_one_message_and_ids_of_other_servers_stay_out(far: Far, agent: Client) -> None:
    first = Message.of("One.", "system")
    second = Message(
        role="user",
        message_id="2",
        parts=(TextPart(text="Two."), FilePart(name="a.bin", media_type="image/png", inline=b"\0\1")),
        metadata={"m": 1},
        extra={"a2a": {"messageId": "own", "referenceTaskIds": ["elsewhere"], "extensions": ["urn:x"], "mood": "x"}},
    )
    await all_of(agent.run(call(messages=(first, second))))
    assert far.body("SendStreamingMessage")["message"] == {
        "messageId": "own",
        "role": "ROLE_USER",
        "parts": [{"text": "One."}, {"text": "Two."}, {"raw": "AAE=", "filename": "a.bin", "mediaType": "image/png"}],
        "metadata": {"m": 1},
        "extensions": ["urn:x"],
        "mood": "x",
    }


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        ({"message": "Hi"}, [{"text": "Hi"}]),
        ({"a": 1, "b": None}, [{"data": {"a": 1, "b": None}}]),
        ([1], [{"data": [1]}]),
        ({}, [{"text": ""}]),
    ],
)
async def test_input_that_is_no_message_is_text_or_data(far: Far, agent: Client, data: Any, parts: Any) -> None:
    await all_of(agent.run(call(messages=(), data=data)))
    assert far.body("SendStreamingMessage")["message"]["parts"] == parts


async def test_what_has_no_form_is_left_out_and_noted(far: Far, agent: Client) -> None:
    thought = Message(role="user", message_id="1", parts=(ReasoningPart(text="hm"), TextPart(text="Hi")))
    events = await all_of(agent.run(call(messages=(thought,))))
    assert [event.feature for event in events if isinstance(event, LossNoted)] == ["reasoning"]
    assert far.body("SendStreamingMessage")["message"]["parts"] == [{"text": "Hi"}]


async def test_a_bare_message_is_an_answer_without_a_task(far: Far, agent: Client) -> None:
    reply: dict[str, Any] = {"messageId": "m", "role": "ROLE_AGENT", "contextId": CONTEXT, "parts": [{"text": "Hi"}]}
    far.set("SendStreamingMessage", [{"message": reply}])
    events = await all_of(agent.run(call()))
    assert (events[0], said(events)) == (UpstreamBound(protocol="a2a", ids={"context": CONTEXT}), "Hi")
    assert far.calls() == ["SendStreamingMessage"]


async def test_nothing_that_comes_after_the_end_matters_and_nobody_waits_for_it(far: Far, agent: Client) -> None:
    far.set("SendStreamingMessage", [*PLAIN, b"data: {garbage\n\n", {"task": WORKING}])
    far.holds = True
    assert said(await all_of(agent.run(call()))) == "ab"
    assert not far.on("CancelTask").is_set()


async def test_an_event_over_many_data_lines_and_comments_are_read(far: Far, agent: Client) -> None:
    pretty = b'data: {"jsonrpc": "2.0", "id": 1,\r\ndata:  "result": {"task":\r\ndata: {"id": "t"}}}\r\n\r\n'
    far.set("SendStreamingMessage", [b": ping\n\n", pretty, b"data: [DONE]\n\n", *PLAIN[1:]])
    assert said(await all_of(agent.run(call()))) == "ab"


# Without a stream


async def test_a_json_answer_to_a_streaming_method_is_the_task_and_is_followed(far: Far, agent: Client) -> None:
    far.set("SendStreamingMessage", {"task": whole("a", "TASK_STATE_WORKING")})
    far.set("GetTask", whole("ab"))
    assert said(await all_of(agent.run(call()))) == "ab"


async def test_without_streaming_the_task_is_sent_and_looked_at_until_it_stops(far: Far, agent: Client) -> None:
    far.set("GET /.well-known/agent-card.json", card_1_0(far.url, capabilities={}))
    far.set("SendMessage", {"task": {**WORKING, "status": {"state": "TASK_STATE_SUBMITTED"}}})
    far.set("GetTask", WORKING, whole("a", "TASK_STATE_WORKING"), whole("ab", "TASK_STATE_WORKING"), whole("ab"))
    events = await all_of(agent.run(call()))
    assert said(events) == "ab"
    assert [type(event) for event in events].count(MessageStarted) == 1
    assert far.calls() == ["SendMessage", "GetTask", "GetTask", "GetTask", "GetTask"]
    assert far.body("SendMessage")["configuration"] == {"returnImmediately": True}
    assert far.body("GetTask") == {"id": TASK}


async def test_a_server_that_says_it_cannot_stream_is_not_asked_to_again(far: Far, agent: Client) -> None:
    far.fail("SendStreamingMessage", -32004, "No streams")
    far.set("SendMessage", {"task": whole("ab")})
    for _ in range(2):
        assert said(await all_of(agent.run(call()))) == "ab"
    assert far.calls() == ["SendStreamingMessage", "SendMessage", "SendMessage"]


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


async def test_a_card_of_0_3_is_spoken_to_in_0_3(far: Far, agent: Client) -> None:
    far.set("GET /.well-known/agent-card.json", card_0_3(far.url + "/"))
    far.set("message/stream", OLD)
    data = Message(role="user", message_id="1", parts=(DataPart(data=7),))
    assert said(await all_of(agent.run(call(messages=(data,))))) == "ab"
    _, headers, params = far.asked[-1]
    assert "a2a-version" not in headers
    compat: dict[str, Any] = {"kind": "data", "data": {"value": 7}, "metadata": {"data_part_compat": True}}
    assert params == {"message": {"kind": "message", "messageId": "1", "role": "user", "parts": [compat]}}


async def test_a_card_that_claims_1_0_beside_an_address_of_no_version_is_langgraphs_and_0_3_is_spoken(
    far: Far, agent: Client
) -> None:
    far.set("GET /.well-known/agent-card.json", card_1_0(far.url, url=far.url))
    far.set("message/stream", [OLD[0]])
    far.set("tasks/resubscribe")
    far.set("tasks/get", {**OLD[0], "status": {"state": "completed"}})
    await all_of(agent.run(call()))
    # It wants to know the context of every task, too.
    assert far.body("tasks/get") == {"id": TASK, "contextId": CONTEXT}


@pytest.mark.parametrize("code", [-32601, -32009])
async def test_a_server_that_does_not_know_1_0_is_spoken_to_in_0_3(far: Far, agent: Client, code: int) -> None:
    far.fail("SendStreamingMessage", code, "What?")
    far.set("message/stream", OLD)
    for _ in range(2):
        assert said(await all_of(agent.run(call()))) == "ab"
    assert far.calls() == ["SendStreamingMessage", "message/stream", "message/stream"]


async def test_without_a_card_the_url_is_the_endpoint(far: Far) -> None:
    agent = Client(far.url + "/some/agent")
    assert said(await all_of(agent.run(call()))) == "ab"
    await agent.aclose()
    assert [name for name, _, _ in far.asked[:4]] == [
        "GET /some/agent/.well-known/agent-card.json",
        "GET /some/agent/.well-known/agent.json",
        "GET /.well-known/agent-card.json",
        "SendStreamingMessage",
    ]


async def test_rest_of_1_0(far: Far, agent: Client) -> None:
    far.set("GET /.well-known/agent-card.json", card_1_0(far.url + "/a/", "GRPC", "HTTP+JSON"))
    far.set("POST /a/message:stream", STARTED)
    far.set("GET /a/tasks/t", whole("ab"))
    assert said(await all_of(agent.run(call()))) == "ab"
    assert far.body("POST /a/message:stream")["message"]["parts"] == [{"text": "Hello"}]


async def test_rest_of_0_3_lives_below_v1_and_wraps_its_data(far: Far, agent: Client) -> None:
    far.set("GET /.well-known/agent-card.json", card_0_3(far.url, "HTTP+JSON"))
    data: dict[str, Any] = {"artifactId": "a", "parts": [{"data": {"data": {"n": 1}}}]}
    done = {**WORKING, "status": {"state": "TASK_STATE_COMPLETED"}, "artifacts": [data]}
    far.set("POST /v1/message:stream", [{"task": WORKING}])
    far.set("GET /v1/tasks/t", done)
    events = await all_of(agent.run(call()))
    assert [event.part for event in events if isinstance(event, PartAdded)] == [DataPart(data={"n": 1})]
    assert far.body("POST /v1/message:stream")["message"]["content"] == [{"text": "Hello"}]


async def test_a_tenant_goes_along(far: Far, agent: Client) -> None:
    card = card_1_0(far.url)
    card["supportedInterfaces"][0]["tenant"] = "blue"
    far.set("GET /.well-known/agent-card.json", card)
    await all_of(agent.run(call()))
    assert far.body("SendStreamingMessage")["tenant"] == "blue"


# Where the stream breaks


async def test_a_stream_that_is_cut_off_is_joined_again_and_nothing_is_told_twice(far: Far, agent: Client) -> None:
    far.set("SendStreamingMessage", STARTED)
    far.cuts = True
    far.set("GetTask", whole("a", "TASK_STATE_WORKING"))
    far.set("SubscribeToTask", [{"task": whole("ab", "TASK_STATE_WORKING")}, piece("c"), DONE])
    events = await all_of(agent.run(call()))
    assert said(events) == "abc"
    assert [type(event) for event in events].count(MessageStarted) == 1
    assert far.calls() == ["SendStreamingMessage", "GetTask", "SubscribeToTask"]


async def test_a_stream_that_does_not_begin_with_the_task_leaves_a_gap_so_the_task_is_looked_at(
    far: Far, agent: Client
) -> None:
    far.set("SendStreamingMessage", STARTED)
    far.set("GetTask", whole("a", "TASK_STATE_WORKING"), whole("abc", "TASK_STATE_WORKING"), whole("abcd"))
    far.set("SubscribeToTask", [piece("c")])
    assert said(await all_of(agent.run(call()))) == "abcd"


async def test_a_task_that_cannot_be_subscribed_to_is_looked_at(far: Far, agent: Client) -> None:
    far.set("SendStreamingMessage", STARTED)
    far.fail("SubscribeToTask", -32004, "It has ended")
    far.set("GetTask", WORKING, whole("ab"))
    assert said(await all_of(agent.run(call()))) == "ab"


async def test_a_server_that_is_gone_after_its_stream_broke_is_unreachable(far: Far, agent: Client) -> None:
    far.set("SendStreamingMessage", STARTED)
    far.set("GetTask", b"", status=503)
    assert (await fault_of(agent.run(call())))[0] is FaultCode.AGENT_UNREACHABLE
    assert far.calls().count("GetTask") == client_module.MAX_FAILURES


async def test_a_server_that_has_forgotten_the_task_has_failed(far: Far, agent: Client) -> None:
    far.set("SendStreamingMessage", STARTED)
    far.fail("GetTask", -32001, "Task not found")
    assert await fault_of(agent.run(call())) == (
        FaultCode.AGENT_FAILED,
        "The agent's server answered -32001: Task not found",
    )


async def test_a_look_that_is_not_answered_is_too_late(
    far: Far, agent: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "LOOK_TIMEOUT", 0.05)
    far.set("SendStreamingMessage", STARTED)
    far.set("GetTask", [])
    original = far._answer  # pyright: ignore[reportPrivateUsage]

    async def never(status: int, answer: Body, *rest: Any) -> None:
        if answer == []:
            await rest[1]()
            return
        await original(status, answer, *rest)

    monkeypatch.setattr(far, "_answer", never)
    assert (await fault_of(agent.run(call())))[0] is FaultCode.AGENT_TIMEOUT


async def test_a_task_that_ends_while_its_stream_says_nothing_is_noticed_and_the_stream_is_kept_until_then(
    far: Far, agent: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "SILENCE", 0.01)
    far.set("SendStreamingMessage", STARTED)
    far.holds = True
    far.set("GetTask", whole("ab", "TASK_STATE_WORKING"), whole("abc"))
    assert said(await all_of(agent.run(call()))) == "abc"
    assert far.calls() == ["SendStreamingMessage", "GetTask", "GetTask"]


async def test_a_server_that_died_without_hanging_up_is_unreachable(
    far: Far, agent: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "SILENCE", 0.01)
    far.set("SendStreamingMessage", STARTED)
    far.holds = True
    far.set("GetTask", b"", status=503)
    assert (await fault_of(agent.run(call())))[0] is FaultCode.AGENT_UNREACHABLE


# Questions and answers


async def test_a_question_pauses_and_its_answer_goes_to_the_same_task_and_context(far: Far, agent: Client) -> None:
    far.set("SendStreamingMessage", [{"task": WORKING}, ASKED])
    asked = await all_of(agent.run(call()))
    assert isinstance(asked[-1], InterruptRaised)
    assert asked[-1].message.text == "Name?"
    # Servers show the question until their agent says something.
    stale = {**WORKING, "status": {"state": "TASK_STATE_INPUT_REQUIRED", "message": QUESTION}}
    far.set("SendStreamingMessage", [{"task": stale}, *PLAIN[1:]])
    events = await all_of(agent.run(answering(*asked)))
    assert events[0] == UpstreamBound(protocol="a2a", ids=IDS)
    assert said(events) == "ab"
    message = far.body("SendStreamingMessage")["message"]
    assert (message["taskId"], message["contextId"], message["parts"]) == (TASK, CONTEXT, [{"text": "Ada"}])
    assert not far.on("CancelTask").is_set()


async def test_an_answer_that_is_data_is_sent_as_data_however_it_was_said(far: Far, agent: Client) -> None:
    words = (Message.of("yes", "user").replace(message_id="2"),)
    await all_of(agent.run(answering(InterruptRaised(), value={"approved": True}, messages=words)))
    assert far.body("SendStreamingMessage")["message"]["parts"] == [{"data": {"approved": True}}]


async def test_several_answers_each_name_their_question_as_the_server_knows_it(far: Far, agent: Client) -> None:
    first = InterruptRaised(interrupt_id="ours", extra={"a2a": {"id": "1"}})
    second = InterruptRaised(interrupt_id="ours too", extra={"a2a": {"id": "2"}})
    await all_of(agent.run(answering(first, second)))
    resume = [{"id": "1", "value": "Ada"}, {"id": "2", "value": "Ada"}]
    assert far.body("SendStreamingMessage")["message"]["parts"] == [{"data": {"resume": resume}}]


async def test_an_answer_that_is_sent_anew_after_a_crash_begins_with_what_earlier_runs_said(
    far: Far, agent: Client
) -> None:
    asked = InterruptRaised(interrupt_id="i", extra={"a2a": {"messageId": "q"}})
    told = await all_of(agent.run(answering(asked)))
    again = answering(asked, attempt=2)

    async def records() -> Sequence[Record]:
        return [*log_of([asked], "before"), *log_of(told)]

    assert await all_of(agent.run(replace(again, past=records))) == told


async def test_a_decline_is_an_empty_answer_and_noted(far: Far, agent: Client) -> None:
    declined = (InterruptAnswered(interrupt_id="i", action="decline"),)
    events = await all_of(agent.run(call(answers=declined, messages=(), upstream=IDS)))
    assert [event.feature for event in events if isinstance(event, LossNoted)] == ["question"]
    assert far.body("SendStreamingMessage")["message"]["parts"] == [{"data": None}]


async def test_an_answer_to_a_task_that_was_never_told_is_a_fault_and_no_new_task(far: Far, agent: Client) -> None:
    lost = call(answers=(InterruptAnswered(interrupt_id="i", value="Ada"),))
    assert (await fault_of(agent.run(lost)))[0] is FaultCode.AGENT_INVALID
    assert far.calls() == []


async def test_an_answer_that_fails_without_a_word_is_sent_once_more(far: Far, agent: Client) -> None:
    far.set("SendStreamingMessage", {"error": {"code": -32603, "message": ""}}, PLAIN)
    assert said(await all_of(agent.run(answering(InterruptRaised())))) == "ab"
    far.fail("SendStreamingMessage", -32603, "")
    assert (await fault_of(agent.run(answering(InterruptRaised()))))[0] is FaultCode.AGENT_FAILED
    assert far.calls().count("SendStreamingMessage") == 4


async def test_a_task_that_went_on_without_its_answer_is_followed(far: Far, agent: Client) -> None:
    far.fail("SendStreamingMessage", -32602, "The task has ended")
    far.set("GetTask", whole("ab"))
    assert said(await all_of(agent.run(answering(InterruptRaised())))) == "ab"


async def test_an_answer_that_is_refused_by_a_task_that_waits_is_a_fault(far: Far, agent: Client) -> None:
    far.fail("SendStreamingMessage", -32602, "Not like that")
    asked = InterruptRaised(extra={"a2a": {"messageId": "q"}})
    far.set("GetTask", {**WORKING, "status": {"state": "TASK_STATE_INPUT_REQUIRED", "message": QUESTION}})
    _, words = await fault_of(agent.run(answering(asked)))
    assert words == "The agent's server answered -32602: Not like that"


# Re-attaching


def attached(past: Sequence[Event]) -> Invocation:
    async def records() -> Sequence[Record]:
        return log_of(past)

    return call(upstream=IDS, past=records, attempt=2)


async def test_a_run_is_told_again_as_the_log_has_it_and_goes_on_from_there(far: Far, agent: Client) -> None:
    first = await all_of(agent.run(call()))
    far.set("GetTask", whole("abc"))
    for count in range(1, len(first) - 1):
        before = first[:count]
        past = ReplayCursor(before, closed=False)
        new = [news for event in await all_of(agent.reattach(attached(before))) for news in past.news(event)]
        assert said([*before, *new]) == "abc", count
    assert far.calls().count("SendStreamingMessage") == 1


async def test_a_run_that_had_asked_by_then_has_nothing_more_to_tell(far: Far, agent: Client) -> None:
    far.set("SendStreamingMessage", [{"task": WORKING}, ASKED])
    first = await all_of(agent.run(call()))
    assert await all_of(agent.reattach(attached(first))) == first
    assert far.calls() == ["SendStreamingMessage"]


async def test_without_its_id_a_task_cannot_be_found_again(agent: Client) -> None:
    assert (await fault_of(agent.reattach(call())))[0] is FaultCode.AGENT_INVALID


# Cancel


async def until_first_token(events: AsyncIterator[Event]) -> None:
    async for event in events:
        if isinstance(event, PartAdded):
            return


async def test_closing_the_iterator_cancels_the_task(far: Far, agent: Client) -> None:
    far.set("SendStreamingMessage", STARTED)
    far.holds = True
    async with asyncio.timeout(BOUND):
        async with aclosing(agent.run(call())) as events:
            await until_first_token(events)
    assert far.calls() == ["SendStreamingMessage", "CancelTask"]
    assert far.body("CancelTask") == {"id": TASK}


@pytest.mark.parametrize("message", [None, DETACH])
async def test_cancelling_who_waits_cancels_the_task_unless_the_gateway_only_lets_go(
    far: Far, agent: Client, message: str | None
) -> None:
    far.set("SendStreamingMessage", STARTED)
    far.holds = True
    waiting = asyncio.Event()

    async def pump() -> None:
        async with aclosing(agent.run(call())) as events:
            await until_first_token(events)
            waiting.set()
            await until_first_token(events)

    pumping = asyncio.ensure_future(pump())
    async with asyncio.timeout(BOUND):
        await waiting.wait()
        await asyncio.sleep(0)
        pumping.cancel(message)
        await asyncio.wait((pumping,))
    assert pumping.cancelled()
    assert far.on("CancelTask").is_set() == (message is None)


async def test_a_run_that_is_taken_up_only_to_be_cancelled_is_cancelled(far: Far, agent: Client) -> None:
    async with aclosing(agent.reattach(attached([UpstreamBound(protocol="a2a", ids=IDS)]))) as events:
        await anext(events)
    assert far.calls() == ["CancelTask"]


@pytest.mark.parametrize("code", [-32002, -32001])
async def test_a_server_that_refuses_a_cancel_holds_nobody_up(far: Far, agent: Client, code: int) -> None:
    far.set("SendStreamingMessage", STARTED)
    far.fail("CancelTask", code, "no")
    far.holds = True
    async with asyncio.timeout(BOUND):
        async with aclosing(agent.run(call())) as events:
            await until_first_token(events)


async def test_a_server_that_does_not_answer_a_cancel_holds_nobody_up(
    far: Far, agent: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "CANCEL_TIMEOUT", 0.05)
    far.set("SendStreamingMessage", STARTED)
    far.set("CancelTask", [b""])
    far.holds = True
    async with asyncio.timeout(BOUND):
        async with aclosing(agent.run(call())) as events:
            await until_first_token(events)
    assert far.on("CancelTask").is_set()


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
        (200, b"[]", FaultCode.AGENT_INVALID, "an answer is no object"),
        (200, b"{}", FaultCode.AGENT_INVALID, "did not answer with a task"),
        (200, [], FaultCode.AGENT_INVALID, "did not answer with a task"),
    ],
)
async def test_a_refusal_is_told_in_the_servers_words(
    far: Far, agent: Client, status: int, answer: Body, code: FaultCode, words: str
) -> None:
    for method in ("SendStreamingMessage", "message/stream", "SendMessage", "message/send"):
        far.set(method, answer, status=status)
    found, message = await fault_of(agent.run(call()))
    assert (found, words in message) == (code, True), message
    assert "secret" not in message


async def test_what_a_gateway_says_of_its_own_agent_is_believed(far: Far, agent: Client) -> None:
    reason = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "AGENT_TIMEOUT", "domain": "babelgate"}]
    far.fail("SendStreamingMessage", -32603, "Too slow", data=reason)
    assert (await fault_of(agent.run(call())))[0] is FaultCode.AGENT_TIMEOUT


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
async def test_events_that_break_the_protocol_are_the_agents_fault_and_end_its_task(
    far: Far, agent: Client, event: Any
) -> None:
    far.set("SendStreamingMessage", [{"task": WORKING}, event])
    assert (await fault_of(agent.run(call())))[0] is FaultCode.AGENT_INVALID
    assert far.on("CancelTask").is_set()


async def test_an_error_in_the_middle_of_a_stream_ends_the_run(far: Far, agent: Client) -> None:
    error = b'event: error\ndata: {"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "Boom"}}\n\n'
    far.set("SendStreamingMessage", [*STARTED, error])
    assert await fault_of(agent.run(call())) == (FaultCode.AGENT_FAILED, "The agent's server answered -32603: Boom")


@pytest.mark.parametrize(
    "error", [{"error": {"code": 500, "status": "INTERNAL", "message": "Boom"}}, {"message": "Boom", "code": -32603}]
)
async def test_an_error_in_a_stream_of_rest_ends_the_run(far: Far, agent: Client, error: Any) -> None:
    far.set("GET /.well-known/agent-card.json", card_1_0(far.url, "HTTP+JSON"))
    far.set("POST /message:stream", [*STARTED, error])
    far.set("POST /tasks/t:cancel", WORKING)
    assert (await fault_of(agent.run(call())))[1].endswith(": Boom")
    assert far.on("POST /tasks/t:cancel").is_set()


async def test_a_failed_task_is_the_agents_failure(far: Far, agent: Client) -> None:
    boom = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "Boom"}]}
    far.set("SendStreamingMessage", [*STARTED, status("TASK_STATE_FAILED", message=boom)])
    ended = (await all_of(agent.run(call())))[-1]
    assert isinstance(ended, RunEnded) and ended.fault is not None
    assert (ended.fault.code, ended.fault.message) == (FaultCode.AGENT_FAILED, "Boom")


async def test_an_answer_that_is_too_large_is_cut_short(
    far: Far, agent: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HttpClient, "answer_limit", 10)
    far.set("SendStreamingMessage", {"task": whole("ab" * 1000)})
    assert (await fault_of(agent.run(call())))[0] is FaultCode.AGENT_INVALID


async def test_nobody_there_is_unreachable_and_the_address_stays_a_secret() -> None:
    agent = Client("http://127.0.0.1:1")
    for _ in range(2):  # closed, it can be used again
        code, message = await fault_of(agent.run(call()))
        assert code is FaultCode.AGENT_UNREACHABLE
        assert "127.0.0.1" not in message
        await agent.aclose()


async def test_a_server_that_is_silent_for_too_long_is_too_late(far: Far) -> None:
    far.set("SendStreamingMessage", STARTED)
    far.holds = True
    agent = Client(far.url, timeout=httpx.Timeout(5, read=0.1))
    assert (await fault_of(agent.run(call())))[0] is FaultCode.AGENT_TIMEOUT
    await agent.aclose()
    assert far.on("CancelTask").is_set()


async def test_no_cookie_of_one_call_goes_with_the_next(far: Far, agent: Client) -> None:
    far.headers = [(b"set-cookie", b"session=alice")]
    for _ in range(2):
        await all_of(agent.run(call()))
    assert all("cookie" not in headers for _, headers, _ in far.asked)
