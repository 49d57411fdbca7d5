"""Folds: views of a log."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from babelgate.canonical import (
    Event,
    Fold,
    Message,
    ReasoningPart,
    Record,
    RefusalPart,
    RunReason,
    RunStatus,
    TaskState,
    TextPart,
    ToolCallPart,
)
from babelgate.canonical.event import (
    ArtifactAdded,
    InterruptAnswered,
    InterruptRaised,
    LossNoted,
    MessageEnded,
    MessageStarted,
    PartAdded,
    PartDelta,
    RunCreated,
    RunEnded,
    RunRemoved,
    RunStarted,
    TaskChanged,
    TaskCreated,
    ThreadChanged,
    encode_event,
)
from babelgate.canonical.fold import extend_part
from babelgate.canonical.stored import decode_event
from babelgate.canonical.thread import Loss
from tests import strategies


def view(fold: Fold) -> dict[str, Any]:
    """Everything that a fold shows."""
    return {
        "seq": fold.seq,
        "thread": fold.thread,
        "tasks": fold.tasks,
        "runs": fold.runs,
        "interrupts": fold.interrupts,
        "artifacts": fold.artifacts,
        "messages": fold.messages(),
        "open": fold.open_interrupts(),
    }


def log(*events: Event | tuple[str | None, Event], task: str | None = "t") -> list[Record]:
    """Records of run `r`, or of the run that is named beside an event."""
    pairs = [event if isinstance(event, tuple) else ("r", event) for event in events]
    return [Record(seq, seq * 10, task, run_id, 1, event) for seq, (run_id, event) in enumerate(pairs, start=1)]


def fold(*events: Event | tuple[str | None, Event]) -> Fold:
    return Fold("thread", "owner", log(*events))


@given(strategies.records(), st.data())
def test_a_log_folds_alike_whole_and_in_two_halves(records: list[Record], data: st.DataObject):
    cut = data.draw(st.integers(0, len(records)))
    halves = Fold("thread", "owner", records[:cut])
    view(halves)  # looking at it in between changes nothing
    for record in records[cut:]:
        halves.apply(record)
    assert view(halves) == view(Fold("thread", "owner", records))


@given(strategies.records())
def test_a_stored_log_folds_like_the_one_that_was_written(records: list[Record]):
    stored = [record.replace(event=decode_event(encode_event(record.event))) for record in records]
    assert view(Fold("thread", "owner", stored)) == view(Fold("thread", "owner", records))


@given(strategies.records())
def test_a_fold_does_not_change_the_records(records: list[Record]):
    before = [encode_event(record.event) for record in records]
    view(Fold("thread", "owner", records))
    assert [encode_event(record.event) for record in records] == before


@given(strategies.records())
def test_the_log_of_a_task_folds_to_the_same_task_as_the_log_of_its_thread(records: list[Record]):
    whole = Fold("thread", "owner", records)
    (task_id,) = whole.tasks
    of_task = Fold("thread", "owner", [record for record in records if record.task_id == task_id])
    assert of_task.tasks == whole.tasks
    assert of_task.messages() == whole.messages(task_id=task_id)


@given(strategies.records())
def test_the_messages_of_a_task_are_those_of_its_runs(records: list[Record]):
    whole = Fold("thread", "owner", records)
    assert [message for run_id in whole.runs for message in whole.messages(run_id=run_id)] == whole.messages()


@given(strategies.records())
def test_a_task_waits_exactly_while_a_question_is_open_and_no_run_is_active(records: list[Record]):
    seen = Fold("thread", "owner")
    for record in records:
        seen.apply(record)
        if isinstance(record.event, TaskChanged):
            (task,) = seen.tasks.values()
            active = any(run.status is RunStatus.RUNNING for run in seen.runs.values())
            if task.is_waiting:
                assert seen.open_interrupts() and not active
            if task.is_terminal:
                assert not seen.open_interrupts() and not active


@given(strategies.records())
def test_messages_are_what_their_events_say(records: list[Record]):
    texts: dict[str, str] = {}
    for record in records:
        match record.event:
            case PartAdded(part=TextPart(text=text)) | PartDelta(text=text):
                key = f"{record.event.message_id}/{record.event.index}"
                texts[key] = texts.get(key, "") + text
            case _:
                pass
    said = Fold("thread", "owner", records).messages()
    for message in said:
        for index, part in enumerate(message.parts):
            if isinstance(part, TextPart) and f"{message.message_id}/{index}" in texts:
                assert part.text == texts[f"{message.message_id}/{index}"]


def test_a_thread_begins_with_its_first_record_and_merges_what_changes():
    records = log(
        ThreadChanged(metadata={"a": 1, "b": 1}, ttl=5, ephemeral=True),
        ThreadChanged(metadata={"b": 2}, config={"c": 3}),
        task=None,
    )
    thread = Fold("thread", "owner", records).thread
    assert thread is not None
    assert (thread.thread_id, thread.owner, thread.created_at, thread.changed_at) == ("thread", "owner", 10, 20)
    assert (thread.metadata, thread.config) == ({"a": 1, "b": 2}, {"c": 3})
    assert (thread.ttl, thread.ephemeral) == (5, True)


def test_a_task_spans_its_records_and_knows_when_its_state_changed():
    seen = fold(
        (None, TaskCreated(task_id="t", agent="echo", continues="s", references=("q",))),
        RunCreated(run_id="r"),
        RunStarted(),
        (None, TaskChanged(state=TaskState.WORKING)),
        MessageStarted(message_id="m"),
    )
    task = seen.tasks["t"]
    assert (task.state, task.created_at, task.changed_at) == (TaskState.WORKING, 10, 40)
    assert (task.first_seq, task.last_seq, task.continues, task.references) == (1, 4, "s", ("q",))


def test_a_run_is_pending_then_running_then_what_its_end_says():
    seen = fold(RunCreated(run_id="r", strategy="reject", start_after=7))
    assert (seen.runs["r"].status, seen.runs["r"].strategy, seen.runs["r"].start_after) == ("pending", "reject", 7)
    seen.apply(Record(2, 20, "t", "r", 2, RunStarted(attempt=2)))
    assert (seen.runs["r"].status, seen.runs["r"].attempt, seen.runs["r"].started_at) == ("running", 2, 20)
    seen.apply(Record(3, 30, "t", "r", 2, LossNoted(feature="fork", how="gone")))
    seen.apply(Record(4, 40, "t", "r", 2, RunEnded(output={"a": 1}, usage={"tokens": 3})))
    run = seen.runs["r"]
    assert (run.status, run.reason, run.ended_at, run.has_ended) == ("success", RunReason.DONE, 40, True)
    assert (run.output, run.usage, run.loss) == ({"a": 1}, {"tokens": 3}, (Loss(feature="fork", how="gone"),))
    assert (run.first_seq, run.last_seq) == (1, 4)


def test_of_a_run_that_names_what_is_void_all_else_stands():
    seen = fold(
        RunCreated(run_id="r", messages=(Message(message_id="i", role="user"),)),
        MessageStarted(message_id="m"),
        MessageEnded(message_id="m"),
        ArtifactAdded(artifact_id="f", part=TextPart(text="x")),
        MessageStarted(message_id="n"),
        LossNoted(feature="step", how="gone"),
        RunStarted(attempt=2, void=("n",)),
    )
    assert [message.message_id for message in seen.messages()] == ["i", "m"]
    assert list(seen.artifacts) == ["f"]
    assert seen.runs["r"].loss


def test_what_a_run_said_before_it_was_started_over_is_void():
    said = Message(message_id="i", role="user")
    first = [MessageStarted(message_id="m"), ArtifactAdded(artifact_id="f", part=TextPart(text="x"))]
    for goes_on in (False, True):
        again = RunStarted(attempt=2, resumed=goes_on)
        seen = fold(
            RunCreated(run_id="r", messages=(said,)), RunStarted(), *first, again, MessageStarted(message_id="n")
        )
        assert [m.message_id for m in seen.messages()] == ["i", *(["m"] if goes_on else []), "n"]
        assert list(seen.artifacts) == (["f"] if goes_on else [])


def test_removing_a_run_removes_that_run_and_not_the_one_that_says_so():
    seen = fold(RunCreated(run_id="r"), ("s", RunCreated(run_id="s")), ("s", RunRemoved(run_id="r", why="rollback")))
    assert (seen.runs["r"].removed, seen.runs["s"].removed) == (True, False)


def test_a_question_is_open_until_it_is_answered():
    asked = InterruptRaised(interrupt_id="i", ask="approval", value={"a": 1}, answer_schema={"type": "string"})
    seen = fold(asked, InterruptRaised(interrupt_id="j"))
    assert [interrupt.interrupt_id for interrupt in seen.open_interrupts("t")] == ["i", "j"]
    assert seen.open_interrupts("another") == []
    seen.apply(Record(3, 30, "t", "s", 0, InterruptAnswered(interrupt_id="i", value="yes")))
    answered = seen.interrupts["t", "i"]
    assert [interrupt.interrupt_id for interrupt in seen.open_interrupts()] == ["j"]
    assert (answered.action, answered.answer, answered.ask, answered.raised_at) == ("answer", "yes", "approval", 10)


def test_an_artifact_grows_by_appends_and_is_replaced_by_anything_else():
    first = ArtifactAdded(artifact_id="a", name="n", part=TextPart(text="1"), last=False)
    more = ArtifactAdded(artifact_id="a", part=TextPart(text="2"), append=True)
    seen = fold(first)
    assert not seen.artifacts["a"].complete
    seen.apply(Record(2, 20, "t", "r", 1, more))
    assert (seen.artifacts["a"].text, seen.artifacts["a"].name, seen.artifacts["a"].complete) == ("12", "n", True)
    seen.apply(Record(3, 30, "t", "r", 1, first))
    assert (seen.artifacts["a"].text, seen.artifacts["a"].created_at) == ("1", 30)


def test_a_view_that_begins_in_the_middle_of_a_message_does_not_show_it():
    seen = fold(
        PartAdded(message_id="m", index=0, part=TextPart(text="a")), PartDelta(message_id="m", index=0, text="b")
    )
    assert seen.messages() == []
    assert seen.message("m") is None


def test_one_message_can_be_looked_up_while_it_grows():
    seen = fold(
        MessageStarted(message_id="m", phase="progress"),
        PartAdded(message_id="m", index=0, part=TextPart(text="a"), open=True),
        PartDelta(message_id="m", index=0, text="b"),
    )
    message = seen.message("m")
    assert message is not None and (message.text, message.phase) == ("ab", "progress")


def test_text_of_every_streaming_kind_is_extended():
    assert extend_part(TextPart(text="a"), "b") == TextPart(text="ab")
    assert extend_part(ReasoningPart(text="a"), "b") == ReasoningPart(text="ab")
    assert extend_part(RefusalPart(text="a"), "b") == RefusalPart(text="ab")
    call = ToolCallPart(call_id="c", name="n", arguments="{")
    assert extend_part(call, "}") == call.replace(arguments="{}")


# RFC 7396, appendix A, the cases whose target and patch are objects
