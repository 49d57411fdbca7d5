"""Folds: views of a log."""

from typing import Any

import pytest
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
from babelgate.canonical.growing import extend_part
from babelgate.canonical.stored import decode_event
from babelgate.canonical.thread import Loss
from tests import strategies


def view(fold: Fold) -> dict[str, Any]:
    """Return everything that a fold shows."""
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
    """Return records of run `r`, or of the run that is paired with the event."""
    pairs = [event if isinstance(event, tuple) else ("r", event) for event in events]
    return [Record(seq, seq * 10, task, run_id, 1, event) for seq, (run_id, event) in enumerate(pairs, start=1)]


def fold(*events: Event | tuple[str | None, Event]) -> Fold:
    return Fold("thread", "owner", log(*events))


@given(strategies.records(), st.data())
def test_a_log_folds_equally_in_one_step_or_two(records: list[Record], data: st.DataObject):
    cut = data.draw(st.integers(0, len(records)))
    halves = Fold("thread", "owner", records[:cut])
    view(halves)  # looking at it in between changes nothing
    for record in records[cut:]:
        halves.apply(record)
    assert view(halves) == view(Fold("thread", "owner", records))


@given(strategies.records())
def test_a_stored_log_folds_like_the_original(records: list[Record]):
    stored = [record.replace(event=decode_event(encode_event(record.event))) for record in records]
    assert view(Fold("thread", "owner", stored)) == view(Fold("thread", "owner", records))


@given(strategies.records())
def test_a_fold_does_not_change_the_records(records: list[Record]):
    before = [encode_event(record.event) for record in records]
    view(Fold("thread", "owner", records))
    assert [encode_event(record.event) for record in records] == before


@given(strategies.records())
def test_a_tasks_log_and_its_threads_log_fold_equally(records: list[Record]):
    whole = Fold("thread", "owner", records)
    (task_id,) = whole.tasks
    of_task = Fold("thread", "owner", [record for record in records if record.task_id == task_id])
    assert of_task.tasks == whole.tasks
    assert of_task.messages() == whole.messages(task_id=task_id)


@given(strategies.records())
def test_messages_of_all_runs_are_the_threads_messages(records: list[Record]):
    whole = Fold("thread", "owner", records)
    assert [message for run_id in whole.runs for message in whole.messages(run_id=run_id)] == whole.messages()


@given(strategies.records())
def test_a_waiting_task_has_open_questions_and_no_active_run(records: list[Record]):
    current = Fold("thread", "owner")
    for record in records:
        current.apply(record)
        if isinstance(record.event, TaskChanged):
            (task,) = current.tasks.values()
            active = any(run.status is RunStatus.RUNNING for run in current.runs.values())
            if task.is_waiting:
                assert current.open_interrupts() and not active
            if task.is_terminal:
                assert not current.open_interrupts() and not active


@given(strategies.records())
def test_messages_have_the_text_of_their_events(records: list[Record]):
    texts: dict[str, str] = {}
    for record in records:
        match record.event:
            case PartAdded(part=TextPart(text=text)) | PartDelta(text=text):
                key = f"{record.event.message_id}/{record.event.index}"
                texts[key] = texts.get(key, "") + text
            case _:
                pass
    messages = Fold("thread", "owner", records).messages()
    for message in messages:
        for index, part in enumerate(message.parts):
            if isinstance(part, TextPart) and f"{message.message_id}/{index}" in texts:
                assert part.text == texts[f"{message.message_id}/{index}"]


def test_a_thread_merges_its_changes():
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


def test_a_task_has_the_times_of_its_records():
    result = fold(
        (None, TaskCreated(task_id="t", agent="echo", continues="s", references=("q",))),
        RunCreated(run_id="r"),
        RunStarted(),
        (None, TaskChanged(state=TaskState.WORKING)),
        MessageStarted(message_id="m"),
    )
    task = result.tasks["t"]
    assert (task.state, task.created_at, task.changed_at) == (TaskState.WORKING, 10, 40)
    assert (task.first_seq, task.last_seq, task.continues, task.references) == (1, 4, "s", ("q",))


def test_a_run_is_pending_then_running_then_ended():
    result = fold(RunCreated(run_id="r", strategy="reject", start_after=7))
    assert (result.runs["r"].status, result.runs["r"].strategy, result.runs["r"].start_after) == (
        "pending",
        "reject",
        7,
    )
    result.apply(Record(2, 20, "t", "r", 2, RunStarted(attempt=2)))
    assert (result.runs["r"].status, result.runs["r"].attempt, result.runs["r"].started_at) == ("running", 2, 20)
    result.apply(Record(3, 30, "t", "r", 2, LossNoted(feature="fork", how="gone")))
    result.apply(Record(4, 40, "t", "r", 2, RunEnded(output={"a": 1}, usage={"tokens": 3})))
    run = result.runs["r"]
    assert (run.status, run.reason, run.ended_at, run.has_ended) == ("success", RunReason.DONE, 40, True)
    assert (run.output, run.usage, run.loss) == ({"a": 1}, {"tokens": 3}, (Loss(feature="fork", how="gone"),))
    assert (run.first_seq, run.last_seq) == (1, 4)


def test_a_restart_voids_only_the_messages_it_names():
    result = fold(
        RunCreated(run_id="r", messages=(Message(message_id="i", role="user"),)),
        MessageStarted(message_id="m"),
        MessageEnded(message_id="m"),
        ArtifactAdded(artifact_id="f", part=TextPart(text="x")),
        MessageStarted(message_id="n"),
        LossNoted(feature="step", how="gone"),
        RunStarted(attempt=2, void=("n",)),
    )
    assert [message.message_id for message in result.messages()] == ["i", "m"]
    assert list(result.artifacts) == ["f"]
    assert result.runs["r"].loss


def test_a_restart_voids_earlier_output_unless_resumed():
    message = Message(message_id="i", role="user")
    first = [MessageStarted(message_id="m"), ArtifactAdded(artifact_id="f", part=TextPart(text="x"))]
    for is_resumed in (False, True):
        again = RunStarted(attempt=2, resumed=is_resumed)
        result = fold(
            RunCreated(run_id="r", messages=(message,)), RunStarted(), *first, again, MessageStarted(message_id="n")
        )
        assert [m.message_id for m in result.messages()] == ["i", *(["m"] if is_resumed else []), "n"]
        assert list(result.artifacts) == (["f"] if is_resumed else [])


def test_removing_a_run_keeps_the_run_that_removes_it():
    result = fold(RunCreated(run_id="r"), ("s", RunCreated(run_id="s")), ("s", RunRemoved(run_id="r", why="rollback")))
    assert (result.runs["r"].removed, result.runs["s"].removed) == (True, False)


def test_a_question_is_open_until_it_is_answered():
    question = InterruptRaised(interrupt_id="i", ask="approval", value={"a": 1}, answer_schema={"type": "string"})
    result = fold(question, InterruptRaised(interrupt_id="j"))
    assert [interrupt.interrupt_id for interrupt in result.open_interrupts("t")] == ["i", "j"]
    assert result.open_interrupts("another") == []
    result.apply(Record(3, 30, "t", "s", 0, InterruptAnswered(interrupt_id="i", value="yes")))
    answered = result.interrupts["t", "i"]
    assert [interrupt.interrupt_id for interrupt in result.open_interrupts()] == ["j"]
    assert (answered.action, answered.answer, answered.ask, answered.raised_at) == ("answer", "yes", "approval", 10)


def test_an_artifact_grows_by_appends_only():
    first = ArtifactAdded(artifact_id="a", name="n", part=TextPart(text="1"), last=False)
    more = ArtifactAdded(artifact_id="a", part=TextPart(text="2"), append=True)
    result = fold(first)
    assert not result.artifacts["a"].complete
    result.apply(Record(2, 20, "t", "r", 1, more))
    assert (result.artifacts["a"].text, result.artifacts["a"].name, result.artifacts["a"].complete) == ("12", "n", True)
    result.apply(Record(3, 30, "t", "r", 1, first))
    assert (result.artifacts["a"].text, result.artifacts["a"].created_at) == ("1", 30)


def test_a_message_without_its_start_is_ignored():
    result = fold(
        PartAdded(message_id="m", index=0, part=TextPart(text="a")), PartDelta(message_id="m", index=0, text="b")
    )
    assert result.messages() == []
    assert result.message("m") is None


@pytest.mark.parametrize("index", [None, 0, 1, -1])
def test_a_delta_of_an_unknown_part_is_ignored(index: int | None):
    result = fold(MessageStarted(message_id="m"), PartDelta(message_id="m", index=index, text="b"))
    assert [message.parts for message in result.messages()] == [()]


def test_one_message_can_be_looked_up_while_it_grows():
    result = fold(
        MessageStarted(message_id="m", phase="progress"),
        PartAdded(message_id="m", index=0, part=TextPart(text="a"), open=True),
        PartDelta(message_id="m", index=0, text="b"),
    )
    message = result.message("m")
    assert message is not None and (message.text, message.phase) == ("ab", "progress")


def test_text_of_every_streaming_kind_is_extended():
    assert extend_part(TextPart(text="a"), "b") == TextPart(text="ab")
    assert extend_part(ReasoningPart(text="a"), "b") == ReasoningPart(text="ab")
    assert extend_part(RefusalPart(text="a"), "b") == RefusalPart(text="ab")
    call = ToolCallPart(call_id="c", name="n", arguments="{")
    assert extend_part(call, "}") == call.replace(arguments="{}")


# RFC 7396, appendix A, the cases whose target and patch are objects
