"""Readers of both APIs: any stream becomes a legal run or a fault, and a stream and a whole answer become the same
run."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.adapters.openai.read.chat import ChatReader
from babelgate.adapters.openai.read.responses import ResponseReader
from babelgate.canonical import Event, FaultCode, FaultError, ReasoningPart, RunStatus, TextPart
from babelgate.canonical.event import (
    InterruptRaised,
    LossNoted,
    Native,
    PartAdded,
    PartDelta,
    RunEnded,
    ToolEnded,
    ToolStarted,
)
from babelgate.canonical.value import JsonObject
from babelgate.conformance.contract.referee import Referee, Transcript
from tests.adapters.openai.model import Answer, Call, Response, chunks, completion

RUN = "22222222-2222-4222-8222-222222222222"


def transcript_of(events: Iterator[Event] | Sequence[Event]) -> Transcript:
    """Return the transcript of a run, as a hub would receive it. Fails if an event is not legal."""
    referee = Referee()
    for event in events:
        referee.see(event)
    return referee.transcript


def read_chat(*values: Any, done: bool = False) -> Transcript:
    def events() -> Iterator[Event]:
        reader = ChatReader(RUN)
        for value in values:
            yield from reader.read(value)
        yield from reader.end(done=done)

    return transcript_of(events())


def read_response(*values: Any) -> Transcript:
    def events() -> Iterator[Event]:
        reader = ResponseReader()
        for value in values:
            yield from reader.read(value)
        reader.end()

    return transcript_of(events())


def delta(finish: str | None = None, **members: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": members, "finish_reason": finish}]}


def calls_of(transcript: Transcript) -> list[Any]:
    return [event.value for event in transcript.events if isinstance(event, InterruptRaised)]


# Any stream

Strategy = st.SearchStrategy[Any]

JSON: Strategy = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
TEXT = st.text(max_size=3)
INDEX = st.integers(0, 2)
CITED: Strategy = st.fixed_dictionaries(
    {"type": st.sampled_from(["url_citation", "file_citation"])},
    optional={"start_index": INDEX, "end_index": INDEX, "url": TEXT, "url_citation": st.just({"url": "u"})},
)
TOOL: Strategy = st.fixed_dictionaries(
    {},
    optional={
        "index": INDEX,
        "id": st.sampled_from(["", "a", "b"]),
        "type": st.sampled_from(["function", "custom"]),
        "function": st.fixed_dictionaries({}, optional={"name": TEXT, "arguments": TEXT | st.just({"a": 1})}),
        "custom": st.fixed_dictionaries({}, optional={"name": TEXT, "input": TEXT}),
    },
)
DELTA: Strategy = st.fixed_dictionaries(
    {},
    optional={
        "content": st.none() | TEXT | st.lists(st.fixed_dictionaries({"type": TEXT, "text": TEXT}), max_size=2),
        "refusal": st.none() | TEXT,
        "reasoning_content": TEXT,
        "reasoning": JSON,
        "tool_calls": st.none() | st.lists(TOOL, max_size=2),
        "annotations": st.lists(CITED, max_size=2),
        "function_call": st.just({"name": "f", "arguments": "{}"}),
    },
)


def chunk(message: Any, finish: Any, index: Any, key: Any) -> Any:
    return {"choices": [{"index": index, key: message, "finish_reason": finish}]}


CHUNK = st.builds(
    chunk,
    DELTA,
    st.none() | st.sampled_from(["stop", "length", "tool_calls", "content_filter", "new"]),
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from(["delta", "message"]),
)
PART: Strategy = st.fixed_dictionaries(
    {"type": TEXT}, optional={"text": TEXT, "refusal": TEXT, "annotations": st.lists(CITED, max_size=2)}
)
ITEM: Strategy = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            [
                "custom_tool_call",
                "function_call",
                "image_generation_call",
                "mcp_approval_request",
                "mcp_call",
                "message",
                "new",
                "reasoning",
                "web_search_call",
            ]
        )
    },
    optional={
        "id": st.sampled_from(["x", "y", "z"]),
        "phase": st.sampled_from(["commentary", "final_answer"]),
        "content": st.lists(PART, max_size=2),
        "summary": st.lists(st.fixed_dictionaries({"text": TEXT}), max_size=2),
        "call_id": st.sampled_from(["a", "b"]),
        "name": TEXT,
        "arguments": TEXT,
        "input": TEXT,
        "output": JSON,
        "error": JSON,
        "result": st.sampled_from(["AAE=", "no base64!"]),
    },
)
WHOLE: Strategy = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["r1", "r2"]),
        "status": st.sampled_from(["completed", "incomplete", "in_progress", "cancelled", "failed"]),
        "output": st.none() | st.lists(ITEM, max_size=3),
        "incomplete_details": st.none() | st.just({"reason": "content_filter"}),
        "previous_response_id": st.none() | TEXT,
        "store": st.booleans(),
        "usage": st.none() | st.just({"input_tokens": 1}),
    },
)
TYPES = [
    "response.created",
    "response.output_item.added",
    "response.output_item.done",
    "response.output_text.delta",
    "response.output_text.done",
    "response.output_text.annotation.added",
    "response.refusal.delta",
    "response.refusal.done",
    "response.reasoning_summary_text.delta",
    "response.reasoning_summary_text.done",
    "response.reasoning_text.delta",
    "response.function_call_arguments.delta",
    "response.unheard_of",
]
EVENT: Strategy = st.fixed_dictionaries(
    {"type": st.sampled_from(TYPES)},
    optional={
        "response": WHOLE,
        "item": ITEM,
        "part": PART,
        "annotation": CITED,
        "item_id": st.sampled_from(["x", "y"]),
        "output_index": INDEX,
        "content_index": INDEX,
        "summary_index": INDEX,
        "delta": TEXT,
        "text": TEXT,
        "refusal": TEXT,
    },
)


def ending(kind: str, response: Any) -> Any:
    return {"type": f"response.{kind}", "response": response}


END = st.builds(ending, st.sampled_from(["completed", "incomplete", "failed", "cancelled"]), WHOLE)


@given(st.lists(CHUNK, max_size=6), st.booleans())
def test_any_completion_becomes_a_legal_run_or_a_fault(given_chunks: list[Any], done: bool) -> None:
    try:
        transcript = read_chat(*given_chunks, done=done)
    except FaultError as error:
        assert error.fault.code is FaultCode.AGENT_UNREACHABLE
        return
    assert transcript.ended is not None
    assert (transcript.ended.status is RunStatus.PAUSED) == bool(transcript.questions)


@given(st.lists(EVENT, max_size=8), END)
def test_any_response_becomes_a_legal_run_or_a_fault(events: list[Any], end: Any) -> None:
    try:
        transcript = read_response(*events, end)
    except FaultError as error:
        assert error.fault.code in (FaultCode.AGENT_FAILED, FaultCode.INVALID)
        return
    assert transcript.ended is not None
    assert (transcript.ended.status is RunStatus.PAUSED) == bool(transcript.questions)


@given(JSON)
def test_any_json_raises_at_most_a_fault(value: Any) -> None:
    for read in (read_chat, read_response):
        with pytest.raises(FaultError):
            read(value)


# Streams and whole answers

NAMES = st.text("abc_", min_size=1, max_size=4)
ANSWERS = st.builds(
    Answer,
    text=st.text("ab \u2028é\n", max_size=12),
    thought=st.text("xy ", max_size=8),
    refusal=st.text("no ", max_size=6),
    calls=st.lists(st.builds(Call, name=NAMES, arguments=st.sampled_from(["{}", '{"a": [1]}'])), max_size=1).map(tuple),
    finish=st.none() | st.sampled_from(["length", "content_filter"]),
)


def summary_of(transcript: Transcript) -> Any:
    endings = [event for event in transcript.events if event.kind == "message_ended"]
    return (
        [(part.kind, getattr(part, "text", None)) for message in transcript.messages for part in message.parts],
        calls_of(transcript),
        [getattr(event, "finish", None) for event in endings],
        transcript.ended.usage.get("total_tokens") if transcript.ended is not None else None,
    )


@given(ANSWERS)
def test_streamed_and_whole_answers_become_the_same_run(answer: Answer) -> None:
    streamed = summary_of(read_chat(*chunks("m", answer)))
    assert summary_of(read_chat(completion("m", answer))) == streamed
    response = Response("resp_1", {"model": "m"}, answer)
    response_summary = summary_of(transcript_of(ResponseReader().whole(response.whole())))
    assert summary_of(read_response(*response.events())) == response_summary
    assert response_summary == streamed


SPARE = [
    "response.content_part.added",
    "response.content_part.done",
    "response.function_call_arguments.done",
    "response.in_progress",
    "response.output_item.done",
    "response.output_text.done",
    "response.reasoning_summary_text.done",
    "response.refusal.done",
]
"""Types of events that repeat what another event holds."""


@given(ANSWERS, st.data())
def test_response_without_redundant_events_becomes_the_same_run(answer: Answer, data: st.DataObject) -> None:
    events = Response("resp_1", {"model": "m"}, answer).events()
    spare = data.draw(st.sets(st.sampled_from(SPARE)))
    remaining = [event for event in events if event["type"] not in spare]
    assert summary_of(read_response(*remaining)) == summary_of(read_response(*events))


def test_response_without_deltas_takes_its_text_from_done_events() -> None:
    answer = Answer(text="a b", thought="t", refusal="r")
    events = Response("resp_1", {"model": "m"}, answer).events()
    remaining = [event for event in events if not event["type"].endswith(".delta")]
    assert summary_of(read_response(*remaining)) == summary_of(read_response(*events))


# Deviations of compatible servers


def test_repeated_role_and_other_choices_are_ignored() -> None:
    both = {"choices": [{"index": 1, "delta": {"content": "x"}}, {"index": 0, "delta": {"content": "b"}}]}
    transcript = read_chat(
        delta(role="assistant", content="a"), both, delta(role="assistant", content="c"), delta("stop")
    )
    assert transcript.text == "abc"


def tool(arguments: Any = "{}", index: int = 0, **more: Any) -> dict[str, Any]:
    return {"index": index, "function": {"name": "f", "arguments": arguments}, **more}


def tools(*each: dict[str, Any]) -> dict[str, Any]:
    return delta(tool_calls=list(each))


CALLS: list[tuple[list[Any], list[tuple[str | None, Any]]]] = [
    ([tools(tool(id="a")), tools(tool(id="b"))], [("a", {}), ("b", {})]),
    ([tools(tool('{"x":', id="a")), tools(tool("1}", id="a"))], [("a", {"x": 1})]),
    ([tools(tool({"x": 1}), tool({"x": 2}, 1))], [(f"call_{RUN}_0", {"x": 1}), (f"call_{RUN}_1", {"x": 2})]),
    ([tools({"index": 3, "id": "a", "function": {"name": "f"}})], [("a", {})]),
    ([tools(tool("{x", id="a"))], [("a", "{x")]),
    ([delta(function_call={"name": "f", "arguments": "{"}), delta(function_call={"arguments": "}"})], [(None, {})]),
]


@pytest.mark.parametrize(
    ("chunks", "calls"),
    CALLS,
    ids=["one index", "an id twice", "no ids", "an index of 3", "no JSON", "a function of before there were tools"],
)
def test_tool_calls_are_read_in_every_form(chunks: list[Any], calls: list[tuple[str | None, Any]]) -> None:
    received = calls_of(read_chat(*chunks, delta("tool_calls")))
    assert {call["name"] for call in received} == {"f"}
    expected = [(call_id or received[0]["call_id"], arguments) for call_id, arguments in calls]
    assert [(call["call_id"], call["arguments"]) for call in received] == expected


def test_call_cut_off_by_the_token_limit_is_dropped() -> None:
    transcript = read_chat(delta("length", tool_calls=[tool(id="c0"), tool('{"x', 1, id="c1")]))
    assert [call["call_id"] for call in calls_of(transcript)] == ["c0"]
    assert [event.feature for event in transcript.events if isinstance(event, LossNoted)] == ["caller-tools"]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_both_names_of_the_reasoning_field_are_preserved(name: str) -> None:
    transcript = read_chat(delta(**{name: "hm"}), delta(**{name: " yes"}), delta(content="ok"), delta("stop"))
    [added] = [
        event.part for event in transcript.events if isinstance(event, PartAdded) and event.part.kind == "reasoning"
    ]
    assert isinstance(added, ReasoningPart)
    assert added.extra == {"openai": {"field": name}}
    assert transcript.messages[0].parts[0] == ReasoningPart(text="hm yes", extra={"openai": {"field": name}})


def test_content_in_parts_becomes_text_and_reasoning() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    transcript = read_chat(delta("stop", content=[thinking, {"type": "text", "text": "ok"}]))
    assert [part.kind for part in transcript.messages[0].parts] == ["reasoning", "text"]
    assert transcript.text == "ok"


def test_every_delta_becomes_one_event() -> None:
    transcript = read_chat(*(delta(content=text) for text in "abc"), delta("stop"))
    assert [
        event.part.text
        if isinstance(event, PartAdded) and isinstance(event.part, TextPart)
        else getattr(event, "text", "")
        for event in transcript.events
        if isinstance(event, PartAdded | PartDelta)
    ] == ["a", "b", "c"]


def test_citations_count_from_the_start_of_the_message() -> None:
    def text(number: int, words: str) -> Any:
        cited = {"type": "url_citation", "start_index": 0, "end_index": 2, "url": f"http://{number}"}
        return {"type": "output_text", "text": words, "annotations": [cited]}

    item = {"type": "message", "id": "m", "content": [text(0, "four"), text(1, "more")]}
    response: Any = {"id": "r", "status": "completed", "output": [item]}
    transcript = transcript_of(ResponseReader().whole(response))
    cited = [part for part in transcript.messages[0].parts if part.kind == "annotation"]
    assert [(part.start, part.end) for part in cited] == [(0, 2), (4, 6)]


def test_response_cancelled_upstream_ends_the_run_as_cancelled() -> None:
    events = Response("resp_1", {"model": "m"}, Answer(text="half")).events()
    end: Any = {"type": "response.incomplete", "response": {"id": "resp_1", "status": "cancelled", "output": []}}
    transcript = read_response(*events[:5], end)
    assert transcript.ended is not None
    assert transcript.ended.status is RunStatus.CANCELLED


def test_queued_response_is_rejected() -> None:
    with pytest.raises(FaultError):
        ResponseReader().whole({"id": "r", "status": "queued"})


def test_usage_of_chat_completions_uses_canonical_names() -> None:
    transcript = read_chat(
        delta("stop"), {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "x": None}}
    )
    assert isinstance(transcript.ended, RunEnded)
    assert transcript.ended.usage == {"input_tokens": 1, "output_tokens": 2}


def test_last_event_without_reasoning_items_repeats_nothing() -> None:
    """Check that items are recognized although their indices in the last event differ from those in the stream."""
    answer = Answer(text="a b", thought="t", citations=((0, 1, "http://page"),))
    events = Response("resp_1", {"model": "m"}, answer).events()
    whole = events[-1]["response"]
    short = {**events[-1], "response": {**whole, "output": whole["output"][1:]}}
    assert summary_of(read_response(*events[:-1], short)) == summary_of(read_response(*events))


def test_two_message_items_become_two_messages() -> None:
    def item(name: str) -> Any:
        return {"type": "message", "id": name, "content": [{"type": "output_text", "text": name}]}

    transcript = transcript_of(
        ResponseReader().whole({"id": "r", "status": "completed", "output": [item("a"), item("b")]})
    )
    assert [message.text for message in transcript.messages] == ["a", "b"]


# Functions that the server calls itself


def test_function_call_with_its_output_is_not_a_question() -> None:
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "weather", "arguments": '{"city":"Rome"}'}
    output = {"type": "function_call_output", "id": "o_1", "call_id": "c1", "output": '{"temp":21}'}
    message = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "Sunny."}]}
    other = {**call, "id": "fc_2", "call_id": "c2", "name": "ask"}
    body: JsonObject = {"id": "r", "status": "completed", "output": [call, output, message]}
    whole = transcript_of(ResponseReader().whole(body))
    streamed = read_response(
        *(
            {"type": "response.output_item.done", "output_index": at, "item": each}
            for at, each in enumerate(body["output"])
        ),
        {"type": "response.completed", "response": body},
    )
    for transcript in (whole, streamed):
        tools = [event for event in transcript.events if isinstance(event, ToolStarted | ToolEnded)]
        assert tools == [
            ToolStarted(call_id="c1", name="weather", input={"city": "Rome"}),
            ToolEnded(call_id="c1", name="weather", output={"temp": 21}),
        ]
        assert (calls_of(transcript), transcript.text) == ([], "Sunny.")
    body["output"] = [call, output, other]
    asking = transcript_of(ResponseReader().whole(body))
    assert [question["call_id"] for question in calls_of(asking)] == ["c2"]


def test_output_without_a_call_is_a_noted_loss() -> None:
    output = {"type": "function_call_output", "call_id": "c1", "output": "x"}
    body: JsonObject = {"id": "r", "status": "completed", "output": [output]}
    transcript = transcript_of(ResponseReader().whole(body))
    assert [event.feature for event in transcript.events if isinstance(event, LossNoted)] == ["custom"]


def test_unknown_members_of_a_completion_are_limited() -> None:
    whole = completion("m", Answer(text="Hi")) | {"x_cost": {"usd": 0.1}}
    [about] = natives(whole)
    assert about.extra["openai"]["x_cost"] == {"usd": 0.1}
    assert natives(whole | {"x": "x" * 70_000}) == []
    losses = [event.how for event in read_chat(whole | {"x": "x" * 70_000}).events if isinstance(event, LossNoted)]
    assert len(losses) == 1 and "too large" in losses[0]


def natives(whole: Any) -> list[Native]:
    return [event for event in read_chat(whole).events if isinstance(event, Native)]
