"""Model-based test of the hub: random commands of callers and steps of agents.

After each, the hub must be in the state that the plain Python model below is in.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar
from uuid import uuid4

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from sqlalchemy import Connection, select

from babelgate.canonical import FaultCode, FaultError, Record, Run, RunStatus, Scope, StateHistory, TaskState
from babelgate.canonical.state import ENDED, TERMINAL, WAITING
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.storage.short_form import decode_row
from babelgate.gateway.storage.tables import InterruptRow, RunRow, TaskRow
from babelgate.gateway.storage.transaction import table_of
from tests.examples import examples
from tests.gateway.hubs import OWNER, Activation, HubFactory, Scripted, answer, comparable, registered, submit, within
from tests.gateway.invariant import check_database

T = TypeVar("T")
_TASK, _RUN, _INTERRUPT = table_of(TaskRow), table_of(RunRow), table_of(InterruptRow)
Strategy = Literal["enqueue", "reject", "interrupt", "rollback"]


@dataclass(eq=False)
class ModelRun:
    run_id: str
    task: "ModelTask"
    cause: str = "input"
    status: RunStatus = RunStatus.PENDING
    removed: bool = False

    @property
    def live(self) -> bool:
        return self.status not in ENDED


@dataclass(eq=False)
class ModelTask:
    task_id: str
    thread: "ModelThread"
    state: TaskState = TaskState.SUBMITTED
    open_questions: list[str] = field(default_factory=list[str])

    @property
    def live(self) -> list[ModelRun]:
        return [run for run in self.thread.runs if run.live and run.task is self]


@dataclass(eq=False)
class ModelThread:
    thread_id: str
    runs: list[ModelRun] = field(default_factory=list[ModelRun])
    tasks: list[ModelTask] = field(default_factory=list[ModelTask])
    questions: int = 0

    @property
    def running(self) -> ModelRun | None:
        return next((run for run in self.runs if run.status is RunStatus.RUNNING), None)

    @property
    def pending(self) -> list[ModelRun]:
        return [run for run in self.runs if run.status is RunStatus.PENDING]

    # Transitions

    def add(self, run: ModelRun) -> None:
        self.runs.append(run)
        if run.task not in self.tasks:
            self.tasks.append(run.task)
        self.turn()

    def turn(self) -> None:
        """Start the next run, unless one is running."""
        if self.running is not None:
            return
        for run in self.pending:
            if run.task.state not in WAITING:
                answers = [other for other in self.pending if other.task is run.task and other.cause == "answer"]
                run = answers[0] if answers else run
                run.status, run.task.state = RunStatus.RUNNING, TaskState.WORKING
                return

    def drop(self, run: ModelRun, removed: bool) -> None:
        """End a run that never started. `removed` is True if the run was rolled back, so that no view shows it."""
        run.status, run.removed = RunStatus.CANCELLED, removed
        if run.task.state not in WAITING and not run.task.live:
            run.task.state = TaskState.CANCELLED

    def stop(self, run: ModelRun, status: RunStatus, state: TaskState, removed: bool = False) -> None:
        """End a running run with `status`, and its task in `state`. `removed` is True if the run was rolled back."""
        run.status, run.removed = status, removed
        self.finish(run.task, state)

    def finish(self, task: ModelTask, state: TaskState) -> None:
        for run in task.live:
            run.status = RunStatus.CANCELLED
        task.open_questions.clear()
        task.state = state


class HubMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp(prefix="model"))
        self.house = HubFactory(self.folder)
        self.agent = Scripted()
        self.threads: list[ModelThread] = []
        self.erased: list[str] = []
        self.hub: GatewayHub = self.do(self.house.start(registered("a", self.agent)))

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        self.do(self.house.close())
        self.do(self.loop.shutdown_default_executor())
        self.loop.close()
        shutil.rmtree(self.folder)

    # Helpers

    def fault(self, work: Coroutine[Any, Any, Any], code: FaultCode) -> None:
        try:
            self.do(work)
        except FaultError as error:
            assert error.fault.code is code, error.fault
        else:
            raise AssertionError(f"this should have been refused as {code}")

    def activation(self, run: ModelRun) -> Activation:
        return next(each for each in self.agent.calls if each.call.run_id == run.run_id)

    def check(self) -> None:
        """Wait until the hub agrees with the model."""
        self.do(within(self._agrees(), "agreement with the model", 5))

    async def _agrees(self) -> None:
        while True:
            await self.hub.journal.write(lambda tx: None)
            differs = await self._difference()
            if differs is None:
                return
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                raise AssertionError(differs) from None

    async def _difference(self) -> str | None:
        at_work = {start.run.run_id for start in self.hub.engine.active}
        expected = {thread.running.run_id for thread in self.threads if thread.running is not None}
        if at_work != expected or not expected <= {each.call.run_id for each in self.agent.calls}:
            return f"at work are {at_work}, not {expected}"
        tasks, runs, open_questions = await self.hub.journal.query(_rows)
        for task in self.tasks():
            found = tasks.pop(task.task_id), open_questions.get(task.task_id, [])
            if found != (task.state, task.open_questions):
                return f"task {task.task_id} is {found}, not {task.state, task.open_questions}"
        for run in self.runs():
            found = runs.pop(run.run_id)
            if found != (run.status, run.removed):
                return f"run {run.run_id} is {found}, not {run.status, run.removed}"
        return f"there are also {tasks} and {runs}" if tasks or runs else None

    def runs(self) -> list[ModelRun]:
        return [run for thread in self.threads for run in thread.runs]

    def tasks(self) -> list[ModelTask]:
        return [task for thread in self.threads for task in thread.tasks]

    # Callers

    @rule(
        data=st.data(),
        fresh=st.booleans(),
        strategy=st.sampled_from(("enqueue", "enqueue", "reject", "interrupt", "rollback")),
        supersede=st.booleans(),
    )
    def create(self, data: st.DataObject, fresh: bool, strategy: Strategy, supersede: bool) -> None:
        thread = ModelThread(str(uuid4()))
        if self.threads and not fresh:
            thread = data.draw(st.sampled_from(self.threads))
        call = submit(self.hub, "a", thread_id=thread.thread_id, strategy=strategy, supersede=supersede)
        live = [run for run in thread.runs if run.live]
        if strategy == "reject" and live:
            self.fault(call, FaultCode.CONFLICT)
            return self.check()
        receipt = self.do(call)
        running = thread.running
        if strategy in ("interrupt", "rollback"):
            for run in live:
                if run is not running:
                    thread.drop(run, removed=strategy == "rollback")
        for task in thread.tasks:
            if supersede and task.state in WAITING:
                thread.finish(task, TaskState.CANCELLED)
        if running is not None and strategy in ("interrupt", "rollback"):
            thread.stop(running, RunStatus.CANCELLED, TaskState.CANCELLED, removed=strategy == "rollback")
        if thread not in self.threads:
            self.threads.append(thread)
        thread.add(ModelRun(receipt.run_id, ModelTask(receipt.task_id, thread)))
        self.check()

    @precondition(lambda self: self.tasks())
    @rule(data=st.data())
    def follow_up(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from(self.tasks()))
        call = submit(self.hub, "a", follow_up=task.task_id)
        if task.state in TERMINAL:
            self.fault(call, FaultCode.TASK_ENDED)
        elif task.state in WAITING:
            self.fault(call, FaultCode.CONFLICT)
        else:
            task.thread.add(ModelRun(self.do(call).run_id, task, "follow_up"))
        self.check()

    @precondition(lambda self: self.tasks())
    @rule(data=st.data(), every=st.booleans(), wrong=st.booleans())
    def answer(self, data: st.DataObject, every: bool, wrong: bool) -> None:
        task = data.draw(st.sampled_from(self.tasks()))
        values: dict[str, Any] = dict.fromkeys(task.open_questions, "yes") if every else {}
        if task.open_questions and not every:
            values = {data.draw(st.sampled_from(task.open_questions)): "yes"}
        if wrong or not values:
            values = {"unknown": 1}
        call = answer(self.hub, task.task_id, values=values)
        if task.state in TERMINAL:
            self.fault(call, FaultCode.TASK_ENDED)
        elif task.state not in WAITING or "unknown" in values:
            self.fault(call, FaultCode.NOT_AWAITING)
        else:
            run = ModelRun(self.do(call).run_id, task, "answer")
            task.open_questions = [name for name in task.open_questions if name not in values]
            if task.open_questions:
                run.status = RunStatus.PAUSED
                task.thread.runs.append(run)
            else:
                task.state = TaskState.WORKING
                task.thread.add(run)
        self.check()

    @precondition(lambda self: self.tasks())
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from(self.tasks()))
        call = self.hub.cancel(OWNER, task.task_id)
        if task.state in TERMINAL:
            self.fault(call, FaultCode.TASK_ENDED)
        else:
            self.do(call)
            task.thread.finish(task, TaskState.CANCELLED)
            task.thread.turn()
        self.check()

    @precondition(lambda self: self.threads)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        thread = data.draw(st.sampled_from(self.threads))
        self.do(self.hub.delete_thread(OWNER, thread.thread_id))
        self.threads.remove(thread)
        self.erased.append(thread.thread_id)
        self.fault(submit(self.hub, "a", thread_id=thread.thread_id), FaultCode.NOT_FOUND)
        self.fault(self.hub.reads.thread(OWNER, thread.thread_id), FaultCode.NOT_FOUND)
        self.check()

    @precondition(lambda self: self.runs())
    @rule(data=st.data())
    def remove_run(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(self.runs()))
        call = self.hub.remove_run(OWNER, run.run_id)
        if run.removed:
            self.fault(call, FaultCode.NOT_FOUND)
        elif run.task.state not in TERMINAL:
            self.fault(call, FaultCode.CONFLICT)
        else:
            self.do(call)
            run.removed = True
        self.check()

    @precondition(lambda self: any(not (thread.running or thread.pending) for thread in self.threads))
    @rule(data=st.data())
    def prune(self, data: st.DataObject) -> None:
        idle = [thread for thread in self.threads if not (thread.running or thread.pending)]
        thread_id = data.draw(st.sampled_from(idle)).thread_id
        before = self.history(thread_id).head
        self.do(self.hub.prune_thread(OWNER, thread_id))
        assert self.history(thread_id).all() == ([] if before is None else [replace(before, parent_id=None)])
        self.check()

    def history(self, thread_id: str) -> StateHistory:
        empty = partial(StateHistory, thread_id, OWNER)
        return self.do(self.hub.reads.snapshot(OWNER, thread_id, StateHistory, empty))

    # Agents

    @precondition(lambda self: any(thread.running for thread in self.threads))
    @rule(data=st.data(), step=st.sampled_from(("say", "say", "open", "ask", "ask two", "end", "fail")))
    def step_of_agent(self, data: st.DataObject, step: str) -> None:
        running = [thread.running for thread in self.threads if thread.running is not None]
        run = data.draw(st.sampled_from(running))
        thread, task, activation = run.task.thread, run.task, self.activation(run)
        if step == "say":
            activation.say("words")
        elif step == "open":
            activation.open("half")
        elif step == "fail":
            activation.fail(ValueError("broken"))
            thread.stop(run, RunStatus.ERROR, TaskState.FAILED)
        else:
            names = [f"q{thread.questions + n}" for n in range(step.count("ask") + step.count("two"))]
            thread.questions += len(names)
            if names:
                activation.ask(*names)
            activation.end()
            task.open_questions += names
            run.status = RunStatus.PAUSED if names else RunStatus.SUCCESS
            if names:
                task.state = TaskState.INPUT_REQUIRED
            elif not task.live:
                task.state = TaskState.COMPLETED
        thread.turn()
        self.check()

    # The gateway and its readers

    @rule()
    def restart(self) -> None:
        """Restart the hub: running runs fail, pending ones continue."""
        self.do(self.house.stop(self.hub))
        for thread in self.threads:
            if thread.running is not None:
                thread.stop(thread.running, RunStatus.ERROR, TaskState.FAILED)
            thread.turn()
        self.hub = self.do(self.house.start(registered("a", self.agent)))
        self.check()

    @precondition(lambda self: self.threads)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        """Check that readers get the same records from any position, live and from the journal."""
        thread = data.draw(st.sampled_from(self.threads))
        self.do(self.hub.journal.query(check_database))
        everything = self.do(self._records(Scope(thread.thread_id)))
        after = data.draw(st.integers(0, len(everything) + 1))
        for task in thread.tasks:
            scope = Scope(thread.thread_id, "task", task.task_id)
            stored = self.do(self._records(scope))  # records after the end of a task are not the task's
            if task.state in TERMINAL:
                expected = [record for record in stored if record.seq > after]
                assert comparable(self.do(self._read(scope, after))) == comparable(expected)
        for run in thread.runs:
            if not run.live:
                scope = Scope(thread.thread_id, "run", run.run_id)
                stored = [record for record in everything if scope.has_record(record) and record.seq > after]
                assert comparable(self.do(self._read(scope, after))) == comparable(stored)

    async def _records(self, scope: Scope) -> Sequence[Record]:
        return await self.hub.reads.records(OWNER, scope)

    async def _read(self, scope: Scope, after: int) -> list[Record]:
        async def read() -> list[Record]:
            return [record async for batch in self.hub.reads.follow(OWNER, scope, after) for record in batch]

        return await within(read(), "the end of the scope")


def _rows(
    connection: Connection,
) -> tuple[dict[str, TaskState], dict[str, tuple[RunStatus, bool]], dict[str, list[str]]]:
    """Return tasks with their states, runs with their status and removal, and the open questions of each task."""
    tasks = {row.task_id: TaskState(row.state) for row in connection.execute(select(_TASK.c.task_id, _TASK.c.state))}
    runs = [decode_row(Run, body) for (body,) in connection.execute(select(_RUN.c.body))]
    open_questions: dict[str, list[str]] = {}
    unanswered = select(_INTERRUPT.c.task_id, _INTERRUPT.c.interrupt_id).where(_INTERRUPT.c.action.is_(None))
    for task_id, interrupt_id in connection.execute(unanswered.order_by(_INTERRUPT.c.seq)):
        open_questions.setdefault(task_id, []).append(interrupt_id)
    return tasks, {run.run_id: (run.status, run.removed) for run in runs}, open_questions


TestHub = HubMachine.TestCase
TestHub.settings = settings(
    examples(10),
    stateful_step_count=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
