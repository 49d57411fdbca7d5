"""Encoding of a thread's records as the AIEF task of one agent: its steps, and the effect of the next POST of a step.

A step is a run, or one of several that its agent has marked. A step with the status `created` is not stored: it follows
from the end of the earlier runs, and its id is derived from their ids.
"""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID, uuid5

from babelgate.adapters.aief.codec import COSTS, artifact_id, encode_artifact, input_of
from babelgate.adapters.aief.errors import encode_error
from babelgate.adapters.aief.wire import types as w
from babelgate.adapters.aief.write.steps import RunSteps, StepProgress
from babelgate.adapters.kit.json import json_text
from babelgate.adapters.kit.time import encode_time
from babelgate.canonical import (
    Artifact,
    Fault,
    FaultCode,
    FilePart,
    Fold,
    Interrupt,
    Record,
    Run,
    RunStatus,
    Task,
    TaskState,
)
from babelgate.canonical.event import ArtifactAdded, PartAdded, RunCreated, RunEnded, RunStarted
from babelgate.canonical.thread import Loss, Thread, losses_by_feature, next_run_id
from babelgate.canonical.value import Extra, JsonObject

_CANCELLED: Final[JsonObject] = {"code": "cancelled", "message": "The step was cancelled."}
"""Member `error` of a cancelled step."""


def extra_of(extra: Extra) -> JsonObject:
    """Return the members that this adapter has stored in the `extra` of a thread or a run's input."""
    return dict(extra.get("aief") or {})


def step_id(run_id: str, number: int) -> str:
    """Return the id of a step, from the id of its run and its number in the run, counted from 0."""
    return run_id if number == 0 else str(uuid5(UUID(run_id), str(number)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """Effect of the next POST of a step on a task. Without `reveal` and `answer`, it starts a new turn."""

    reveal: tuple[str, int] | None = None
    """Id of a run that an earlier POST started, and the number of its step to return. None: no such step."""
    answer: Task | None = None
    """Task of the hub whose questions the POST answers. None: no task waits."""
    run_id: str | None = None
    """Id of the run to start, because callers have seen it as the id of a `created` step. None: a new id."""


@dataclass(frozen=True, slots=True)
class StepPosition:
    """Position of a step in a task: in a run, or as the start of a run that a POST would create."""

    step_id: str
    run_id: str | None = None
    """Id of the run that the step belongs to. None: the step has not begun."""
    number: int = 0
    """Number of the step in its run, counted from 0."""
    after: str | None = None
    """Id of the run whose questions the step would answer, for a step that has not begun. None: it would be the first
    step of the task."""


class TaskView:
    """View of a thread as an AIEF task of one agent. It must receive all records of the thread, in order, or those of
    some runs."""

    def __init__(self, thread_id: str, agent: str, records: Iterable[Record] = ()) -> None:
        self.thread_id = thread_id
        self.agent = agent
        self.fold = Fold(thread_id)
        self._run_steps: dict[str, RunSteps] = {}
        """Steps of each run of the agent, by run id, oldest run first."""
        self._runs: dict[str, list[str]] = {}
        """Ids of the agent's runs, by task id, oldest first."""
        self._artifacts: dict[tuple[str, str], Artifact] = {}
        """Artifacts by run id and artifact id, because an agent may reuse an id in another run. Uploads have the run id
        ""."""
        self._files: dict[tuple[str, str], str] = {}
        """Id of the message to which a file belongs, by run id and artifact id. Only files in messages have an entry.
        With it, a restart removes the files of voided messages."""
        for record in records:
            self.apply(record)

    def copy(self) -> "TaskView":
        """Return a copy that can be updated independently. The steps of ended runs are shared."""
        copied = TaskView(self.thread_id, self.agent)
        copied.fold = self.fold.copy()
        copied._run_steps = {
            run_id: work if work.progress.ended else deepcopy(work) for run_id, work in self._run_steps.items()
        }
        copied._runs = {task_id: list(run_ids) for task_id, run_ids in self._runs.items()}
        copied._artifacts, copied._files = dict(self._artifacts), dict(self._files)
        return copied

    def apply(self, record: Record) -> None:
        """Update the view by the next record."""
        self.fold.apply(record)
        event, run_id = record.event, record.run_id or ""
        if isinstance(event, RunCreated) and self.fold.runs[event.run_id].agent == self.agent:
            self._run_steps[event.run_id] = RunSteps(event, record.at)
            self._runs.setdefault(record.task_id or "", []).append(event.run_id)
        run_steps = self._run_steps.get(run_id)
        if run_steps is not None:
            run_steps.apply(record)
        elif run_id:
            return
        match event:
            case RunStarted() if event.is_restart:
                voided = [key for key in self._artifacts if key[0] == run_id and event.is_void(self._files.get(key))]
                for key in voided:
                    del self._artifacts[key]
            case ArtifactAdded():
                self._artifacts[run_id, event.artifact_id or ""] = self.fold.artifacts[event.artifact_id or ""]
            case PartAdded() if isinstance(event.part, FilePart) and run_steps is not None:
                self._add_file(event.message_id or "", event.index or 0, event.part, record)
            case RunEnded() if event.status is RunStatus.PAUSED and run_steps is not None:
                run_steps.questions = tuple(self.fold.open_interrupts(record.task_id))
            case _:
                pass

    def _add_file(self, message_id: str, index: int, part: FilePart, record: Record) -> None:
        """Add a file in a message as an artifact, because the protocol has files only in artifacts."""
        name = f"{message_id}/{index}"
        key = (record.run_id or "", name)
        self._files[key] = message_id
        self._artifacts[key] = Artifact(
            artifact_id=name,
            name=part.name,
            parts=(part,),
            task_id=record.task_id,
            run_id=record.run_id,
            created_at=record.at,
        )

    # The task

    @property
    def seq(self) -> int:
        """Seq of the newest record."""
        return self.fold.seq

    @property
    def size(self) -> int:
        """Estimated size in memory, in bytes."""
        return 2 * self.fold.size  # the steps hold the texts again

    @property
    def thread(self) -> Thread:
        """The thread as of the newest record. The record that created the thread must have been read."""
        assert self.fold.thread is not None
        return self.fold.thread

    @property
    def is_visible(self) -> bool:
        """True if callers of the agent can see the thread as a task: it was created for the agent, or the agent has a
        task on it."""
        if self.fold.thread is None:
            return False
        return extra_of(self.thread.extra).get("agent") == self.agent or any(
            task.agent == self.agent for task in self.fold.tasks.values()
        )

    @property
    def last_task(self) -> Task | None:
        """Newest task of the hub on the thread that belongs to the agent; None before the first one."""
        tasks = [task for task in self.fold.tasks.values() if task.agent == self.agent]
        return tasks[-1] if tasks else None

    def input(self) -> tuple[str | None, JsonObject]:
        """Return the `input` and `additional_input` of the task. For a thread of another protocol, they come from the
        agent's first run."""
        stored = extra_of(self.thread.extra)
        if stored.get("agent") == self.agent:
            return stored.get("input"), stored.get("additional_input") or {}
        first = next(self._visible_runs(), None)
        # An empty object instead of null, which the contract suite refuses.
        return (None, {}) if first is None else input_of(first[1].created.messages, first[1].created.data)

    def task(self) -> w.Task:
        """Return the task in AIEF's form, without steps."""
        text, more = self.input()
        return w.Task(
            task_id=self.thread_id,
            input=text,
            additional_input=more,
            artifacts=self.artifacts(),
            created_at=encode_time(self.thread.created_at),
        )

    def task_with_steps(self) -> w.TaskWithSteps:
        """Return the task in AIEF's form, with its steps."""
        return w.TaskWithSteps(**dict(self.task()), steps=self.steps())

    # Artifacts

    def _current_artifacts(self) -> dict[str, Artifact]:
        """Return uploads, and artifacts of runs that were not removed, by the id that callers use."""
        artifacts: dict[str, Artifact] = {}
        for (run_id, _), artifact in self._artifacts.items():
            if not run_id or not self.fold.runs[run_id].removed:
                artifacts[artifact_id(artifact)] = artifact
        return artifacts

    def current_artifacts(self) -> list[Artifact]:
        """Return uploads, and artifacts of runs that were not removed."""
        return list(self._current_artifacts().values())

    def artifacts(self) -> list[w.Artifact]:
        """Return the current artifacts in AIEF's form."""
        return [encode_artifact(artifact) for artifact in self._current_artifacts().values()]

    def artifact(self, wire_id: str) -> Artifact | None:
        """Return a current artifact by the id that callers use, or None."""
        return self._current_artifacts().get(wire_id)

    # The next step

    def _visible_runs(self) -> Iterator[tuple[Run, RunSteps]]:
        """Yield the agent's runs that were not removed, with their steps."""
        for run_id, run_steps in self._run_steps.items():
            run = self.fold.runs[run_id]
            if not run.removed:
                yield run, run_steps

    def _stepped_run_id(self) -> str | None:
        """Return the newest run that a POST of a step began or returned, or None. Only this run may have steps that are
        not yet revealed."""
        for run_id, run_steps in reversed(self._run_steps.items()):
            is_stepped = "aief" in run_steps.created.extra or self._find_note(run_id)
            if is_stepped and not self.fold.runs[run_id].removed:
                return run_id
        return None

    def _find_note(self, run_id: str) -> JsonObject:
        """Return the note that `note` has stored on the thread for a run, or {}."""
        notes: JsonObject = extra_of(self.thread.extra).get("revealed") or {}
        own_note: Any = notes.get(self.agent) or {}
        return own_note if own_note.get("run_id") == run_id else {}

    def revealed_steps(self, run_id: str) -> int:
        """Return the number of steps of a run that callers have requested. The POST that started the run requested the
        first step. Runs of other protocols show all steps."""
        if run_id != self._stepped_run_id():
            return len(self._run_steps[run_id].segments)
        return self._find_note(run_id).get("steps", 1)

    def note(self, run_id: str, steps: int, *, cut: bool = False) -> JsonObject:
        """Return the members to store in the thread's `extra` when callers have requested `steps` steps of a run.
        `cut`: the last of them was returned before it was over, because the gateway was shutting down."""
        stored = extra_of(self.thread.extra)
        own_note: JsonObject = {"run_id": run_id, "steps": steps, **({"cut": True} if cut else {})}
        return {**stored, "revealed": {**(stored.get("revealed") or {}), self.agent: own_note}}

    def unreturned_step(self) -> tuple[str, int] | None:
        """Return the run id and the number of the step whose end no POST has returned, or None.

        This is the newest step if it was returned unfinished, or the step that continued it after an answer that was
        no POST, such as an authorization by the user.
        """
        run_id = self._stepped_run_id()
        if run_id is None:
            return None
        if self._find_note(run_id).get("cut"):
            return run_id, self.revealed_steps(run_id) - 1
        of_task = self._runs[self.fold.runs[run_id].task_id]
        later = [each for each in of_task[of_task.index(run_id) + 1 :] if not self.fold.runs[each].removed]
        return (later[-1], 0) if later else None

    def is_over(self, run_id: str, number: int) -> bool:
        """Return True if a step, given by run id and number from 0, has ended."""
        return run_id in self._run_steps and self._run_steps[run_id].progress.is_over(number)

    def progress(self, run_id: str) -> StepProgress:
        """Return a copy of a run's progress, to which the caller can apply later events."""
        return self._run_steps[run_id].progress.copy() if run_id in self._run_steps else StepProgress()

    def unfinished_step(self) -> tuple[str, int] | None:
        """Return the run id and the number of the step that was requested and is still running, or None. A POST waits
        for this step first, for example after a restart of the gateway."""
        run_id = self._stepped_run_id()
        if run_id is None:
            return None
        number = self.revealed_steps(run_id) - 1
        return None if self.is_over(run_id, number) else (run_id, number)

    def next(self) -> Next:
        """Return the effect of the next POST of a step. The first effect that is possible applies:

        - return the next step that the last started run has already produced (`reveal`),
        - answer the task that has waited longest for an answer (`answer`),
        - start a run.
        """
        stepped = self._stepped_run_id()
        if stepped is not None and self.revealed_steps(stepped) < len(self._run_steps[stepped].segments):
            return Next(reveal=(stepped, self.revealed_steps(stepped)))
        for _, task in self._waiting_tasks():
            return Next(answer=task)
        # Also after the last step: the protocol's Postman collection posts one more, and expects 200.
        return Next(run_id=self._first_id() if next(self._visible_runs(), None) is None else None)

    def _first_id(self) -> str:
        """Return the id that the first run of the thread will have. It is derived from the thread's id, so that callers
        can see it before."""
        run_id = next_run_id(self.thread_id)
        while run_id in self.fold.runs:  # that run was removed
            run_id = next_run_id(run_id)
        return run_id

    def _waiting_tasks(self) -> list[tuple[Run, Task]]:
        """Return the hub's tasks of the agent that wait for an answer, each with the run that stopped for the
        questions. The task that has waited longest is first."""
        newest: dict[str, Run] = {}
        for run, _ in self._visible_runs():
            if run.status is RunStatus.PAUSED and self.fold.tasks[run.task_id].is_waiting:
                newest[run.task_id] = run
        waiting = [(run, self.fold.tasks[task_id]) for task_id, run in newest.items()]
        return sorted(waiting, key=lambda each: each[0].ended_at or 0)

    # Steps

    def places(self) -> list[StepPosition]:
        """Return the positions of all steps: those that have begun, oldest run first, and then those that a POST can
        start."""
        places = [
            StepPosition(step_id(run.run_id, number), run.run_id, number)
            for run, work in self._visible_runs()
            for number in range(len(work.segments))
        ]
        if not places:
            places.append(StepPosition(self._first_id()))
        return [*places, *self.answer_places()]

    def answer_places(self) -> list[StepPosition]:
        """Return the positions of the steps with which a POST would answer a waiting task."""
        return [StepPosition(next_run_id(run.run_id), after=run.run_id) for run, _ in self._waiting_tasks()]

    def at(self, place: StepPosition) -> w.Step:
        """Return the step at a position, in AIEF's form."""
        if place.run_id is not None:
            return self.step(place.run_id, place.number)
        if place.after is not None:
            return self._create_step(place.step_id, self.fold.runs[place.after].ended_at or 0)
        return self._create_step(place.step_id, self.thread.created_at, *self.input())

    def steps(self) -> list[w.Step]:
        """Return all steps in AIEF's form."""
        return [self.at(place) for place in self.places()]

    def _create_step(self, run_id: str, at: int, text: str | None = None, more: JsonObject | None = None) -> w.Step:
        return w.Step(
            task_id=self.thread_id,
            step_id=run_id,
            status="created",
            input=text,
            additional_input=more or {},
            created_at=encode_time(at),
        )

    def step(self, run_id: str, number: int) -> w.Step:
        """Return a step of a run in AIEF's form. Its number counts from 0; a step that was not requested yet has the
        status `created`."""
        run, run_steps = self.fold.runs[run_id], self._run_steps[run_id]
        number = min(number, len(run_steps.segments) - 1)
        segment = run_steps.segments[number]
        text, more = _input(run_steps.created) if number == 0 else (None, {})
        # A run with several steps appears as several steps: the document allows a step to create others (RFC
        # 2023-08-14).
        step = self._create_step(step_id(run_id, number), segment.at, text, more)
        step.name = segment.name
        if number >= self.revealed_steps(run_id) or run.status is RunStatus.PENDING:
            return step
        step.status = "running"
        step.artifacts = [encode_artifact(self._artifacts[run_id, each]) for each in segment.artifacts]
        step.additional_output = self._about(run)
        if run_steps.progress.is_over(number):
            # created, running, completed (OpenAPI v1, Step.status): the steps of a failed run are completed, too.
            step.status = "completed"
            step.output = segment.output
            step.additional_output = {**segment.additional_output, **step.additional_output, **segment.other_output()}
            if number == len(run_steps.segments) - 1:
                self._write_run_end(step, run, run_steps)
            step = step.model_copy(update=segment.unknown)
        return step

    def _about(self, run: Run) -> JsonObject:
        """Return the member `babelgate` of a step's `additional_output`, as an object: the ids and losses of the
        run."""
        ids: JsonObject = {"thread_id": self.thread_id, "task_id": run.task_id, "run_id": run.run_id}
        losses = self.losses(run.run_id)
        if losses:
            ids["loss"] = losses_by_feature(losses)
        return {"babelgate": ids}

    def _write_run_end(self, step: w.Step, run: Run, run_steps: RunSteps) -> None:
        """Add what the end of a run contains to its last step: output, usage, questions and error."""
        more: JsonObject = {}
        last = run_steps.segments[-1]
        if run.output is not None and not (
            isinstance(run.output, dict) and run.output.items() <= last.additional_output.items()
        ):
            more["output"] = run.output
        usage = dict(run.usage)
        if last.additional_output.keys() & {*COSTS}:
            usage.pop("cost", None)
        if usage:
            more["usage"] = usage
        if run_steps.questions:
            more |= _encode_questions(run_steps.questions)
            step.output = "\n".join(filter(None, (step.output, run_steps.questions[0].message.text)))
        error = self._error(run)
        if error is not None:
            more["error"] = error
        if not step.output:
            structured = run.output if isinstance(run.output, str | None) else json_text(run.output)
            step.output = structured or last.data_text or (error["message"] if error else "")
        # False for a question: callers such as agbenchmark 0.0.10 stop at is_last, and would never answer.
        step.is_last = self._is_last(run)
        output = step.additional_output or {}
        if last.data == [run.output]:  # the same data was sent as a part and as the output
            output = {name: value for name, value in output.items() if name != "data"}
        step.additional_output = {**output, **more}

    def _is_last(self, run: Run) -> bool:
        """Return True if the run ends its task, which makes its last step the last one for callers. That includes a run
        with a question that can no longer be answered."""
        if not self.fold.tasks[run.task_id].is_terminal:
            return False
        of_task = (self.fold.runs[run_id] for run_id in reversed(self._runs[run.task_id]))
        return next((each for each in of_task if not each.removed), None) is run

    def _error(self, run: Run) -> JsonObject | None:
        """Return the member `error` of a run's last step, or None if the run has not failed."""
        task = self.fold.tasks[run.task_id]
        unanswered = run.status is RunStatus.PAUSED and self._is_last(run)
        fault = run.fault or (task.fault if unanswered else None)
        if fault is not None:
            return encode_error(fault)
        if run.status is RunStatus.CANCELLED or (unanswered and task.state is TaskState.CANCELLED):
            return dict(_CANCELLED)
        if unanswered or run.status in (RunStatus.ERROR, RunStatus.TIMEOUT):
            code = FaultCode.AGENT_TIMEOUT if run.status is RunStatus.TIMEOUT else FaultCode.AGENT_FAILED
            return encode_error(Fault(code=code, message="The agent failed."))
        return None

    def task_of(self, run_id: str) -> Task:
        """Return the hub's task of a run."""
        return self.fold.tasks[self.fold.runs[run_id].task_id]

    def losses(self, run_id: str) -> tuple[Loss, ...]:
        """Return the losses of a run: those that its log reports, and those of AIEF's form of a step."""
        return (*self.fold.runs[run_id].loss, *self._run_steps[run_id].losses)


def _input(created: RunCreated) -> tuple[str | None, JsonObject]:
    """Return the `input` and `additional_input` of a run: as its AIEF caller sent them, or derived from the input of
    another protocol."""
    stored = extra_of(created.extra)
    if stored:
        return stored.get("input"), stored.get("additional_input") or {}
    return input_of(created.messages, created.data)


def _encode_questions(questions: tuple[Interrupt, ...]) -> JsonObject:
    """Return the members of a step's `additional_output` that report questions: `status` and `questions`."""
    auth = all(question.ask == "auth" for question in questions)
    return {
        "status": "auth-required" if auth else "input-required",
        "questions": [
            {
                "id": question.interrupt_id,
                "kind": question.ask,
                "message": question.message.text,
                "value": question.value,
                "schema": question.answer_schema,
            }
            for question in questions
        ],
    }
