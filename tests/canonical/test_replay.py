"""Replay: an agent that is started again repeats events which the log has already."""

import hashlib
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.canonical import Event, FaultCode, FaultError, FilePart, Message, Record, TextPart
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptAnswered,
    InterruptRaised,
    LossNoted,
    MessageEnded,
    MessageStarted,
    PartAdded,
    PartDelta,
    PartEnded,
    RunCreated,
    RunEnded,
    RunStarted,
    StepEnded,
    StepStarted,
    TaskChanged,
    ToolEnded,
    ToolStarted,
    UpstreamBound,
)
from babelgate.canonical.message import ReasoningPart, RefusalPart
from babelgate.canonical.replay import Diverged, ReplayCursor, agent_events, is_same_event, replay_plan, without_voided
from tests import strategies

IDS = ("message_id", "index", "call_id", "step_id", "artifact_id", "interrupt_id", "checkpoint_id")


def without_ids(event: Event) -> Event:
    """Return the event as an agent emits it that leaves ids to the hub."""
    update: dict[str, Any] = {name: None for name in IDS if name in type(event).__struct_fields__}
    if isinstance(event, InterruptRaised):
        update["message"] = event.message.replace(message_id=None)
    if "node" in type(event).__struct_fields__:
        update["node"] = ""
    return event.replace(**update)


def rest(events: Iterable[Event], earlier: Sequence[Event], **options: bool) -> list[Event]:
    """Return the events that are new to a cursor which replays the earlier ones."""
    before = ReplayCursor(earlier, **options)
    new = [news for event in events for news in before.new_events(event)]
    before.end()
    return new


@given(strategies.agent_events(), st.data())
def test_exactly_the_repeated_start_is_dropped(events: list[Event], data: st.DataObject):
    cut = data.draw(st.integers(0, len(events)))
    assert rest(events, events[:cut]) == events[cut:]


def cut(draw: Any, events: Iterable[Event]) -> list[Event]:
    """Return the same events, with the text of each part cut in random places."""
    pieces: list[Event] = []
    for event in content(events):
        if not isinstance(event, PartDelta):
            pieces.append(event)
            continue
        places = sorted(draw(st.sets(st.integers(1, max(1, len(event.text) - 1)), max_size=3)))
        bounds = [0, *(place for place in places if place < len(event.text)), len(event.text)]
        pieces += [event.replace(text=event.text[a:b]) for a, b in pairwise(bounds)]
    return pieces


def content(events: Iterable[Event]) -> list[Event]:
    """Return the same events, with the text of each part in one delta."""
    merged: list[Event] = []
    for event in events:
        texts: list[Event] = []
        if isinstance(event, PartDelta):
            texts = [event] if event.text else []
        elif isinstance(event, PartAdded) and isinstance(event.part, TextPart | ReasoningPart | RefusalPart):
            merged.append(event.replace(part=event.part.replace(text=""), open=True))
            texts = [PartDelta(message_id=event.message_id, index=event.index, text=event.part.text)]
            texts = texts if event.part.text else []
        else:
            merged.append(event)
        if texts and isinstance(merged[-1], PartDelta):
            merged[-1] = merged[-1].replace(text=merged[-1].text + event.text)  # type: ignore[union-attr]
        else:
            merged += texts
        if isinstance(event, PartAdded) and merged[-1] is not event and not event.open:
            merged.append(PartEnded(message_id=event.message_id, index=event.index))
    return merged


@given(strategies.agent_events(), st.data())
def test_repeated_text_matches_despite_other_deltas(events: list[Event], data: st.DataObject):
    before = cut(data.draw, events)
    before = before[: data.draw(st.integers(0, len(before)))]
    again = data.draw(st.sampled_from([events, cut(data.draw, events)]))
    assert content([*before, *rest(again, before, closed=False)]) == content(events)
    nameless = [without_ids(event) for event in again]
    assert len(rest(nameless, before, closed=False)) == len(rest(again, before, closed=False))


@given(strategies.agent_events(), st.data())
def test_repeated_events_match_without_the_hubs_ids(events: list[Event], data: st.DataObject):
    cut = data.draw(st.integers(0, len(events)))
    again = [without_ids(event) for event in events]
    assert rest(again, events[:cut]) == again[cut:]


@given(strategies.agent_events(), st.data())
def test_a_different_event_is_a_divergence(events: list[Event], data: st.DataObject):
    cut = data.draw(st.integers(0, len(events)))
    other = Custom(name="other than everything", value=["other"])
    earlier = [*events[:cut], Custom(name="said"), *events[cut:]]
    with pytest.raises(FaultError) as raised:
        rest([*events[:cut], other, *events[cut:]], earlier)
    assert raised.value.fault.code is FaultCode.AGENT_NOT_REPLAYABLE


def test_an_incomplete_repetition_is_a_divergence():
    earlier: list[Event] = [Custom(name="a"), Custom(name="b")]
    with pytest.raises(FaultError, match="ended after 1 of 2 logged events") as raised:
        rest([Custom(name="a")], earlier)
    assert raised.value.fault.code is FaultCode.AGENT_NOT_REPLAYABLE


def test_closings_by_the_hub_need_no_repetition():
    opened: list[Event] = [MessageStarted(), PartAdded(part=TextPart(text="a"), open=True), StepStarted(name="s")]
    question = InterruptRaised(message=Message.of("?"))
    closed: list[Event] = [PartEnded(message_id="m", index=0), MessageEnded(message_id="m"), StepEnded(name="s")]
    live = Custom(name="live")
    assert rest([*opened, question, live], [*opened, question, *closed]) == [live]
    assert rest([*opened, question], [*opened, question, *closed]) == []


def test_closings_by_the_agent_are_repeated_and_dropped():
    earlier: list[Event] = [
        MessageStarted(),
        PartAdded(part=TextPart(text="a"), open=True),
        PartEnded(),
        MessageEnded(),
    ]
    assert rest([*earlier, Custom()], earlier) == [Custom()]


@pytest.mark.parametrize(
    ("earlier", "again", "same"),
    [
        (PartDelta(text="a"), PartDelta(text="a"), True),
        (PartDelta(text="a"), PartDelta(text="b"), False),
        (PartDelta(message_id="m", index=0, text="a"), PartDelta(text="a"), True),
        (PartDelta(message_id="m", text="a"), PartDelta(message_id="n", text="a"), False),
        (MessageStarted(message_id="m", node="echo"), MessageStarted(), True),
        (MessageStarted(phase="progress"), MessageStarted(), False),
        (MessageStarted(), MessageEnded(), False),
        (InterruptRaised(interrupt_id="i", message=Message(message_id="m")), InterruptRaised(), True),
        (InterruptRaised(message=Message(message_id="m")), InterruptRaised(message=Message(message_id="n")), False),
        (InterruptRaised(value=1), InterruptRaised(value=2), False),
        (InterruptRaised(value=1), InterruptRaised(value=True), False),
        (Custom(value={"a": [0]}), Custom(value={"a": [False]}), False),
        (Custom(value=1.0), Custom(value=1), True),
    ],
)
def test_events_are_compared_without_the_hubs_values(earlier: Event, again: Event, same: bool):
    assert is_same_event(earlier, again) == same


def test_a_repeated_file_matches_by_its_bytes():
    stored = FilePart(name="a", blob=hashlib.sha256(b"data").hexdigest(), size=4)
    earlier = ArtifactAdded(artifact_id="x", name="a", part=stored)
    assert is_same_event(earlier, ArtifactAdded(name="a", part=FilePart(name="a", inline=b"data")))
    assert not is_same_event(earlier, ArtifactAdded(name="a", part=FilePart(name="a", inline=b"other")))
    question = InterruptRaised(message=Message(message_id="m", parts=(TextPart(text="?"), stored)))
    again = Message(parts=(TextPart(text="?"), FilePart(name="a", inline=b"data")))
    assert is_same_event(question, InterruptRaised(message=again))


@given(strategies.records())
def test_agent_events_exclude_those_of_the_hub(records: list[Record]):
    events = agent_events(records)
    of_hub = {"thread_changed", "task_created", "run_created", "run_started", "task_changed", "run_ended"}
    assert events == [r.event for r in records if r.event.kind not in of_hub | {"interrupt_answered", "run_removed"}]
    runs = [record.run_id for record in records if isinstance(record.event, RunCreated)]
    assert [event for run_id in runs for event in agent_events(records, run_id)] == events


@given(strategies.records())
def test_a_plan_holds_every_event_since_the_input(records: list[Record]):
    questions = [record.event for record in records if isinstance(record.event, InterruptRaised)]
    inputs = [record.event for record in records if isinstance(record.event, RunCreated)]
    for question in questions:
        story = replay_plan(records, question.interrupt_id or "")
        assert story is not None
        assert story.first == inputs[0]
        assert [event for event in story.sent if isinstance(event, InterruptRaised)][-1].ask is not None
        until = agent_events(records).index(question)
        assert list(story.sent)[: until + 1] == agent_events(records)[: until + 1]
        assert all(event in questions for event in story.sent if isinstance(event, InterruptRaised))


def story_log() -> list[Record]:
    """Return a log with an input that asks a question, an answer that asks again, and a follow-up with its own
    question.
    """
    return [
        Record(seq, seq, "t", run_id, attempt, event)
        for seq, (run_id, attempt, event) in enumerate(
            [
                ("r1", 0, RunCreated(run_id="r1", messages=(Message(message_id="m1", role="user"),))),
                ("r1", 1, RunStarted()),
                ("r1", 1, Custom(name="lost")),
                ("r1", 2, RunStarted(attempt=2)),
                ("r1", 2, Custom(name="one")),
                ("r1", 2, InterruptRaised(interrupt_id="i1", message=Message(message_id="q1"))),
                ("r1", 2, RunEnded()),
                (None, 0, TaskChanged(state="input_required")),  # type: ignore[arg-type]
                ("r2", 0, RunCreated(run_id="r2", cause="follow_up")),
                ("r2", 1, Custom(name="beside")),
                ("r2", 1, InterruptRaised(interrupt_id="i2")),
                ("r3", 0, RunCreated(run_id="r3", cause="answer")),
                ("r3", 0, InterruptAnswered(interrupt_id="i1", value="a1")),
                ("r3", 1, Custom(name="two")),
                ("r3", 1, InterruptRaised(interrupt_id="i3")),
            ],
            start=1,
        )
    ]


def test_a_plan_begins_with_the_run_of_the_input():
    story = replay_plan(story_log(), "i3")
    assert story is not None
    assert story.first.run_id == "r1"
    assert [event.name for event in story.sent if isinstance(event, Custom)] == ["one", "two"]
    assert story.answers["i1"].value == "a1"
    assert story.message_ids == {"m1", "q1"}


def test_a_follow_up_has_a_separate_plan():
    story = replay_plan(story_log(), "i2")
    assert story is not None
    assert story.first.run_id == "r2"
    assert [event.name for event in story.sent if isinstance(event, Custom)] == ["beside"]


def test_incomplete_records_have_no_plan():
    assert replay_plan(story_log(), "unknown") is None
    assert replay_plan([], "i1") is None
    assert replay_plan([record for record in story_log() if record.run_id != "r1"], "i3") is None


def test_an_empty_cursor_passes_everything():
    cursor = ReplayCursor(())
    assert cursor.new_events(Custom()) == [Custom()]
    assert cursor.is_over
    cursor.end()


# Parts left open by a restart


@pytest.mark.parametrize(
    ("earlier", "again", "new"),
    [
        (["a"], ["a"], []),
        (["ab"], ["a", "bc"], ["c"]),
        (["a", "b"], ["abc", "d"], ["c", "d"]),
        (["a"], ["", "a", "b"], ["b"]),
    ],
)
def test_only_the_rest_of_a_text_is_new(earlier: list[str], again: list[str], new: list[str]):
    opened: list[Event] = [
        MessageStarted(message_id="m"),
        PartAdded(message_id="m", index=0, part=TextPart(text=""), open=True),
    ]
    before = [*opened, *(PartDelta(message_id="m", index=0, text=text) for text in earlier)]
    cursor = ReplayCursor(before, closed=False)
    events: list[Event] = [
        MessageStarted(),
        PartAdded(part=TextPart(text=""), open=True),
        *(PartDelta(text=text) for text in again),
    ]
    assert [news for event in events for news in cursor.new_events(event)] == [PartDelta(text=text) for text in new]


def test_a_whole_part_completes_an_open_one():
    earlier: list[Event] = [
        MessageStarted(message_id="m"),
        PartAdded(message_id="m", index=0, part=TextPart(text="Hel"), open=True),
    ]
    cursor = ReplayCursor(earlier, closed=False)
    assert cursor.new_events(MessageStarted()) == []
    assert cursor.new_events(PartAdded(part=TextPart(text="Hello"))) == [
        PartDelta(message_id="m", index=0, text="lo"),
        PartEnded(message_id="m", index=0),
    ]
    cursor.end()


@pytest.mark.parametrize(
    "again",
    [
        [MessageStarted(), PartAdded(part=TextPart(text="Hal"), open=True)],
        [MessageStarted(), PartAdded(part=TextPart(text="Hel"), open=True), PartEnded()],
        [MessageStarted(), PartAdded(part=ReasoningPart(text="Hel"), open=True)],
        [MessageStarted(), PartAdded(part=TextPart(text="Hel", media_type="text/html"), open=True)],
        [MessageStarted(name="other")],
        [Custom()],
    ],
)
def test_a_difference_is_detected_at_once(again: list[Event]):
    earlier = [
        MessageStarted(message_id="m"),
        PartAdded(message_id="m", index=0, part=TextPart(text="Hello"), open=True),
    ]
    cursor = ReplayCursor(earlier, closed=False)
    for event in again[:-1]:
        assert cursor.new_events(event) == []
    with pytest.raises(Diverged):
        cursor.new_events(again[-1])


def test_an_ended_text_cannot_grow():
    earlier: list[Event] = [MessageStarted(), PartAdded(part=TextPart(text="a")), MessageEnded()]
    cursor = ReplayCursor(earlier, closed=False)
    assert cursor.new_events(MessageStarted()) == []
    with pytest.raises(Diverged, match="longer than"):
        cursor.new_events(PartAdded(part=TextPart(text="ab"), open=True))


def test_new_ids_are_replaced_by_those_of_the_log():
    earlier: list[Event] = [
        ToolStarted(call_id="t1", name="look"),
        StepStarted(step_id="s1", name="plan"),
        ArtifactAdded(artifact_id="a1", part=TextPart(text="1"), last=False),
        ArtifactAdded(artifact_id="a1", part=TextPart(text="2"), append=True, last=False),
        MessageStarted(message_id="m1"),
    ]
    again: list[Event] = [
        ToolStarted(call_id="t2", name="look"),
        StepStarted(step_id="s2", name="plan"),
        ArtifactAdded(artifact_id="a2", part=TextPart(text="1"), last=False),
        ArtifactAdded(artifact_id="a2", part=TextPart(text="2"), append=True, last=False),
        MessageStarted(message_id="m2"),
        MessageEnded(message_id="m2"),
        ArtifactAdded(artifact_id="a2", part=TextPart(text="3"), append=True),
        ToolEnded(call_id="t2", name="look"),
        StepEnded(step_id="s2", name="plan"),
    ]
    assert rest(again, earlier, closed=False, renames=True) == [
        MessageEnded(message_id="m1"),
        ArtifactAdded(artifact_id="a1", part=TextPart(text="3"), append=True),
        ToolEnded(call_id="t1", name="look"),
        StepEnded(step_id="s1", name="plan"),
    ]
    with pytest.raises(Diverged):
        rest(again, earlier, closed=False)


def test_losses_and_bindings_match_in_any_order():
    earlier: list[Event] = [
        UpstreamBound(protocol="p", ids={"run": "1"}),
        LossNoted(feature="step", how="none"),
        Custom(name="a"),
    ]
    bound = UpstreamBound(protocol="p", ids={"run": "2"})
    assert rest([Custom(name="a"), bound, LossNoted(feature="step", how="none"), Custom(name="b")], earlier) == [
        bound,
        Custom(name="b"),
    ]


# Records that a restart does not void


@given(strategies.records())
def test_records_without_a_restart_all_count(records: list[Record]):
    assert without_voided(records) == records


def test_a_restart_voids_earlier_records():
    log: list[tuple[str | None, int, Event]] = [
        ("r1", 0, RunCreated(run_id="r1")),
        ("r1", 1, RunStarted()),
        ("r1", 1, Custom(name="1")),
        ("r2", 1, Custom(name="other")),
        ("r1", 2, RunStarted(attempt=2, resumed=True)),
        ("r1", 2, Custom(name="2")),
        ("r1", 2, RunStarted(attempt=2)),
        ("r1", 2, Custom(name="3")),
        ("r1", 3, RunStarted(attempt=3, resumed=True)),
        ("r1", 3, Custom(name="4")),
    ]
    records = [Record(seq, seq, "t", *each) for seq, each in enumerate(log, start=1)]
    assert [e.name for e in agent_events(records, "r1") if isinstance(e, Custom)] == ["3", "4"]
    assert [e.name for e in agent_events(records) if isinstance(e, Custom)] == ["other", "3", "4"]
    assert len([r for r in without_voided(records) if isinstance(r.event, RunStarted)]) == 4


def test_a_restart_voids_only_the_messages_it_names():
    log: list[tuple[int, Event]] = [
        (1, MessageStarted(message_id="a")),
        (1, MessageEnded(message_id="a")),
        (1, MessageStarted(message_id="b")),
        (1, PartAdded(message_id="b", index=0, part=TextPart(text="b"))),
        (1, Custom(name="c")),
        (1, MessageEnded(message_id="b")),
        (2, RunStarted(attempt=2, void=("b",))),
    ]
    records = [Record(seq, seq, "t", "r1", *each) for seq, each in enumerate(log, start=1)]
    assert [record.seq for record in without_voided(records)] == [1, 2, 5, 7]
