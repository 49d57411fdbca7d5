"""Saying it again."""

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
from babelgate.canonical.replay import Diverged, ReplayCursor, agent_events, is_same_event, replay_plan, standing
from tests import strategies

IDS = ("message_id", "index", "call_id", "step_id", "artifact_id", "interrupt_id", "checkpoint_id")


def without_ids(event: Event) -> Event:
    """As an agent says it that leaves ids to the hub."""
    update: dict[str, Any] = {name: None for name in IDS if name in type(event).__struct_fields__}
    if isinstance(event, InterruptRaised):
        update["message"] = event.message.replace(message_id=None)
    if "node" in type(event).__struct_fields__:
        update["node"] = ""
    return event.replace(**update)


def rest(events: Iterable[Event], said: Sequence[Event], **how: bool) -> list[Event]:
    """What of the events is new."""
    before = ReplayCursor(said, **how)
    new = [news for event in events for news in before.news(event)]
    before.end()
    return new


@given(strategies.agent_events(), st.data())
def test_exactly_the_repeated_start_is_dropped(events: list[Event], data: st.DataObject):
    cut = data.draw(st.integers(0, len(events)))
    assert rest(events, events[:cut]) == events[cut:]


def cut(draw: Any, events: Iterable[Event]) -> list[Event]:
    """The same, with the text of each part cut somewhere else."""
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
    """The same, with the text of each part in one delta."""
    made: list[Event] = []
    for event in events:
        texts: list[Event] = []
        if isinstance(event, PartDelta):
            texts = [event] if event.text else []
        elif isinstance(event, PartAdded) and isinstance(event.part, TextPart | ReasoningPart | RefusalPart):
            made.append(event.replace(part=event.part.replace(text=""), open=True))
            texts = [PartDelta(message_id=event.message_id, index=event.index, text=event.part.text)]
            texts = texts if event.part.text else []
        else:
            made.append(event)
        if texts and isinstance(made[-1], PartDelta):
            made[-1] = made[-1].replace(text=made[-1].text + event.text)  # type: ignore[union-attr]
        else:
            made += texts
        if isinstance(event, PartAdded) and made[-1] is not event and not event.open:
            made.append(PartEnded(message_id=event.message_id, index=event.index))
    return made


@given(strategies.agent_events(), st.data())
def test_text_is_known_again_however_it_is_cut(events: list[Event], data: st.DataObject):
    before = cut(data.draw, events)
    before = before[: data.draw(st.integers(0, len(before)))]
    again = data.draw(st.sampled_from([events, cut(data.draw, events)]))
    assert content([*before, *rest(again, before, closed=False)]) == content(events)
    nameless = [without_ids(event) for event in again]
    assert len(rest(nameless, before, closed=False)) == len(rest(again, before, closed=False))


@given(strategies.agent_events(), st.data())
def test_the_start_is_known_again_without_the_ids_that_the_hub_gave(events: list[Event], data: st.DataObject):
    cut = data.draw(st.integers(0, len(events)))
    again = [without_ids(event) for event in events]
    assert rest(again, events[:cut]) == again[cut:]


@given(strategies.agent_events(), st.data())
def test_other_words_are_a_divergence(events: list[Event], data: st.DataObject):
    cut = data.draw(st.integers(0, len(events)))
    other = Custom(name="other than everything", value=["other"])
    said = [*events[:cut], Custom(name="said"), *events[cut:]]
    with pytest.raises(FaultError) as raised:
        rest([*events[:cut], other, *events[cut:]], said)
    assert raised.value.fault.code is FaultCode.AGENT_NOT_REPLAYABLE


def test_to_end_before_everything_was_repeated_is_a_divergence():
    said: list[Event] = [Custom(name="a"), Custom(name="b")]
    with pytest.raises(FaultError, match="ended after 1 of the 2 events") as raised:
        rest([Custom(name="a")], said)
    assert raised.value.fault.code is FaultCode.AGENT_NOT_REPLAYABLE


def test_what_only_the_hub_closed_need_not_be_repeated():
    opened: list[Event] = [MessageStarted(), PartAdded(part=TextPart(text="a"), open=True), StepStarted(name="s")]
    asked = InterruptRaised(message=Message.of("?"))
    closed: list[Event] = [PartEnded(message_id="m", index=0), MessageEnded(message_id="m"), StepEnded(name="s")]
    live = Custom(name="live")
    assert rest([*opened, asked, live], [*opened, asked, *closed]) == [live]
    assert rest([*opened, asked], [*opened, asked, *closed]) == []


def test_closings_of_the_agents_own_are_repeated_and_dropped():
    said: list[Event] = [MessageStarted(), PartAdded(part=TextPart(text="a"), open=True), PartEnded(), MessageEnded()]
    assert rest([*said, Custom()], said) == [Custom()]


@pytest.mark.parametrize(
    ("said", "again", "same"),
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
def test_events_are_the_same_but_for_what_the_hub_fills(said: Event, again: Event, same: bool):
    assert is_same_event(said, again) == same


def test_a_file_said_again_is_the_same_if_its_bytes_are():
    kept = FilePart(name="a", blob=hashlib.sha256(b"data").hexdigest(), size=4)
    said = ArtifactAdded(artifact_id="x", name="a", part=kept)
    assert is_same_event(said, ArtifactAdded(name="a", part=FilePart(name="a", inline=b"data")))
    assert not is_same_event(said, ArtifactAdded(name="a", part=FilePart(name="a", inline=b"other")))
    asked = InterruptRaised(message=Message(message_id="m", parts=(TextPart(text="?"), kept)))
    again = Message(parts=(TextPart(text="?"), FilePart(name="a", inline=b"data")))
    assert is_same_event(asked, InterruptRaised(message=again))


@given(strategies.records())
def test_what_an_agent_said_is_all_but_the_hubs_own_words(records: list[Record]):
    said = agent_events(records)
    of_hub = {"thread_changed", "task_created", "run_created", "run_started", "task_changed", "run_ended"}
    assert said == [r.event for r in records if r.event.kind not in of_hub | {"interrupt_answered", "run_removed"}]
    runs = [record.run_id for record in records if isinstance(record.event, RunCreated)]
    assert [event for run_id in runs for event in agent_events(records, run_id)] == said


@given(strategies.records())
def test_the_story_of_a_question_is_everything_since_the_input(records: list[Record]):
    questions = [record.event for record in records if isinstance(record.event, InterruptRaised)]
    inputs = [record.event for record in records if isinstance(record.event, RunCreated)]
    for question in questions:
        story = replay_plan(records, question.interrupt_id or "")
        assert story is not None
        assert story.first == inputs[0]
        assert [event for event in story.said if isinstance(event, InterruptRaised)][-1].ask is not None
        until = agent_events(records).index(question)
        assert list(story.said)[: until + 1] == agent_events(records)[: until + 1]
        assert all(event in questions for event in story.said if isinstance(event, InterruptRaised))


def story_log() -> list[Record]:
    """An input that asks; its answer asks again; a follow-up in between that has its own question."""
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


def test_a_story_leads_from_the_run_that_asked_to_the_run_that_no_answer_started():
    story = replay_plan(story_log(), "i3")
    assert story is not None
    assert story.first.run_id == "r1"
    assert [event.name for event in story.said if isinstance(event, Custom)] == ["one", "two"]
    assert story.answers["i1"].value == "a1"
    assert story.message_ids == {"m1", "q1"}


def test_a_follow_up_has_a_story_of_its_own():
    story = replay_plan(story_log(), "i2")
    assert story is not None
    assert story.first.run_id == "r2"
    assert [event.name for event in story.said if isinstance(event, Custom)] == ["beside"]


def test_records_that_do_not_tell_have_no_story():
    assert replay_plan(story_log(), "unknown") is None
    assert replay_plan([], "i1") is None
    assert replay_plan([record for record in story_log() if record.run_id != "r1"], "i3") is None


def test_nothing_said_before_makes_everything_live():
    said = ReplayCursor(())
    assert said.news(Custom()) == [Custom()]
    assert said.is_over
    said.end()


# What is cut off is not closed


@pytest.mark.parametrize(
    ("said", "again", "new"),
    [
        (["a"], ["a"], []),
        (["ab"], ["a", "bc"], ["c"]),
        (["a", "b"], ["abc", "d"], ["c", "d"]),
        (["a"], ["", "a", "b"], ["b"]),
    ],
)
def test_only_the_rest_of_a_text_is_new(said: list[str], again: list[str], new: list[str]):
    opened: list[Event] = [
        MessageStarted(message_id="m"),
        PartAdded(message_id="m", index=0, part=TextPart(text=""), open=True),
    ]
    before = [*opened, *(PartDelta(message_id="m", index=0, text=text) for text in said)]
    told = ReplayCursor(before, closed=False)
    events: list[Event] = [
        MessageStarted(),
        PartAdded(part=TextPart(text=""), open=True),
        *(PartDelta(text=text) for text in again),
    ]
    assert [news for event in events for news in told.news(event)] == [PartDelta(text=text) for text in new]


def test_a_part_that_was_cut_off_and_is_given_whole_is_told_to_its_end():
    said: list[Event] = [
        MessageStarted(message_id="m"),
        PartAdded(message_id="m", index=0, part=TextPart(text="Hel"), open=True),
    ]
    told = ReplayCursor(said, closed=False)
    assert told.news(MessageStarted()) == []
    assert told.news(PartAdded(part=TextPart(text="Hello"))) == [
        PartDelta(message_id="m", index=0, text="lo"),
        PartEnded(message_id="m", index=0),
    ]
    told.end()


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
def test_what_differs_is_known_as_soon_as_it_is_said(again: list[Event]):
    said = [MessageStarted(message_id="m"), PartAdded(message_id="m", index=0, part=TextPart(text="Hello"), open=True)]
    told = ReplayCursor(said, closed=False)
    for event in again[:-1]:
        assert told.news(event) == []
    with pytest.raises(Diverged):
        told.news(again[-1])


def test_a_text_that_has_ended_does_not_grow():
    said: list[Event] = [MessageStarted(), PartAdded(part=TextPart(text="a")), MessageEnded()]
    told = ReplayCursor(said, closed=False)
    assert told.news(MessageStarted()) == []
    with pytest.raises(Diverged, match="more than"):
        told.news(PartAdded(part=TextPart(text="ab"), open=True))


def test_ids_that_an_agent_gives_anew_are_those_of_the_log():
    said: list[Event] = [
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
    assert rest(again, said, closed=False, renames=True) == [
        MessageEnded(message_id="m1"),
        ArtifactAdded(artifact_id="a1", part=TextPart(text="3"), append=True),
        ToolEnded(call_id="t1", name="look"),
        StepEnded(step_id="s1", name="plan"),
    ]
    with pytest.raises(Diverged):
        rest(again, said, closed=False)


def test_facts_beside_what_is_said_are_in_no_order_with_it():
    said: list[Event] = [
        UpstreamBound(protocol="p", ids={"run": "1"}),
        LossNoted(feature="step", how="none"),
        Custom(name="a"),
    ]
    bound = UpstreamBound(protocol="p", ids={"run": "2"})
    assert rest([Custom(name="a"), bound, LossNoted(feature="step", how="none"), Custom(name="b")], said) == [
        bound,
        Custom(name="b"),
    ]


# What stands


@given(strategies.records())
def test_of_a_run_that_was_never_started_over_everything_stands(records: list[Record]):
    assert standing(records) == records


def test_what_was_said_before_a_run_was_started_over_does_not_stand():
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
    assert len([r for r in standing(records) if isinstance(r.event, RunStarted)]) == 4


def test_of_a_run_that_names_what_is_void_all_else_stands():
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
    assert [record.seq for record in standing(records)] == [1, 2, 5, 7]
