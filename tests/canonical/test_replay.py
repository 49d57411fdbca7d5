"""Saying it again."""

import hashlib
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canonical import Event, FaultCode, FaultError, FilePart, Message, Record, TextPart
from canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptAnswered,
    InterruptRaised,
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
)
from canonical.replay import Said, said_by_agent, same_event, story_of, unseen
from tests import strategies

IDS = ("message_id", "index", "call_id", "step_id", "artifact_id", "interrupt_id", "checkpoint_id")


def without_ids(event: Event) -> Event:
    """As an agent says it that leaves ids to the hub."""
    update: dict[str, Any] = {name: None for name in IDS if name in type(event).model_fields}
    if isinstance(event, InterruptRaised):
        update["message"] = event.message.model_copy(update={"message_id": None})
    if "node" in type(event).model_fields:
        update["node"] = ""
    return event.model_copy(update=update)


async def stream(events: Iterable[Event]) -> AsyncIterator[Event]:
    for event in events:
        yield event


async def rest(events: Iterable[Event], said: list[Event]) -> list[Event]:
    return [event async for event in unseen(stream(events), said)]


@given(strategies.agent_events(), st.data())
async def test_exactly_the_repeated_start_is_dropped(events: list[Event], data: st.DataObject):
    cut = data.draw(st.integers(0, len(events)))
    assert await rest(events, events[:cut]) == events[cut:]


@given(strategies.agent_events(), st.data())
async def test_the_start_is_known_again_without_the_ids_that_the_hub_gave(events: list[Event], data: st.DataObject):
    cut = data.draw(st.integers(0, len(events)))
    again = [without_ids(event) for event in events]
    assert await rest(again, events[:cut]) == again[cut:]


@given(strategies.agent_events(), st.data())
async def test_other_words_are_a_divergence(events: list[Event], data: st.DataObject):
    cut = data.draw(st.integers(0, len(events)))
    other = Custom(name="other than everything", value=["other"])
    said = [*events[:cut], Custom(name="said"), *events[cut:]]
    with pytest.raises(FaultError) as raised:
        await rest([*events[:cut], other, *events[cut:]], said)
    assert raised.value.fault.code is FaultCode.AGENT_NOT_REPLAYABLE


async def test_to_end_before_everything_was_repeated_is_a_divergence():
    said: list[Event] = [Custom(name="a"), Custom(name="b")]
    with pytest.raises(FaultError, match="ended after 1 of the 2 events") as raised:
        await rest([Custom(name="a")], said)
    assert raised.value.fault.code is FaultCode.AGENT_NOT_REPLAYABLE


async def test_what_only_the_hub_closed_need_not_be_repeated():
    opened: list[Event] = [MessageStarted(), PartAdded(part=TextPart(text="a"), open=True), StepStarted(name="s")]
    asked = InterruptRaised(message=Message.of("?"))
    closed: list[Event] = [PartEnded(message_id="m", index=0), MessageEnded(message_id="m"), StepEnded(name="s")]
    live = Custom(name="live")
    assert await rest([*opened, asked, live], [*opened, asked, *closed]) == [live]
    assert await rest([*opened, asked], [*opened, asked, *closed]) == []


async def test_closings_of_the_agents_own_are_repeated_and_dropped():
    said: list[Event] = [MessageStarted(), PartAdded(part=TextPart(text="a"), open=True), PartEnded(), MessageEnded()]
    assert await rest([*said, Custom()], said) == [Custom()]


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
    ],
)
def test_events_are_the_same_but_for_what_the_hub_fills(said: Event, again: Event, same: bool):
    assert same_event(said, again) == same


def test_a_file_said_again_is_the_same_if_its_bytes_are():
    kept = FilePart(name="a", blob=hashlib.sha256(b"data").hexdigest(), size=4)
    said = ArtifactAdded(artifact_id="x", name="a", part=kept)
    assert same_event(said, ArtifactAdded(name="a", part=FilePart(name="a", inline=b"data")))
    assert not same_event(said, ArtifactAdded(name="a", part=FilePart(name="a", inline=b"other")))
    asked = InterruptRaised(message=Message(message_id="m", parts=(TextPart(text="?"), kept)))
    again = Message(parts=(TextPart(text="?"), FilePart(name="a", inline=b"data")))
    assert same_event(asked, InterruptRaised(message=again))


@given(strategies.records())
def test_what_an_agent_said_is_all_but_the_hubs_own_words(records: list[Record]):
    said = said_by_agent(records)
    of_hub = {"thread_changed", "task_created", "run_created", "run_started", "task_changed", "run_ended"}
    assert said == [r.event for r in records if r.event.kind not in of_hub | {"interrupt_answered", "run_removed"}]
    runs = [record.run_id for record in records if isinstance(record.event, RunCreated)]
    assert [event for run_id in runs for event in said_by_agent(records, run_id)] == said


@given(strategies.records())
def test_the_story_of_a_question_is_everything_since_the_input(records: list[Record]):
    questions = [record.event for record in records if isinstance(record.event, InterruptRaised)]
    inputs = [record.event for record in records if isinstance(record.event, RunCreated)]
    for question in questions:
        story = story_of(records, question.interrupt_id or "")
        assert story is not None
        assert story.first == inputs[0]
        assert [event for event in story.said if isinstance(event, InterruptRaised)][-1].ask is not None
        until = said_by_agent(records).index(question)
        assert list(story.said)[: until + 1] == said_by_agent(records)[: until + 1]
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
    story = story_of(story_log(), "i3")
    assert story is not None
    assert story.first.run_id == "r1"
    assert [event.name for event in story.said if isinstance(event, Custom)] == ["one", "two"]
    assert story.answers["i1"].value == "a1"
    assert story.message_ids == {"m1", "q1"}


def test_a_follow_up_has_a_story_of_its_own():
    story = story_of(story_log(), "i2")
    assert story is not None
    assert story.first.run_id == "r2"
    assert [event.name for event in story.said if isinstance(event, Custom)] == ["beside"]


def test_records_that_do_not_tell_have_no_story():
    assert story_of(story_log(), "unknown") is None
    assert story_of([], "i1") is None
    assert story_of([record for record in story_log() if record.run_id != "r1"], "i3") is None


def test_nothing_said_before_makes_everything_live():
    said = Said(())
    assert said.repeats(Custom()) is None
    assert said.over
    said.end()
