"""Tests of the validation of an agent's events: the log stays legal and complete, and reads back unchanged."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.canonical import (
    DataPart,
    Event,
    Fault,
    FaultCode,
    FaultError,
    FilePart,
    Message,
    Record,
    RunReason,
    RunStatus,
    StateHistory,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptAnswered,
    InterruptRaised,
    LossNoted,
    MessageEnded,
    MessageStarted,
    Native,
    PartAdded,
    PartDelta,
    PartEnded,
    RunCreated,
    RunEnded,
    RunRemoved,
    RunStarted,
    StateSaved,
    StepEnded,
    StepStarted,
    TaskChanged,
    TaskCreated,
    ThreadChanged,
    ToolEnded,
    ToolStarted,
    UpstreamBound,
    encode_event,
    files_of,
)
from babelgate.canonical.replay import Diverged, ReplayCursor
from babelgate.canonical.state import TaskState
from babelgate.canonical.stored import decode_event
from babelgate.gateway.ids import new_id
from babelgate.gateway.runs.event_check import EventValidator
from tests import strategies
from tests.examples import examples
from tests.nested import nested

LIMIT = 10_000


def recorder(limit: int = LIMIT) -> EventValidator:
    count = iter(range(1, 1_000_000))
    return EventValidator("node", limit, lambda: f"id{next(count)}")


def recorded(*events: Event, close: bool = True) -> list[Event]:
    validator = recorder()
    entries = [validator.record(event) for event in events]
    return [each[0] for each in (*entries, *(validator.close() if close else ())) if each is not None]


def refused(*events: Event, limit: int = LIMIT) -> str:
    """Return the message with which the last of the events is refused, as a fault of the agent."""
    validator = recorder(limit)
    for event in events[:-1]:
        validator.record(event)
    with pytest.raises(FaultError) as error:
        validator.record(events[-1])
    assert error.value.fault.code is FaultCode.AGENT_INVALID
    assert error.value.fault.blame == "upstream"
    return error.value.fault.message


def opened(words: str = "", **fields: Any) -> PartAdded:
    return PartAdded(part=TextPart(text=words), open=True, **fields)


@pytest.mark.parametrize("extra", [{"a2a": "x"}, {"a2a": {}, "acp": []}, {"openai": 1}])
def test_extra_fields_that_are_no_objects_are_refused(extra: Any) -> None:
    part = TextPart(text="a", extra=extra)
    question = InterruptRaised(message=Message(role="agent", parts=(part,)))
    of_message = InterruptRaised(message=Message(role="agent", extra=extra))
    for events in ([opened(extra=extra)], [PartAdded(part=part)], [question], [of_message]):
        assert "a member of `extra` that is neither a JSON object nor null" in refused(MessageStarted(), *events)
    assert "`extra`" in refused(MessageStarted(), opened(), PartDelta(text="a", extra=extra))


# Ids


def test_missing_ids_are_filled() -> None:
    events = recorded(
        MessageStarted(),
        opened("a"),
        PartDelta(text="b"),
        PartEnded(),
        PartAdded(part=TextPart(text="c")),
        MessageEnded(),
        ToolStarted(name="t"),
        ToolEnded(name="t"),
        StepStarted(name="s"),
        StepEnded(name="s"),
        ArtifactAdded(part=TextPart(text="")),
        StateSaved(values={}),
    )
    for event in events:
        for name in ("message_id", "call_id", "step_id", "artifact_id", "checkpoint_id"):
            assert getattr(event, name, "") is not None, event
    ids = [getattr(event, "message_id") for event in events[:6]]  # noqa: B009
    assert set(ids) == {"id1"}
    assert [getattr(event, "index", None) for event in events[:6]] == [None, 0, 0, 0, 1, None]
    assert events[0] == MessageStarted(message_id="id1", node="node")


def test_ids_of_the_agent_are_preserved() -> None:
    events = recorded(
        MessageStarted(message_id="m", node="n"),
        MessageEnded(message_id="m"),
        ToolStarted(call_id="c", name="t", node="n"),
        ToolEnded(call_id="c", name="t"),
        InterruptRaised(interrupt_id="i", message=Message(message_id="q"), node="n"),
    )
    assert events[0] == MessageStarted(message_id="m", node="n")
    assert events[2] == ToolStarted(call_id="c", name="t", node="n")
    assert events[4] == InterruptRaised(interrupt_id="i", message=Message(message_id="q"), node="n")


def test_an_event_without_id_belongs_to_the_newest_message() -> None:
    events = recorded(MessageStarted(message_id="a"), MessageStarted(message_id="b"), PartAdded(part=TextPart(text="")))
    assert isinstance(events[2], PartAdded) and events[2].message_id == "b"


def test_a_tool_or_step_may_be_ended_by_its_name() -> None:
    events = recorded(ToolStarted(name="a"), ToolStarted(name="b"), ToolEnded(name="a"))
    assert isinstance(events[2], ToolEnded) and events[2].call_id == "id1"


def test_generated_ids_are_unique_across_threads() -> None:
    drawn: list[list[str]] = [[] for _ in range(4)]

    def draw(into: list[str]) -> None:
        into.extend(new_id() for _ in range(20_000))

    threads = [threading.Thread(target=draw, args=(into,)) for into in drawn]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({each for into in drawn for each in into}) == 80_000


# Open messages, tools and steps


def test_open_items_are_closed_in_the_encoders_order() -> None:
    events = recorded(
        MessageStarted(message_id="m"),
        opened("a"),
        ToolStarted(call_id="c", name="t"),
        StepStarted(step_id="s", name="s"),
    )
    assert events[4:] == [
        PartEnded(message_id="m", index=0),
        MessageEnded(message_id="m"),
        ToolEnded(
            call_id="c",
            name="t",
            fault=Fault(code=FaultCode.AGENT_FAILED, message="The run ended before the tool answered"),
        ),
        StepEnded(step_id="s", name="s", node="node"),
    ]


def test_a_new_recorder_closes_items_left_open_before() -> None:
    first = recorder()
    entries = [
        first.record(event) for event in (MessageStarted(), opened("a"), PartDelta(text="b"), ToolStarted(name="t"))
    ]
    records = [Record(seq, 0, "t", "r", 1, each[0]) for seq, each in enumerate(entries, 1) if each is not None]
    started = Record(0, 0, "t", "r", 1, RunStarted())
    second = recorder()
    second.replay([started, *records])
    going_on = second.record(PartDelta(text="c"))
    assert going_on is not None and going_on[0] == PartDelta(message_id="id1", index=0, text="c")
    assert [event.kind for event, _ in second.close()] == ["part_ended", "message_ended", "tool_ended"]


# Refused events


@pytest.mark.parametrize(
    "event",
    [
        ThreadChanged(),
        TaskCreated(task_id="t", agent="a"),
        RunCreated(run_id="r"),
        RunStarted(),
        TaskChanged(state=TaskState.COMPLETED),
        RunRemoved(run_id="r", why="deleted"),
        InterruptAnswered(interrupt_id="i"),
    ],
)
def test_events_reserved_for_the_hub_are_refused(event: Event) -> None:
    assert "only the gateway may append" in refused(event)


@pytest.mark.parametrize("thing", ["text", b"bytes", 1, None, {"kind": "custom"}, object(), Message()])
def test_a_value_that_is_no_event_is_refused(thing: Any) -> None:
    assert "only the gateway may append" in refused(thing)
    refused(RunEnded(), thing)


@pytest.mark.parametrize(
    "events",
    [
        [PartAdded(part=TextPart(text=""))],
        [PartDelta(text="a")],
        [PartEnded()],
        [MessageEnded()],
        [MessageStarted(message_id="a"), PartAdded(message_id="b", part=TextPart(text=""))],
        [MessageStarted(message_id="a"), MessageStarted(message_id="a")],
        [MessageStarted(), PartDelta(text="a")],
        [MessageStarted(), PartAdded(part=TextPart(text="")), PartDelta(text="a")],
        [MessageStarted(), opened(), PartDelta(index=1, text="a")],
        [MessageStarted(), opened(), PartEnded(), PartDelta(text="a")],
        [MessageStarted(), opened(), PartEnded(), PartEnded()],
        [MessageStarted(), opened(), MessageEnded()],
        [MessageStarted(), MessageEnded(), PartAdded(part=TextPart(text=""))],
        [MessageStarted(), PartAdded(part=DataPart(data=1), open=True)],
        [MessageStarted(), PartAdded(part=FilePart(url="https://x.example"), open=True)],
        [ToolEnded(name="t")],
        [ToolStarted(name="t"), ToolEnded(name="u")],
        [StepEnded(name="s")],
        [ArtifactAdded(part=TextPart(text=""), append=True)],
        [ArtifactAdded(artifact_id="a", part=TextPart(text="")), ArtifactAdded(part=TextPart(text=""), append=True)],
        [InterruptRaised(interrupt_id="i"), InterruptRaised(interrupt_id="i")],
        [RunEnded(), Custom()],
        [RunEnded(), RunEnded()],
        [RunEnded(status=RunStatus.PAUSED)],
        [RunEnded(status=RunStatus.PENDING)],
    ],
    ids=lambda events: "+".join(event.kind for event in events),
)
def test_an_event_that_no_encoder_can_show_is_refused(events: Sequence[Event]) -> None:
    refused(*events)


NOT_JSON: dict[str, Any] = {
    "nan": float("nan"),
    "infinity": float("-inf"),
    "surrogate": "\ud800",
    "deep": nested(1000),
    "object": object(),
    "bytes": b"a",
    "set": {1},
    "key": {1: 2},
    "surrogate key": {"\udfff": 1},
    "inner": {"a": [{"b": float("nan")}]},
}

PLACES: dict[str, Callable[[Any], Event]] = {
    "data": lambda bad: PartAdded(part=DataPart(data=bad)),
    "part metadata": lambda bad: PartAdded(part=TextPart(text="", metadata={"a": bad})),
    "part extra": lambda bad: PartAdded(part=TextPart(text="", extra={"a": bad})),
    "tool result": lambda bad: PartAdded(part=ToolResultPart(call_id="c", output=bad)),
    "message metadata": lambda bad: MessageStarted(metadata={"a": bad}),
    "usage": lambda bad: MessageEnded(usage={"a": bad}),
    "custom": lambda bad: Custom(name="", ns=(), value=bad, extra={}),
    "native": lambda bad: Native(protocol="p", event="e", data=bad),
    "artifact metadata": lambda bad: ArtifactAdded(part=TextPart(text=""), metadata={"a": bad}),
    "tool input": lambda bad: ToolStarted(call_id=None, name="t", input=bad, node="", extra={}),
    "state": lambda bad: StateSaved(values={"a": bad}),
    "delta": lambda bad: StateSaved(delta={"a": bad}),
    "question": lambda bad: InterruptRaised(
        interrupt_id=None, ask="input", message=Message(), value=bad, answer_schema=None, node="", ns=(), extra={}
    ),
    "question's message": lambda bad: InterruptRaised(message=Message(metadata={"a": bad})),
    "question's part": lambda bad: InterruptRaised(message=Message(parts=(TextPart(text="", extra={"a": bad}),))),
    "answer schema": lambda bad: InterruptRaised(answer_schema={"a": bad}),
    "extra": lambda bad: LossNoted(feature="f", how="h", extra={"a": bad}),
    "output": lambda bad: RunEnded(
        status=RunStatus.SUCCESS, reason=RunReason.DONE, fault=None, output=bad, usage={}, extra={}
    ),
    "run usage": lambda bad: RunEnded(usage={"a": bad}),
    "run extra": lambda bad: RunEnded(extra={"a": bad}),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("bad", NOT_JSON)
def test_a_value_that_is_not_json_is_refused_everywhere(place: str, bad: str) -> None:
    refused(MessageStarted(message_id="m"), PLACES[place](NOT_JSON[bad]))


@pytest.mark.parametrize(
    "event",
    [
        PartAdded(part=TextPart(text="\ud800", metadata={}, extra={}, media_type=None)),
        MessageStarted(message_id="x").replace(name="\ud800"),
        UpstreamBound(protocol="p", ids={}).replace(ids={"task": "\ud800"}),
        RunEnded(fault=Fault(code=FaultCode.AGENT_FAILED, message="\ud800", details={})),
        RunEnded().replace(status="whatever"),
        *(MessageStarted().replace(name=name) for name in cast("list[Any]", [object(), 5, ["a"]])),
        PartAdded(message_id="m", part=cast("Any", None)),
        StepStarted(step_id="s", name=cast("Any", None)),
    ],
)
def test_unencodable_text_and_invalid_values_are_refused(event: Event) -> None:
    refused(MessageStarted(message_id="m"), event)


def test_only_an_event_over_the_limit_is_refused() -> None:
    size = len(encode_event(Custom(name="c", value="")))
    validator = recorder()
    assert validator.record(Custom(name="c", value="x" * (LIMIT - size))) is not None
    assert "limit" in refused(Custom(name="c", value="x" * (LIMIT - size + 1)))
    assert "limit" in refused(RunEnded(output="x" * LIMIT))
    assert "limit" in refused(MessageStarted(), opened(), PartDelta(text="é" * (LIMIT // 2)))


def test_the_total_output_of_a_run_is_limited() -> None:
    event = Custom(name="c", value="x" * 1000)
    size = len(encode_event(event))
    validator = EventValidator("node", LIMIT, output_limit=3 * size)
    for _ in range(3):
        assert validator.record(event) is not None
    with pytest.raises(FaultError, match=f"events of the run are larger than the limit of {3 * size} bytes") as error:
        validator.record(MessageStarted())
    assert error.value.fault.code is FaultCode.AGENT_INVALID
    assert validator.close() == []


def test_earlier_attempts_count_for_the_limit_of_a_run() -> None:
    event = Custom(name="c", value="x" * 1000)
    size = len(encode_event(event))
    validator = EventValidator("node", LIMIT, output_limit=3 * size)
    validator.replay([Record(seq, 0, "t", "r", 1, event) for seq in (1, 2)])
    assert validator.record(event) is not None
    with pytest.raises(FaultError, match="events of the run are larger"):
        validator.record(event)


def test_a_run_end_is_remembered_but_not_recorded() -> None:
    validator = recorder()
    assert validator.record(RunEnded(output=1)) is None
    assert validator.ended == RunEnded(output=1)


def test_a_pause_with_a_question_is_recorded_as_success() -> None:
    validator = recorder()
    validator.record(InterruptRaised())
    validator.record(RunEnded(status=RunStatus.PAUSED, reason=RunReason.AUTH, usage={"a": 1}))
    assert validator.ended == RunEnded(usage={"a": 1})


def test_files_of_an_event_are_stored() -> None:
    stored, linked = FilePart(blob="0" * 64), FilePart(url="https://x.example")
    assert files_of(PartAdded(part=stored)) == [stored]
    assert files_of(ArtifactAdded(part=linked)) == []
    assert files_of(InterruptRaised(message=Message(parts=(stored, linked, TextPart(text=""))))) == [stored]
    assert files_of(Custom()) == []


@pytest.mark.parametrize(
    "events",
    [
        [MessageStarted(metadata={"a": float("nan")})],
        [MessageStarted(), opened(extra={"a": float("nan")})],
        [MessageStarted(), opened(), PartEnded(extra={"a": float("nan")})],
        [MessageStarted(), opened(), PartEnded(), MessageEnded(usage={"a": float("nan")})],
        [ToolStarted(name="t", extra={"a": float("nan")})],
        [ToolStarted(name="t"), ToolEnded(name="t", extra={"a": float("nan")})],
        [StepStarted(name="s", extra={"a": float("nan")})],
        [StepStarted(name="s"), StepEnded(name="s", extra={"a": float("nan")})],
    ],
    ids=lambda events: "+".join(event.kind for event in events),
)
def test_a_refused_event_opens_and_closes_nothing(events: Sequence[Event]) -> None:
    validator = recorder()
    accepted = [entry[0] for event in events[:-1] if (entry := validator.record(event)) is not None]
    with pytest.raises(FaultError):
        validator.record(events[-1])
    legal([*accepted, *(event for event, _ in validator.close())])


def test_a_refused_event_consumes_no_number_and_no_id() -> None:
    validator = recorder()
    bad: dict[str, Any] = {"extra": {"a": float("nan")}}
    question = InterruptRaised(interrupt_id="q", message=Message(message_id="m"))
    for event in (MessageStarted(), opened(), PartDelta(text="one")):
        validator.record(event)
    refused_next: list[Event] = [
        PartDelta(text="two", **bad),
        PartAdded(part=TextPart(text="two"), **bad),
        ArtifactAdded(artifact_id="a", part=TextPart(text="two"), **bad),
        question.replace(**bad),
    ]
    for event in refused_next:
        with pytest.raises(FaultError):
            validator.record(event)
    entry = validator.record(PartAdded(part=TextPart(text="three")))
    assert entry is not None
    assert isinstance(entry[0], PartAdded)
    assert entry[0].index == 1
    with pytest.raises(FaultError, match="not begun"):
        validator.record(ArtifactAdded(artifact_id="a", part=TextPart(text="two"), append=True))
    with pytest.raises(FaultError, match="no open question"):
        validator.record(RunEnded(status=RunStatus.PAUSED))
    assert validator.record(question) is not None


@pytest.mark.parametrize("kind", [ToolStarted, StepStarted])
def test_an_item_started_twice_is_ended_once(kind: Any) -> None:
    started = kind(name="n", **{"call_id" if kind is ToolStarted else "step_id": "x"})
    validator = recorder()
    validator.record(started)
    validator.record(started)
    with pytest.raises(FaultError):
        validator.record(started.replace(extra={"a": float("nan")}))
    assert len(validator.close()) == 1


# Any agent


def legal(events: Sequence[Event]) -> None:
    """Assert that an encoder can show events: only open things end, and nothing is open at the end."""
    messages: dict[str, set[int]] = {}
    tools: set[str] = set()
    steps: set[str] = set()
    for event in events:
        match event:
            case MessageStarted():
                assert event.message_id not in messages
                messages[event.message_id or ""] = set()
            case PartAdded():
                parts = messages[event.message_id or ""]
                if event.open:
                    parts.add(event.index or 0)
            case PartDelta():
                assert event.index in messages[event.message_id or ""]
            case PartEnded():
                messages[event.message_id or ""].remove(event.index or 0)
            case MessageEnded():
                assert not messages.pop(event.message_id or "")
            case ToolStarted():
                tools.add(event.call_id or "")
            case ToolEnded():
                tools.remove(event.call_id or "")
            case StepStarted():
                steps.add(event.step_id or "")
            case StepEnded():
                steps.remove(event.step_id or "")
            case _:
                pass
    assert not (messages or tools or steps)


def blind() -> st.SearchStrategy[Event]:
    """Generate events of an agent that does not track which ids and indexes are open."""
    ids = st.none() | st.sampled_from(("a", "b"))
    index = st.none() | st.integers(0, 2)
    extra = st.just(dict[str, Any]()) | st.just({"a": float("nan")})
    part = st.builds(TextPart, text=st.just("x")) | st.builds(ToolCallPart, call_id=st.just("c"), name=st.just("n"))
    name = st.sampled_from(("t", "u"))
    return st.one_of(
        st.builds(MessageStarted, message_id=ids),
        st.builds(PartAdded, message_id=ids, part=part, open=st.booleans()),
        st.builds(PartDelta, message_id=ids, index=index, text=st.just("y")),
        st.builds(PartEnded, message_id=ids, index=index),
        st.builds(MessageEnded, message_id=ids, extra=extra),
        st.builds(ToolStarted, call_id=ids, name=name, extra=extra),
        st.builds(ToolEnded, call_id=ids, name=name),
        st.builds(StepStarted, step_id=ids, name=name),
        st.builds(StepEnded, step_id=ids, name=name),
        st.builds(ArtifactAdded, artifact_id=ids, part=part, append=st.booleans()),
        st.builds(InterruptRaised, interrupt_id=ids),
    )


@examples(150)
@given(st.lists(blind(), max_size=25))
def test_any_sequence_of_events_gives_a_legal_log(events: list[Event]) -> None:
    validator = recorder()
    accepted: list[Event] = []
    for event in events:
        try:
            entry = validator.record(event)
        except FaultError as error:
            assert error.fault.code is FaultCode.AGENT_INVALID
            break  # the run ends at the first mistake
        assert entry is not None
        accepted.append(entry[0])
    legal([*accepted, *(event for event, _ in validator.close())])


@examples(100)
@given(strategies.agent_events())
def test_recorded_events_are_read_back_unchanged(events: list[Event]) -> None:
    validator = recorder(10**7)
    entries = [entry for event in events if (entry := validator.record(event)) is not None]
    assert validator.close() == []
    for event, body in entries:
        assert decode_event(body) == event
    assert [event for event, _ in entries] == recorded(*events, close=False)


@examples(100)
@given(st.lists(st.text(st.characters()), max_size=5), st.sampled_from((None, "m")), st.sampled_from((None, 0)))
def test_text_added_to_the_newest_part_is_read_back(
    texts: list[str], message_id: str | None, index: int | None
) -> None:
    validator = recorder(10**7)
    for event in (MessageStarted(message_id="m"), opened()):
        validator.record(event)
    for text in texts:
        delta = PartDelta(text=text, message_id=message_id, index=index)
        if any("\ud800" <= sign <= "\udfff" for sign in text):
            with pytest.raises(FaultError, match="not JSON"):
                validator.record(delta)
            continue
        event, body = cast("tuple[Event, bytes]", validator.record(delta))
        assert event == decode_event(body) == PartDelta(message_id="m", index=0, text=text)


def test_a_state_is_stored_as_its_changes_and_read_whole() -> None:
    texts = [f"{number} " * 20 for number in range(60)]
    states = [StateSaved(values={"said": texts[: count + 1], "count": count}) for count in range(60)]
    stored, history = recorded(*states), StateHistory("t")
    for seq, (state, event) in enumerate(zip(states, stored, strict=True), 1):
        checkpoint_id = history.apply(Record(seq, seq, "t", "r", 1, event))
        assert history.values_of(checkpoint_id or "") == state.values
    assert isinstance(stored[-1], StateSaved) and stored[-1].change is not None
    assert sum(len(encode_event(event)) for event in stored) < 5 * len(encode_event(states[-1]))
    again = ReplayCursor(stored)
    assert [news for state in states for news in again.new_events(state)] == []
    again.end()
    with pytest.raises(Diverged):
        ReplayCursor(stored[:2]).new_events(states[1])


def test_a_state_is_copied_when_it_is_sent() -> None:
    validator, values = recorder(), {"said": ["a" * 100]}
    validator.record(StateSaved(values=values))
    values["said"].append("b" * 20)
    event = (validator.record(StateSaved(values=values)) or (None, b""))[0]
    assert isinstance(event, StateSaved) and event.change is not None
    assert event.change.new == {"in": {"said": {"keep": 1, "add": ["b" * 20]}}}
    for _ in range(2):
        named = StateSaved(checkpoint_id="mine", values=values)
        assert (validator.record(named) or (None, b""))[0] == named
