"""Steps of a log: every event has a place in a step, or is reported as a loss."""

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
BEGUN_BY_STEP: dict[str, Any] = {"aief": {"input": "Hi", "additional_input": {}}}
"""`extra` of a run that a POST of a step began."""


def log(*events: Event, extra: dict[str, Any] | None = None, agent: str = "a") -> list[Record]:
    """Return the log of a task with one run and these events."""
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


def message(*parts: Part, message_id: str = "m", **more: Any) -> list[Event]:
    added = [PartAdded(message_id=message_id, index=index, part=part) for index, part in enumerate(parts)]
    return [MessageStarted(message_id=message_id, **more), *added, MessageEnded(message_id=message_id)]


def view(events: Iterable[Event], **more: Any) -> TaskView:
    return TaskView(THREAD, "a", log(*events, **more))


def only(events: Iterable[Event]) -> w.Step:
    [step] = view(events).steps()
    return step


def extras(step: w.Step) -> dict[str, Any]:
    return {name: value for name, value in (step.additional_output or {}).items() if name != "babelgate"}


@examples(40)
@given(resumed_logs())
def test_a_reattached_run_shows_the_same_steps(logs: tuple[list[Record], list[Record]]) -> None:
    reattached, uninterrupted = (TaskView(THREAD, "echo", records) for records in logs)
    assert reattached.steps() == uninterrupted.steps()


def test_a_restarted_run_omits_voided_steps_and_artifacts() -> None:
    file = FilePart(name="a.txt", url="http://a/a.txt")
    first = [
        StepStarted(step_id="1", name="plan"),
        *message(TextPart(text="one"), file),
        ToolStarted(call_id="c", name="look"),
        StepEnded(step_id="1", name="plan"),
        StepStarted(step_id="2", name="work"),
        *message(TextPart(text="two"), message_id="n"),
        ArtifactAdded(artifact_id="b", name="b.txt", part=file),
    ]
    again = RunStarted(attempt=2)
    (step,) = view([*first, again, *message(TextPart(text="three"), message_id="o"), *done()]).steps()
    assert (step.name, step.output, step.artifacts, extras(step)) == (None, "three", [], {})
    part = RunStarted(attempt=2, void=("n",))
    begun, rest = view([*first, part, *message(TextPart(text="three"), message_id="o"), *done()]).steps()
    assert (begun.name, begun.output, len(begun.artifacts or ())) == ("plan", "one", 1)
    assert (rest.name, rest.output, len(rest.artifacts or ())) == ("work", "three", 1)


def test_a_step_repeated_after_a_restart_is_one_step() -> None:
    """Restart a graph from its last checkpoint, with two parallel nodes that had not ended."""
    first = [
        StepStarted(step_id="1", name="plan"),
        *message(TextPart(text="one")),
        StepEnded(step_id="1", name="plan"),
        StepStarted(step_id="2", name="left"),
        StepStarted(step_id="3", name="right"),
        *message(TextPart(text="void"), message_id="n"),
    ]
    again = [
        RunStarted(attempt=2, void=("n",)),
        StepStarted(step_id="4", name="left"),
        StepStarted(step_id="5", name="right"),
        *message(TextPart(text="three"), message_id="o"),
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
def test_steps_of_a_restarted_run_omit_voided_attempts(logs: tuple[list[Record], list[Record]]) -> None:
    restarted, expected = (TaskView(THREAD, "echo", records) for records in logs)
    assert restarted.steps() == expected.steps()
    assert restarted.task() == expected.task()


def test_a_running_step_has_no_output() -> None:
    step = only(message(TextPart(text="half")))
    assert (step.status, step.output, step.is_last) == ("running", None, False)


def test_everything_but_text_is_in_the_additional_output() -> None:
    parts = (
        ReasoningPart(text="hm"),
        TextPart(text="Said."),
        DataPart(data={"a": 1}),
        AnnotationPart(start=0, end=4, url="https://h/x", title="X"),
        ToolCallPart(call_id="c", name="add", arguments="[1,2]"),
        ToolResultPart(call_id="c", output=3),
    )
    step = only([*message(*parts), *done({"b": 2}, tokens=5)])
    assert step.output == "Said."
    assert extras(step) == {
        "reasoning": "hm",
        "data": [{"a": 1}],
        "citations": [{"start": 0, "end": 4, "url": "https://h/x", "title": "X"}],
        "tools": [{"name": "add", "arguments": "[1,2]", "output": 3}],
        "output": {"b": 2},
        "usage": {"tokens": 5},
    }


def test_a_refusal_is_output_and_progress_is_not() -> None:
    progress = message(TextPart(text="Looking…"), message_id="p", phase="progress")
    step = only([*progress, *message(RefusalPart(text="No.")), *done()])
    assert step.output == "No."
    assert extras(step) == {"progress": "Looking…"}


def test_a_failed_tool_has_its_fault() -> None:
    fault = Fault(code=FaultCode.AGENT_FAILED, message="no network")
    called = ToolStarted(call_id="c", name="get", input=1)
    step = only([called, ToolEnded(call_id="c", name="get", fault=fault), *done()])
    error = {"code": "agent_failed", "message": "no network"}
    assert extras(step)["tools"] == [{"name": "get", "input": 1, "error": error}]


@pytest.mark.parametrize(
    ("events", "output"),
    [
        (done(), ""),
        (done("text"), "text"),
        (done({"a": 1}), '{"a":1}'),
        ([*message(DataPart(data=[1])), *done()], "[1]"),
        ([*message(DataPart(data=1), DataPart(data=2)), *done()], "[1,2]"),
        ([*message(TextPart(text="one")), *message(TextPart(text="two"), message_id="n"), *done()], "one\ntwo"),
    ],
)
def test_the_output_is_the_text_or_the_structured_output(events: list[Event], output: str) -> None:
    assert only(events).output == output


@pytest.mark.parametrize(
    ("status", "code"),
    [(RunStatus.ERROR, "agent_failed"), (RunStatus.TIMEOUT, "agent_timeout"), (RunStatus.CANCELLED, "cancelled")],
)
def test_a_fault_is_additional_output_and_replaces_empty_output(status: RunStatus, code: str) -> None:
    state = TaskState.CANCELLED if status is RunStatus.CANCELLED else TaskState.FAILED
    step = only([RunEnded(status=status, reason=RunReason.FAULT), TaskChanged(state=state)])
    assert (step.status, step.is_last) == ("completed", True)
    assert extras(step)["error"]["code"] == code
    assert step.output == extras(step)["error"]["message"]


def asking(*ids: str, kind: Any = "input") -> list[Event]:
    questions = [InterruptRaised(interrupt_id=each, ask=kind, message=Message.of(f"{each}?")) for each in ids]
    state = TaskState.AUTH_REQUIRED if kind == "auth" else TaskState.INPUT_REQUIRED
    return [*questions, RunEnded(status=RunStatus.PAUSED, reason=RunReason.INPUT), TaskChanged(state=state)]


def test_the_oldest_question_follows_the_text_in_the_output() -> None:
    task = view([*message(TextPart(text="Well.")), *asking("x", "y")])
    question, created = task.steps()
    assert (question.output, question.is_last) == ("Well.\nx?", False)
    assert [each["id"] for each in extras(question)["questions"]] == ["x", "y"]
    assert (created.step_id, created.status) == (next_run_id(RUN), "created")
    assert task.next().answer is not None


def test_a_login_request_has_the_status_auth_required() -> None:
    assert extras(view(asking("x", kind="auth")).steps()[0])["status"] == "auth-required"


def test_an_expired_question_is_the_last_step() -> None:
    dropped: list[Event] = [
        InterruptAnswered(interrupt_id="x", action="superseded"),
        TaskChanged(state=TaskState.FAILED, fault=Fault(code=FaultCode.EXPIRED, message="Nobody answered.")),
    ]
    [step] = view([*asking("x"), *dropped]).steps()
    assert (step.is_last, extras(step)["error"]["code"]) == (True, "expired")


# Steps in a run


def marked(*names: str) -> list[Event]:
    events: list[Event] = []
    for name in names:
        events += [StepStarted(step_id=name, name=name), *message(TextPart(text=name), message_id=name)]
        events.append(StepEnded(step_id=name, name=name))
    return events


def test_output_before_the_first_mark_belongs_to_the_first_step() -> None:
    first, second = view([*message(TextPart(text="Hm.")), *marked("a", "b"), *done()]).steps()
    assert (first.name, first.output, second.name, second.output) == ("a", "Hm.\na", "b", "b")
    assert (first.is_last, second.is_last) == (False, True)
    assert [first.step_id, second.step_id] == [RUN, step_id(RUN, 1)]


def test_a_message_can_continue_in_the_next_step() -> None:
    events: list[Event] = [
        StepStarted(name="a"),
        MessageStarted(message_id="m"),
        PartAdded(message_id="m", index=0, part=TextPart(text="one"), open=True),
        StepStarted(name="b"),
        PartDelta(message_id="m", index=0, text="two"),
    ]
    assert [step.output for step in view([*events, *done()]).steps()] == ["one", "two"]


def test_steps_of_a_run_are_revealed_one_per_request() -> None:
    task = view([*marked("a", "b", "c"), *done()], extra=BEGUN_BY_STEP)
    assert [step.status for step in task.steps()] == ["completed", "created", "created"]
    assert task.next().reveal == (RUN, 1)
    noted = ThreadChanged(extra={"aief": task.note(RUN, 2)})
    task = view([*marked("a", "b", "c"), *done(), noted], extra=BEGUN_BY_STEP)
    assert [step.status for step in task.steps()] == ["completed", "completed", "created"]
    assert task.note(RUN, 3)["input"] == "Hi"
    noted = ThreadChanged(extra={"aief": task.note(RUN, 3)})
    task = view([*marked("a", "b", "c"), *done(), noted], extra=BEGUN_BY_STEP)
    assert task.steps()[-1].is_last
    assert task.next().reveal is None


def test_a_run_of_another_protocol_shows_all_steps() -> None:
    task = view([*marked("a", "b"), *done()])
    assert [step.status for step in task.steps()] == ["completed", "completed"]


def test_a_running_step_is_found_after_a_restart() -> None:
    assert view(marked("a"), extra=BEGUN_BY_STEP).unfinished_step() == (RUN, 0)
    assert view(marked("a", "b"), extra=BEGUN_BY_STEP).unfinished_step() is None
    assert view(marked("a")).unfinished_step() is None


def test_artifacts_belong_to_the_step_that_began_them() -> None:
    def piece(text: str, **more: Any) -> ArtifactAdded:
        return ArtifactAdded(artifact_id="x", name="x.txt", part=TextPart(text=text), **more)

    events = [StepStarted(name="a"), piece("1", last=False), StepStarted(name="b"), piece("2", append=True)]
    task = view([*events, *done()])
    first, second = task.steps()
    assert [each.file_name for each in first.artifacts] == ["x.txt"]
    assert second.artifacts == []
    whole = task.artifact(first.artifacts[0].artifact_id)
    assert whole is not None
    assert whole.text == "12"


# Tasks and their agents


def test_losses_of_the_upstream_precede_those_of_the_gateway() -> None:
    artifact = ArtifactAdded(artifact_id="x", part=TextPart(text=""), description="lost")
    task = view([LossNoted(feature="usage", how="not told"), artifact, *done()])
    assert [loss.feature for loss in task.losses(RUN)] == ["usage", "artifact"]
    members = (task.steps()[0].additional_output or {})["babelgate"]
    assert set(members["loss"]) == {"usage", "artifact"}
    assert members["task_id"] == TASK


def test_a_thread_of_another_agent_is_no_task() -> None:
    records = log(*done(), agent="other")[1:]
    head = Record(1, 0, None, None, 0, ThreadChanged())
    assert not TaskView(THREAD, "a", [head, *records]).is_visible
    assert TaskView(THREAD, "other", [head, *records]).is_visible
    assert TaskView(THREAD, "a", log(*done(), agent="other")).is_visible
    assert not TaskView(THREAD, "a").is_visible


def test_an_artifact_of_another_agent_is_hidden() -> None:
    added = ArtifactAdded(artifact_id="x", part=TextPart(text=""))
    assert TaskView(THREAD, "a", log(added, *done(), agent="other")).artifacts() == []
    assert len(TaskView(THREAD, "other", log(added, *done(), agent="other")).artifacts()) == 1


def test_a_removed_run_leaves_a_created_step_with_another_id() -> None:
    task = view([*done(), RunRemoved(run_id=RUN, why="deleted")])
    [step] = task.steps()
    assert (step.status, step.step_id, step.input) == ("created", next_run_id(THREAD), "Hi")
    assert task.next().run_id == next_run_id(THREAD)
