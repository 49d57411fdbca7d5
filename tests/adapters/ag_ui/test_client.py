"""The client: requests to another AG-UI server, and events of servers that send less, more or something else."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import httpx
import pytest

from babelgate.adapters.ag_ui.client import Client
from babelgate.adapters.ag_ui.read.run_events import EventReader
from babelgate.canonical import Event, FaultCode, FaultError, Invocation, Message, RunInput, ToolCallPart
from babelgate.canonical.event import (
    Custom,
    InterruptRaised,
    LossNoted,
    MessageStarted,
    Native,
    PartAdded,
    PartDelta,
    RunEnded,
    StateSaved,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
)

Wire = dict[str, Any]

STARTED: Final[Wire] = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
FINISHED: Final[Wire] = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}
TEXT: Final[Sequence[Wire]] = (
    {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Hello"},
    {"type": "TEXT_MESSAGE_END", "messageId": "m"},
)
CALL: Final[Sequence[Wire]] = (
    {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "weather", "parentMessageId": "p"},
    {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": '{"city":'},
    {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": '"Rome"}'},
    {"type": "TOOL_CALL_END", "toolCallId": "c"},
)


def read(*events: Wire, **options: Any) -> list[Event]:
    reader = EventReader("run", **options)
    return [event for wire in (STARTED, *events) for event in reader.read(wire)][1:]


def text_of(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, PartDelta))


def of_kind(kind: Any, events: Sequence[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


@pytest.mark.parametrize(
    "events",
    [
        TEXT,
        TEXT[1:],  # without its start
        TEXT[:2],  # without its end
        [
            {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "Hel"},
            {"type": "TEXT_MESSAGE_CHUNK", "delta": "lo"},
        ],
        [{"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "m", "role": "assistant", "content": "Hello"}]}],
        [*TEXT, {"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "m", "role": "assistant", "content": "Hello"}]}],
        [*TEXT, {"type": "RAW", "event": {"data": "x" * 100}}, {"type": None}, "odd"],
    ],
)
def test_a_text_is_read_once_in_every_form(events: Sequence[Wire]) -> None:
    found = read(*events, FINISHED)
    assert "".join(each.part.text for each in of_kind(PartAdded, found)) + text_of(found) == "Hello"
    assert len(of_kind(MessageStarted, found)) == 1


@pytest.mark.parametrize("prefix", ["REASONING_MESSAGE", "THINKING_TEXT_MESSAGE"])
def test_reasoning_is_read_under_its_old_name_too(prefix: str) -> None:
    name = {"messageId": "m"} if prefix.startswith("REASONING") else {}
    pieces = [{"type": f"{prefix}_CONTENT", **name, "delta": piece} for piece in ("Think", "ing")]
    found = read({"type": f"{prefix}_START", **name}, *pieces, {"type": f"{prefix}_END", **name}, FINISHED)
    (added,) = of_kind(PartAdded, found)
    assert (added.part.kind, text_of(found)) == ("reasoning", "Thinking")


def test_a_snapshot_repeats_no_message_of_the_conversation() -> None:
    messages = [{"id": "old", "role": "assistant", "content": "Earlier"}, {"id": "u", "role": "user", "content": "Hi"}]
    assert read({"type": "MESSAGES_SNAPSHOT", "messages": messages}, FINISHED, known_ids={"old", "u"}) == []


def test_an_id_that_the_conversation_has_is_replaced() -> None:
    (started,) = of_kind(MessageStarted, read(*TEXT, FINISHED, known_ids={"m"}))
    assert started.message_id == "run-1"


@pytest.mark.parametrize(
    ("content", "output"),
    [("21", "21"), ([{"type": "text", "text": "warm"}], "warm"), ([{"type": "image"}], [{"type": "image"}])],
)
def test_results_of_tools_are_read(content: Any, output: Any) -> None:
    result = {"type": "TOOL_CALL_RESULT", "messageId": "r", "toolCallId": "c", "content": content}
    started, ended = read(*CALL, result, FINISHED, tools={"weather"})
    assert isinstance(started, ToolStarted) and started.input == {"city": "Rome"}
    assert isinstance(ended, ToolEnded) and ended.output == output


@pytest.mark.parametrize(
    ("tools", "outcome"),
    [
        ({"weather"}, None),
        ({"weather"}, {"type": "success"}),
        (set[str](), {"type": "success", "pendingToolCallIds": ["c"]}),
        (set[str](), None),  # Agno 3.1: its own tool needs a confirmation
    ],
)
def test_calls_without_results_are_questions(tools: set[str], outcome: Any) -> None:
    (question,) = of_kind(InterruptRaised, read(*CALL, {**FINISHED, "outcome": outcome}, tools=tools))
    part = question.message.parts[-1]
    assert isinstance(part, ToolCallPart)
    assert (question.interrupt_id, part.name, part.arguments) == ("c", "weather", '{"city":"Rome"}')


@pytest.mark.parametrize(
    "rest",
    [
        [*TEXT, FINISHED],
        [{"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "m", "role": "assistant", "content": "Hi"}]}, FINISHED],
        [
            {
                "type": "MESSAGES_SNAPSHOT",
                "messages": [
                    {
                        "id": "a",
                        "role": "assistant",
                        "toolCalls": [{"id": "c", "type": "function", "function": {"name": "weather"}}],
                    },
                    {"id": "r", "role": "tool", "toolCallId": "c", "content": "rain"},
                ],
            },
            FINISHED,
        ],
        [{**FINISHED, "outcome": {"type": "success", "pendingToolCallIds": []}}],
        [{**FINISHED, "outcome": {"type": "cancelled"}}],
    ],
    ids=["text", "text in a snapshot", "result in a snapshot", "empty list", "cancelled"],
)
def test_a_call_that_nobody_waits_for_is_no_question(rest: list[Wire]) -> None:
    found = read(*CALL, *rest)
    assert of_kind(InterruptRaised, found) == [] and len(of_kind(ToolStarted, found)) == 1


def test_a_confirmation_call_of_adk_is_an_approval() -> None:
    arguments: Wire = {"originalFunctionCall": {"id": "c", "name": "weather", "args": {"city": "Rome"}}}
    arguments["toolConfirmation"] = {"hint": "May I?"}
    confirm = [
        {"type": "TOOL_CALL_START", "toolCallId": "adk", "toolCallName": "adk_request_confirmation"},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "adk", "delta": json.dumps(arguments)},
        {"type": "TOOL_CALL_END", "toolCallId": "adk"},
    ]
    found = read(*CALL, *confirm, FINISHED)
    (question,) = of_kind(InterruptRaised, found)
    assert (question.interrupt_id, question.ask, question.message.text) == ("adk", "approval", "May I?")
    assert question.value == {"name": "weather", "args": {"city": "Rome"}}
    assert [each.call_id for each in of_kind(ToolEnded, found)] == ["c", "adk"]


def test_a_question_of_strands_has_its_text_in_the_metadata() -> None:
    interrupt = {"id": "i", "reason": "approval", "metadata": {"reason": "Wipe sda?"}}
    outcome = {"type": "interrupt", "interrupts": [interrupt, {**interrupt, "id": "j", "metadata": {"reason": [1]}}]}
    found = of_kind(InterruptRaised, read({**FINISHED, "outcome": outcome}))
    assert [(each.message.text, each.value) for each in found] == [("Wipe sda?", None), ("", [1])]


@pytest.mark.parametrize(
    ("members", "ask"),
    [
        ({"reason": "tool_call", "toolCallId": "c"}, "approval"),
        ({"reason": "confirmation"}, "approval"),
        ({"reason": "vendor:x", "responseSchema": {"type": "boolean"}}, "approval"),
        ({"reason": "vendor:x", "responseSchema": {"properties": {"approved": {}}}}, "approval"),
        ({"reason": "input_required", "responseSchema": {"type": "string"}}, "input"),
        ({}, "input"),
    ],
)
def test_interrupts_are_questions_of_their_kind(members: Wire, ask: str) -> None:
    outcome = {"type": "interrupt", "interrupts": [{"id": "i", "message": "Well?", **members}, {"id": None}]}
    custom = {"type": "CUSTOM", "name": "on_interrupt", "value": '"Well?"', "rawEvent": {"id": "i"}}
    (question,) = of_kind(InterruptRaised, read(custom, {**FINISHED, "outcome": outcome}))
    assert (question.interrupt_id, question.ask, question.message.text) == ("i", ask, "Well?")


def test_a_custom_event_asks_a_question_without_an_outcome() -> None:
    values = ['"Well?"', '{"question": "Sure?", "n": 1}']
    customs = [{"type": "CUSTOM", "name": "on_interrupt", "value": value} for value in values]
    found = of_kind(InterruptRaised, read(*customs, FINISHED))
    assert [(each.interrupt_id, each.message.text) for each in found] == [("legacy-1", "Well?"), ("legacy-2", "Sure?")]


def test_subagents_are_steps_and_open_ones_are_ended() -> None:
    events = [
        {"type": "SUBAGENT_STARTED", "subagentRunId": "s", "name": "critic"},
        {"type": "STEP_STARTED", "stepName": "plan"},
        {"type": "SUBAGENT_ERROR", "subagentRunId": "s", "message": "no"},
    ]
    found = read(*events, FINISHED)
    assert [each.name for each in of_kind(StepStarted, found)] == ["critic", "plan"]
    assert [(each.name, each.fault is None) for each in of_kind(StepEnded, found)] == [
        ("critic", False),
        ("plan", True),
    ]


def test_the_last_state_is_saved_once() -> None:
    delta = [{"op": "replace", "path": "/a", "value": 2}]
    wrong = [{"op": "replace", "path": "/b", "value": 2}]
    events = [
        {"type": "STATE_SNAPSHOT", "snapshot": {"a": 1}},
        *({"type": "STATE_DELTA", "delta": d} for d in (delta, wrong)),
    ]
    found = read(*events, FINISHED)
    assert [each.values for each in of_kind(StateSaved, found)] == [{"a": 2}]
    assert [each.feature for each in of_kind(LossNoted, found)] == ["state"]


def test_activities_and_unknown_events_are_passed_on() -> None:
    activity: Wire = {"type": "ACTIVITY_SNAPSHOT", "messageId": "a", "activityType": "PLAN", "content": {"steps": []}}
    found = read({**activity, "timestamp": 1}, {"type": "NEW_EVENT", "x": 1}, FINISHED)
    (custom,), (native,) = of_kind(Custom, found), of_kind(Native, found)
    assert (custom.name, custom.extra) == ("PLAN", {"ag-ui": {"event": activity}})
    assert native.data == {"type": "NEW_EVENT", "x": 1}


def test_usage_of_several_models_is_added() -> None:
    usage = [{"inputTokens": 1, "outputTokens": 2, "cachedInputTokens": 1}, {"inputTokens": 3}]
    (ended,) = of_kind(RunEnded, read({**FINISHED, "usage": usage, "result": {"a": 1}}))
    assert ended.output == {"a": 1}
    assert ended.usage == {"input_tokens": 4, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 1}}


@pytest.mark.parametrize(
    ("code", "expected"), [("agent_timeout", "agent_timeout"), ("BOOM", "agent_failed"), (None, "agent_failed")]
)
def test_an_error_event_fails_the_run(code: str | None, expected: str) -> None:
    with pytest.raises(FaultError) as failed:
        read({"type": "RUN_ERROR", "message": "no", "code": code})
    assert failed.value.fault.code == expected


# Over HTTP


async def run(response: httpx.Response, sent: list[Wire] | None = None, **call: Any) -> list[Event]:
    def answer(request: httpx.Request) -> httpx.Response:
        if sent is not None:
            sent.append(json.loads(request.content))
        # A response that has been read cannot be streamed.
        return httpx.Response(response.status_code, headers=response.headers, stream=httpx.ByteStream(response.content))

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        client = Client("http://agent.test/run", http=http)
        invocation = Invocation(agent="a", thread_id="t", task_id="k", run_id="r", **call)
        return [event async for event in client.run(invocation)]


def stream(*events: Wire, ending: str = "\n\n", **headers: str) -> httpx.Response:
    body = "".join(f"data: {json.dumps(event)}{ending}" for event in events)
    return httpx.Response(200, headers={"content-type": "text/event-stream", **headers}, text=body)


def with_input(text: str, **members: Any) -> Mapping[str, Any]:
    return {"input": RunInput(messages=(Message.of(text, "user"),), **members)}


@pytest.mark.parametrize("ending", ["\n\n", "\r\n\r\n"])
async def test_a_stream_is_read_to_its_end(ending: str) -> None:
    assert text_of(await run(stream(STARTED, *TEXT, FINISHED, ending=ending), **with_input("Hi"))) == "Hello"


@pytest.mark.parametrize(
    ("response", "code", "words"),
    [
        (stream(STARTED, *TEXT), FaultCode.AGENT_UNREACHABLE, "ended before"),
        (httpx.Response(200, json={}), FaultCode.AGENT_INVALID, "event stream"),
        (httpx.Response(422, json={"detail": "no such thread"}), FaultCode.AGENT_FAILED, "no such thread"),
        (httpx.Response(503, json={"error": {"message": "later"}}), FaultCode.AGENT_UNREACHABLE, "later"),
        (httpx.Response(500, text="<html>"), FaultCode.AGENT_FAILED, "500"),
    ],
)
async def test_an_incomplete_or_refused_run_is_a_fault(response: httpx.Response, code: FaultCode, words: str) -> None:
    with pytest.raises(FaultError) as failed:
        await run(response, **with_input("Hi"))
    assert failed.value.fault.code is code
    assert words in failed.value.fault.message


async def test_a_request_has_the_conversation_and_the_callers_tools() -> None:
    sent: list[Wire] = []
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
    config = {"tools": tools, "ag-ui": {"context": [{"description": "d", "value": "v"}], "forwardedProps": {"x": 1}}}
    earlier = Message.of("Earlier").replace(message_id="e")
    run_input = with_input("Hi", config=config)
    await run(stream(STARTED, FINISHED), sent, history=(earlier,), attempt=2, metadata={"n": "1"}, **run_input)
    (body,) = sent
    assert [(each["id"], each["role"], each["content"]) for each in body["messages"]] == [
        ("e", "assistant", "Earlier"),
        ("r-input-0", "user", "Hi"),
    ]
    assert (body["runId"], body["protocolVersion"]) == ("r-2", "1.0")
    assert body["tools"] == [{"name": "weather", "description": "", "parameters": {"type": "object"}}]
    assert body["context"] == [{"description": "d", "value": "v"}]
    assert body["forwardedProps"] == {"x": 1, "babelgate": {"onDisconnect": "cancel", "metadata": {"n": "1"}}}
