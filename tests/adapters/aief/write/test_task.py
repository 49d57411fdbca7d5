"""What a step shows of a log: everything that an agent can say has a place, or is told to be lost."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given

from babelgate.adapters.aief.wire import types as w
from babelgate.adapters.aief.write.task import TaskView, step_id
from babelgate.canonical import (
    AnnotationPart,
    DataPart,
    Event,
    Fault,
    FaultCode,
    FilePart,
    Message,
    Part,
    ReasoningPart,
    Record,
    RefusalPart,
    RunReason,
    RunStatus,
    TaskState,
    TextPart,
    ToolCallPart,
    ToolResultPart,
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
    StepEnded,
    StepStarted,
    TaskChanged,
    TaskCreated,
    ThreadChanged,
    ToolEnded,
    ToolStarted,
)
from babelgate.canonical.thread import next_run_id
from tests.examples import examples
from tests.strategies import resumed_logs, started_over

THREAD = "00000000-0000-4000-8000-000000000001"
TASK = "22222222-2222-4222-8222-222222222222"
RUN = "33333333-3333-4333-8333-333333333330"
BEGUN: dict[str, Any] = {"aief": {"input": "Hi", "additional_input": {}}}
"""What a run keeps that a POST of a step began."""


def log(*events: Event, extra: dict[str, Any] | None = None, agent: str = "a") -> list[Record]:
    """A task with one run that says these events."""
    head: list[tuple[Event, bool]] = [
        (ThreadChanged(extra={"aief": {"agent": "a", "input": "Hi", "additional_input": {"k": 1}}}), False),
        (TaskCreated(task_id=TASK, agent=agent), False),
        (RunCreated(run_id=RUN, messages=(Message.of("Hi", "user"),), extra=extra or {}), True),
        (RunStarted(), True),
        (TaskChanged(state=TaskState.WORKING), False),
    ]
    of_run = [(event, not isinstance(event, TaskChanged | RunRemoved | ThreadChanged)) for event in events]
    return [
        Record(seq, 1_760_000_000_000_000 + seq * 1000, TASK if seq > 1 else None, RUN if ran else None, 1, event)
        for seq, (event, ran) in enumerate([*head, *of_run], start=1)
    ]


def done(output: Any = None, **usage: int) -> list[Event]:
    return [RunEnded(output=output, usage=usage), TaskChanged(state=TaskState.COMPLETED)]


def said(*parts: Part, message_id: str = "m", **more: Any) -> list[Event]:
    added = [PartAdded(message_id=message_id, index=index, part=part) for index, part in enumerate(parts)]
    return [MessageStarted(message_id=message_id, **more), *added, MessageEnded(message_id=message_id)]


def view(events: Iterable[Event], **more: Any) -> TaskView:
    return TaskView(THREAD, "a", log(*events, **more))


def only(events: Iterable[Event]) -> w.Step:
    [step] = view(events).steps()
    return step


def beside(step: w.Step) -> dict[str, Any]:
    return {name: value for name, value in (step.additional_output or {}).items() if name != "babelgate"}


@examples(40)
@given(resumed_logs())
def test_a_run_that_was_taken_up_is_shown_as_if_nothing_had_cut_it(made: tuple[list[Record], list[Record]]) -> None:
    taken, as_if = (TaskView(THREAD, "echo", records) for records in made)
    assert taken.steps() == as_if.steps()


def test_a_run_that_starts_over_shows_the_steps_and_the_artifacts_of_its_last_attempt() -> None:
    file = FilePart(name="a.txt", url="http://a/a.txt")
    first = [
        StepStarted(step_id="1", name="plan"),
        *said(TextPart(text="one"), file),
        ToolStarted(call_id="c", name="look"),
        StepEnded(step_id="1", name="plan"),
        StepStarted(step_id="2", name="work"),
        *said(TextPart(text="two"), message_id="n"),
        ArtifactAdded(artifact_id="b", name="b.txt", part=file),
    ]
    again = RunStarted(attempt=2)
    (step,) = view([*first, again, *said(TextPart(text="three"), message_id="o"), *done()]).steps()
    assert (step.name, step.output, step.artifacts, beside(step)) == (None, "three", [], {})
    part = RunStarted(attempt=2, void=("n",))
    begun, rest = view([*first, part, *said(TextPart(text="three"), message_id="o"), *done()]).steps()
    assert (begun.name, begun.output, len(begun.artifacts or ())) == ("plan", "one", 1)
    assert (rest.name, rest.output, len(rest.artifacts or ())) == ("work", "three", 1)


def test_a_step_that_begins_again_after_a_restart_is_one_step() -> None:
    """As a graph does it: from its last checkpoint, with nodes that had not ended, some of them side by side."""
    first = [
        StepStarted(step_id="1", name="plan"),
        *said(TextPart(text="one")),
        StepEnded(step_id="1", name="plan"),
        StepStarted(step_id="2", name="left"),
        StepStarted(step_id="3", name="right"),
        *said(TextPart(text="void"), message_id="n"),
    ]
    again = [
        RunStarted(attempt=2, void=("n",)),
        StepStarted(step_id="4", name="left"),
        StepStarted(step_id="5", name="right"),
        *said(TextPart(text="three"), message_id="o"),
        StepEnded(step_id="4", name="left"),
        StepEnded(step_id="5", name="right"),
    ]
    steps = view([*first, *again, *done()]).steps()
    assert [(step.name, step.output, step.is_last) for step in steps] == [
        ("plan", "one", False),
        ("left", "", False),
        ("right", "three", True),
    ]


@examples(40)
@given(started_over())
def test_of_a_run_that_was_started_over_the_last_attempt_is_shown(made: tuple[list[Record], list[Record]]) -> None:
    over, whole = (TaskView(THREAD, "echo", records) for records in made)
    assert over.steps() == whole.steps()
    assert over.task() == whole.task()


def test_a_step_that_is_at_work_shows_no_output_yet() -> None:
    step = only(said(TextPart(text="half")))
    assert (step.status, step.output, step.is_last) == ("running", None, False)


def test_what_is_no_text_stands_beside_the_output() -> None:
    parts = (
        ReasoningPart(text="hm"),
        TextPart(text="Said."),
        DataPart(data={"a": 1}),
        AnnotationPart(start=0, end=4, url="https://h/x", title="X"),
        ToolCallPart(call_id="c", name="add", arguments="[1,2]"),
        ToolResultPart(call_id="c", output=3),
    )
    step = only([*said(*parts), *done({"b": 2}, tokens=5)])
    assert step.output == "Said."
    assert beside(step) == {
        "reasoning": "hm",
        "data": [{"a": 1}],
        "citations": [{"start": 0, "end": 4, "url": "https://h/x", "title": "X"}],
        "tools": [{"name": "add", "arguments": "[1,2]", "output": 3}],
        "output": {"b": 2},
        "usage": {"tokens": 5},
    }


def test_a_refusal_is_said_and_progress_is_not() -> None:
    progress = said(TextPart(text="Looking…"), message_id="p", phase="progress")
    step = only([*progress, *said(RefusalPart(text="No.")), *done()])
    assert step.output == "No."
    assert beside(step) == {"progress": "Looking…"}


def test_a_tool_that_fails_is_told_with_its_fault() -> None:
    fault = Fault(code=FaultCode.AGENT_FAILED, message="no network")
    called = ToolStarted(call_id="c", name="get", input=1)
    step = only([called, ToolEnded(call_id="c", name="get", fault=fault), *done()])
    error = {"code": "agent_failed", "message": "no network"}
    assert beside(step)["tools"] == [{"name": "get", "input": 1, "error": error}]


@pytest.mark.parametrize(
    ("events", "output"),
    [
        (done(), ""),
        (done("text"), "text"),
        (done({"a": 1}), '{"a":1}'),
        ([*said(DataPart(data=[1])), *done()], "[1]"),
        ([*said(DataPart(data=1), DataPart(data=2)), *done()], "[1,2]"),
        ([*said(TextPart(text="one")), *said(TextPart(text="two"), message_id="n"), *done()], "one\ntwo"),
    ],
)
def test_the_output_is_what_was_said_or_else_given_back(events: list[Event], output: str) -> None:
    assert only(events).output == output


@pytest.mark.parametrize(
    ("status", "code"),
    [(RunStatus.ERROR, "agent_failed"), (RunStatus.TIMEOUT, "agent_timeout"), (RunStatus.CANCELLED, "cancelled")],
)
def test_a_bad_end_is_told_in_additional_output_and_in_the_output_if_nothing_was_said(
    status: RunStatus, code: str
) -> None:
    state = TaskState.CANCELLED if status is RunStatus.CANCELLED else TaskState.FAILED
    step = only([RunEnded(status=status, reason=RunReason.FAULT), TaskChanged(state=state)])
    assert (step.status, step.is_last) == ("completed", True)
    assert beside(step)["error"]["code"] == code
    assert step.output == beside(step)["error"]["message"]


def asking(*ids: str, kind: Any = "input") -> list[Event]:
    asked = [InterruptRaised(interrupt_id=each, ask=kind, message=Message.of(f"{each}?")) for each in ids]
    state = TaskState.AUTH_REQUIRED if kind == "auth" else TaskState.INPUT_REQUIRED
    return [*asked, RunEnded(status=RunStatus.PAUSED, reason=RunReason.INPUT), TaskChanged(state=state)]


def test_a_question_stands_after_what_was_said_and_the_oldest_is_the_one_that_is_asked() -> None:
    shown = view([*said(TextPart(text="Well.")), *asking("x", "y")])
    asked, created = shown.steps()
    assert (asked.output, asked.is_last) == ("Well.\nx?", False)
    assert [each["id"] for each in beside(asked)["questions"]] == ["x", "y"]
    assert (created.step_id, created.status) == (next_run_id(RUN), "created")
    assert shown.next().answer is not None


def test_a_request_to_log_in_is_a_question_that_says_so() -> None:
    assert beside(view(asking("x", kind="auth")).steps()[0])["status"] == "auth-required"


def test_a_question_that_was_dropped_is_the_last_step() -> None:
    dropped: list[Event] = [
        InterruptAnswered(interrupt_id="x", action="superseded"),
        TaskChanged(state=TaskState.FAILED, fault=Fault(code=FaultCode.EXPIRED, message="Nobody answered.")),
    ]
    [step] = view([*asking("x"), *dropped]).steps()
    assert (step.is_last, beside(step)["error"]["code"]) == (True, "expired")


# Steps in a run


def marked(*names: str) -> list[Event]:
    events: list[Event] = []
    for name in names:
        events += [StepStarted(step_id=name, name=name), *said(TextPart(text=name), message_id=name)]
        events.append(StepEnded(step_id=name, name=name))
    return events


def test_what_comes_before_the_first_mark_belongs_to_the_first_step() -> None:
    first, second = view([*said(TextPart(text="Hm.")), *marked("a", "b"), *done()]).steps()
    assert (first.name, first.output, second.name, second.output) == ("a", "Hm.\na", "b", "b")
    assert (first.is_last, second.is_last) == (False, True)
    assert [first.step_id, second.step_id] == [RUN, step_id(RUN, 1)]


def test_a_message_may_go_on_from_one_step_to_the_next() -> None:
    events: list[Event] = [
        StepStarted(name="a"),
        MessageStarted(message_id="m"),
        PartAdded(message_id="m", index=0, part=TextPart(text="one"), open=True),
        StepStarted(name="b"),
        PartDelta(message_id="m", index=0, text="two"),
    ]
    assert [step.output for step in view([*events, *done()]).steps()] == ["one", "two"]


def test_a_run_that_a_step_began_is_revealed_as_far_as_was_asked() -> None:
    shown = view([*marked("a", "b", "c"), *done()], extra=BEGUN)
    assert [step.status for step in shown.steps()] == ["completed", "created", "created"]
    assert shown.next().reveal == (RUN, 1)
    noted = ThreadChanged(extra={"aief": shown.note(RUN, 2)})
    shown = view([*marked("a", "b", "c"), *done(), noted], extra=BEGUN)
    assert [step.status for step in shown.steps()] == ["completed", "completed", "created"]
    assert shown.note(RUN, 3)["input"] == "Hi"
    noted = ThreadChanged(extra={"aief": shown.note(RUN, 3)})
    shown = view([*marked("a", "b", "c"), *done(), noted], extra=BEGUN)
    assert shown.steps()[-1].is_last
    assert shown.next().reveal is None


def test_a_run_that_nobody_steps_through_is_shown_whole() -> None:
    shown = view([*marked("a", "b"), *done()])
    assert [step.status for step in shown.steps()] == ["completed", "completed"]


def test_a_step_that_is_at_work_after_a_restart_is_known() -> None:
    assert view(marked("a"), extra=BEGUN).unfinished_step() == (RUN, 0)
    assert view(marked("a", "b"), extra=BEGUN).unfinished_step() is None
    assert view(marked("a")).unfinished_step() is None


def test_artifacts_are_those_of_the_step_in_which_they_began() -> None:
    def piece(text: str, **more: Any) -> ArtifactAdded:
        return ArtifactAdded(artifact_id="x", name="x.txt", part=TextPart(text=text), **more)

    events = [StepStarted(name="a"), piece("1", last=False), StepStarted(name="b"), piece("2", append=True)]
    shown = view([*events, *done()])
    first, second = shown.steps()
    assert [each.file_name for each in first.artifacts] == ["x.txt"]
    assert second.artifacts == []
    whole = shown.artifact(first.artifacts[0].artifact_id)
    assert whole is not None
    assert whole.text == "12"


# Which task it is


def test_losses_are_those_of_the_upstream_and_then_our_own() -> None:
    artifact = ArtifactAdded(artifact_id="x", part=TextPart(text=""), description="lost")
    shown = view([LossNoted(feature="usage", how="not told"), artifact, *done()])
    assert [loss.feature for loss in shown.losses(RUN)] == ["usage", "artifact"]
    told = (shown.steps()[0].additional_output or {})["babelgate"]
    assert set(told["loss"]) == {"usage", "artifact"}
    assert told["task_id"] == TASK


def test_a_thread_of_another_agent_is_no_task_of_this_one() -> None:
    records = log(*done(), agent="other")[1:]
    head = Record(1, 0, None, None, 0, ThreadChanged())
    assert not TaskView(THREAD, "a", [head, *records]).is_visible
    assert TaskView(THREAD, "other", [head, *records]).is_visible
    assert TaskView(THREAD, "a", log(*done(), agent="other")).is_visible
    assert not TaskView(THREAD, "a").is_visible


def test_an_artifact_of_another_agent_is_not_this_one_s() -> None:
    made = ArtifactAdded(artifact_id="x", part=TextPart(text=""))
    assert TaskView(THREAD, "a", log(made, *done(), agent="other")).artifacts() == []
    assert len(TaskView(THREAD, "other", log(made, *done(), agent="other")).artifacts()) == 1


def test_a_removed_run_leaves_a_created_step_with_another_id() -> None:
    shown = view([*done(), RunRemoved(run_id=RUN, why="deleted")])
    [step] = shown.steps()
    assert (step.status, step.step_id, step.input) == ("created", next_run_id(THREAD), "Hi")
    assert shown.next().run_id == next_run_id(THREAD)
