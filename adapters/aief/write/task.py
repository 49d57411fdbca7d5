"""Records of a thread → the AIEF task that it is for one agent: its steps, and what the next POST of a step does.

A step is a run, or one of the steps that the agent marked in it. A created step is kept nowhere: it follows from how
the runs before it ended, and so does its id.
"""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID, uuid5

from babelgate.adapters.aief.codec import COSTS, artifact_id, encode_artifact, input_of
from babelgate.adapters.aief.errors import encode_error
from babelgate.adapters.aief.wire import types as w
from babelgate.adapters.aief.write.steps import Progress, RunSteps
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


def extra_of(extra: Extra) -> JsonObject:
    """What this protocol keeps on a thread or a run for itself."""
    return dict(extra.get("aief") or {})


def step_id(run_id: str, number: int) -> str:
    """Of the step with this number in a run, from 0."""
    return run_id if number == 0 else str(uuid5(UUID(run_id), str(number)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """What the next POST of a step does; with none of these it begins a turn."""

    reveal: tuple[str, int] | None = None
    """A run that was begun by an earlier one, and the number of its step to show."""
    answer: Task | None = None
    """A task that waits for an answer."""
    run_id: str | None = None
    """Of the run that it starts, where a created step has the id already."""


@dataclass(frozen=True, slots=True)
class Place:
    """Of a step: in a run that was begun, or to be created by a POST."""

    step_id: str
    run_id: str | None = None
    number: int = 0
    """Among the run's steps, from 0."""
    after: str | None = None
    """Of one that is to be created: the run whose question it answers; None for the first of all."""


class TaskView:
    """Feed it all records of a thread, in order."""

    def __init__(self, thread_id: str, agent: str, records: Iterable[Record] = ()) -> None:
        self.thread_id = thread_id
        self.agent = agent
        self.fold = Fold(thread_id)
        self._works: dict[str, RunSteps] = {}
        """Of this agent's runs, in the order of their creation."""
        self._runs: dict[str, list[str]] = {}
        """The same, by task."""
        self._artifacts: dict[tuple[str, str], Artifact] = {}
        """By run and id, because an agent may use an id again in its next run; uploads under ""."""
        self._files: dict[tuple[str, str], str] = {}
        """The same, of those that are parts of messages: which."""
        for record in records:
            self.apply(record)

    def copy(self) -> "TaskView":
        made = TaskView(self.thread_id, self.agent)
        made.fold = self.fold.copy()
        made._works = {run_id: work if work.progress.ended else deepcopy(work) for run_id, work in self._works.items()}
        made._runs = {task_id: list(run_ids) for task_id, run_ids in self._runs.items()}
        made._artifacts, made._files = dict(self._artifacts), dict(self._files)
        return made

    def apply(self, record: Record) -> None:
        self.fold.apply(record)
        event, run_id = record.event, record.run_id or ""
        if isinstance(event, RunCreated) and self.fold.runs[event.run_id].agent == self.agent:
            self._works[event.run_id] = RunSteps(event, record.at)
            self._runs.setdefault(record.task_id or "", []).append(event.run_id)
        work = self._works.get(run_id)
        if work is not None:
            work.apply(record)
        elif run_id:
            return
        match event:
            case RunStarted() if event.is_restart:
                void = [key for key in self._artifacts if key[0] == run_id and event.is_void(self._files.get(key))]
                for key in void:
                    del self._artifacts[key]
            case ArtifactAdded():
                self._artifacts[run_id, event.artifact_id or ""] = self.fold.artifacts[event.artifact_id or ""]
            case PartAdded() if isinstance(event.part, FilePart) and work is not None:
                self._add_file(event.message_id or "", event.index or 0, event.part, record)
            case RunEnded() if event.status is RunStatus.PAUSED and work is not None:
                work.questions = tuple(self.fold.open_interrupts(record.task_id))
            case _:
                pass

    def _add_file(self, message_id: str, index: int, part: FilePart, record: Record) -> None:
        """The protocol has files in artifacts only."""
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
        return self.fold.seq

    @property
    def size(self) -> int:
        return 2 * self.fold.size  # the words are in the steps once more

    @property
    def thread(self) -> Thread:
        assert self.fold.thread is not None
        return self.fold.thread

    @property
    def is_visible(self) -> bool:
        """Whether the thread is one of this agent's: it ran there, or is to run there."""
        if self.fold.thread is None:
            return False
        return extra_of(self.thread.extra).get("agent") == self.agent or any(
            task.agent == self.agent for task in self.fold.tasks.values()
        )

    @property
    def last_task(self) -> Task | None:
        tasks = [task for task in self.fold.tasks.values() if task.agent == self.agent]
        return tasks[-1] if tasks else None

    def input(self) -> tuple[str | None, JsonObject]:
        own = extra_of(self.thread.extra)
        if own.get("agent") == self.agent:
            return own.get("input"), own.get("additional_input") or {}
        first = next(self._visible_runs(), None)
        # An object and never null: the contract suite refuses it.
        return (None, {}) if first is None else input_of(first[1].created.messages, first[1].created.data)

    def task(self) -> w.Task:
        text, more = self.input()
        return w.Task(
            task_id=self.thread_id,
            input=text,
            additional_input=more,
            artifacts=self.artifacts(),
            created_at=encode_time(self.thread.created_at),
        )

    def task_with_steps(self) -> w.TaskWithSteps:
        return w.TaskWithSteps(**dict(self.task()), steps=self.steps())

    # Artifacts

    def _current_artifacts(self) -> dict[str, Artifact]:
        found: dict[str, Artifact] = {}
        for (run_id, _), artifact in self._artifacts.items():
            if not run_id or not self.fold.runs[run_id].removed:
                found[artifact_id(artifact)] = artifact
        return found

    def current_artifacts(self) -> list[Artifact]:
        return list(self._current_artifacts().values())

    def artifacts(self) -> list[w.Artifact]:
        return [encode_artifact(artifact) for artifact in self._current_artifacts().values()]

    def artifact(self, wire_id: str) -> Artifact | None:
        return self._current_artifacts().get(wire_id)

    # What is there to do

    def _visible_runs(self) -> Iterator[tuple[Run, RunSteps]]:
        for run_id, work in self._works.items():
            run = self.fold.runs[run_id]
            if not run.removed:
                yield run, work

    def _stepped_run_id(self) -> str | None:
        """The newest run that a POST of a step began: the only one that may not be revealed to its end."""
        for run_id, work in reversed(self._works.items()):
            if "aief" in work.created.extra and not self.fold.runs[run_id].removed:
                return run_id
        return None

    def _find_note(self, run_id: str) -> JsonObject:
        noted: JsonObject = extra_of(self.thread.extra).get("revealed") or {}
        mine: Any = noted.get(self.agent) or {}
        return mine if mine.get("run_id") == run_id else {}

    def revealed_steps(self, run_id: str) -> int:
        """How many of a run's steps callers have asked for. Whoever began it asked for the first one."""
        if run_id != self._stepped_run_id():
            return len(self._works[run_id].segments)
        return self._find_note(run_id).get("steps", 1)

    def note(self, run_id: str, steps: int, *, cut: bool = False) -> JsonObject:
        """What the thread keeps when so many steps of a run are revealed; `cut` = the last of them was told before its
        end, because the gateway stops."""
        own = extra_of(self.thread.extra)
        mine: JsonObject = {"run_id": run_id, "steps": steps, **({"cut": True} if cut else {})}
        return {**own, "revealed": {**(own.get("revealed") or {}), self.agent: mine}}

    def cut_step(self) -> tuple[str, int] | None:
        """The newest step, if it was told before its end and its end to nobody."""
        run_id = self._stepped_run_id()
        if run_id is None or not self._find_note(run_id).get("cut"):
            return None
        return run_id, self.revealed_steps(run_id) - 1

    def is_over(self, run_id: str, number: int) -> bool:
        """Whether a step has come to its end."""
        return run_id in self._works and self._works[run_id].progress.is_over(number)

    def progress(self, run_id: str) -> Progress:
        """Of a run, to go on with."""
        return self._works[run_id].progress.copy() if run_id in self._works else Progress()

    def unfinished_step(self) -> tuple[str, int] | None:
        """The step that is at work for a POST, if one is: a gateway that was started again finds it like this."""
        run_id = self._stepped_run_id()
        if run_id is None:
            return None
        number = self.revealed_steps(run_id) - 1
        return None if self.is_over(run_id, number) else (run_id, number)

    def next(self) -> Next:
        stepped = self._stepped_run_id()
        if stepped is not None and self.revealed_steps(stepped) < len(self._works[stepped].segments):
            return Next(reveal=(stepped, self.revealed_steps(stepped)))
        for _, task in self._waiting_tasks():
            return Next(answer=task)
        # Also after the last step: the protocol's Postman collection posts one more, and wants 200.
        return Next(run_id=self._first_id() if next(self._visible_runs(), None) is None else None)

    def _first_id(self) -> str:
        run_id = next_run_id(self.thread_id)
        while run_id in self.fold.runs:  # it was removed
            run_id = next_run_id(run_id)
        return run_id

    def _waiting_tasks(self) -> list[tuple[Run, Task]]:
        """Tasks that wait for an answer, each with the run that paused last; the one that has waited longest first."""
        newest: dict[str, Run] = {}
        for run, _ in self._visible_runs():
            if run.status is RunStatus.PAUSED and self.fold.tasks[run.task_id].is_waiting:
                newest[run.task_id] = run
        found = [(run, self.fold.tasks[task_id]) for task_id, run in newest.items()]
        return sorted(found, key=lambda each: each[0].ended_at or 0)

    # Steps

    def places(self) -> list[Place]:
        """Where the steps are that were begun, in the order of their runs, and then those that can be."""
        made = [
            Place(step_id(run.run_id, number), run.run_id, number)
            for run, work in self._visible_runs()
            for number in range(len(work.segments))
        ]
        if not made:
            made.append(Place(self._first_id()))
        return [*made, *self.coming_places()]

    def coming_places(self) -> list[Place]:
        """Of the steps that answer what tasks wait for."""
        return [Place(next_run_id(run.run_id), after=run.run_id) for run, _ in self._waiting_tasks()]

    def at(self, place: Place) -> w.Step:
        if place.run_id is not None:
            return self.step(place.run_id, place.number)
        if place.after is not None:
            return self._create_step(place.step_id, self.fold.runs[place.after].ended_at or 0)
        return self._create_step(place.step_id, self.thread.created_at, *self.input())

    def steps(self) -> list[w.Step]:
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
        run, work = self.fold.runs[run_id], self._works[run_id]
        number = min(number, len(work.segments) - 1)
        segment = work.segments[number]
        text, more = _input(work.created) if number == 0 else (None, {})
        # A run of several steps shows as many: the document lets a step make others (RFC 2023-08-14).
        made = self._create_step(step_id(run_id, number), segment.at, text, more)
        made.name = segment.name
        if number >= self.revealed_steps(run_id) or run.status is RunStatus.PENDING:
            return made
        made.status = "running"
        made.artifacts = [encode_artifact(self._artifacts[run_id, each]) for each in segment.artifacts]
        made.additional_output = self._about(run)
        if work.progress.is_over(number):
            # created, running, completed (OpenAPI v1, Step.status): a run that failed has completed steps, too.
            made.status = "completed"
            made.output = segment.output
            made.additional_output = {**segment.own, **made.additional_output, **segment.beside()}
            if number == len(work.segments) - 1:
                self._write_run_end(made, run, work)
            made = made.model_copy(update=segment.unknown)
        return made

    def _about(self, run: Run) -> JsonObject:
        ids: JsonObject = {"thread_id": self.thread_id, "task_id": run.task_id, "run_id": run.run_id}
        losses = self.losses(run.run_id)
        if losses:
            ids["loss"] = losses_by_feature(losses)
        return {"babelgate": ids}

    def _write_run_end(self, made: w.Step, run: Run, work: RunSteps) -> None:
        """What is told of how a run ended, with the last of its steps."""
        more: JsonObject = {}
        last = work.segments[-1]
        if run.output is not None and not (isinstance(run.output, dict) and run.output.items() <= last.own.items()):
            more["output"] = run.output
        usage = dict(run.usage)
        if last.own.keys() & {*COSTS}:
            usage.pop("cost", None)
        if usage:
            more["usage"] = usage
        if work.questions:
            more |= _encode_questions(work.questions)
            made.output = "\n".join(filter(None, (made.output, work.questions[0].message.text)))
        error = self._error(run)
        if error is not None:
            more["error"] = error
        if not made.output:
            structured = run.output if isinstance(run.output, str | None) else json_text(run.output)
            made.output = structured or last.data_text or (error["message"] if error else "")
        # False for a question: callers such as agbenchmark 0.0.10 stop at is_last, and nobody would be asked.
        made.is_last = self._is_last(run)
        said = made.additional_output or {}
        if last.data == [run.output]:  # said, and given back as the output
            said = {name: value for name, value in said.items() if name != "data"}
        made.additional_output = {**said, **more}

    def _is_last(self, run: Run) -> bool:
        """Nothing more will come of the task. A question that nobody can answer any more is a last step, too."""
        if not self.fold.tasks[run.task_id].is_terminal:
            return False
        of_task = (self.fold.runs[run_id] for run_id in reversed(self._runs[run.task_id]))
        return next((each for each in of_task if not each.removed), None) is run

    def _error(self, run: Run) -> JsonObject | None:
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
        return self.fold.tasks[self.fold.runs[run_id].task_id]

    def losses(self, run_id: str) -> tuple[Loss, ...]:
        return (*self.fold.runs[run_id].loss, *self._works[run_id].losses)


def _input(created: RunCreated) -> tuple[str | None, JsonObject]:
    """As the caller of the step gave it; of another protocol's caller, what it amounts to."""
    own = extra_of(created.extra)
    if own:
        return own.get("input"), own.get("additional_input") or {}
    return input_of(created.messages, created.data)


def _encode_questions(questions: tuple[Interrupt, ...]) -> JsonObject:
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
