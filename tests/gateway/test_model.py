"""The hub against a model of it that fits on a page: random commands, and after each of them both must agree on what
was refused, on the state of every task, on which runs are active, and on what was said on every thread."""

import asyncio
import tempfile
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from canonical import FaultCode, FaultError, Fold, Receipt, Record, Scope, TaskState
from canonical.event import Strategy
from canonical.state import TERMINAL
from gateway.hub import Hub
from tests.gateway.hubs import OWNER, Activation, House, Scripted, answer, fronted, reaches, submit

T = TypeVar("T")
WAITING = TaskState.INPUT_REQUIRED


@dataclass
class Job:
    """A task of the model. Each of its runs is named by the words that came in with it."""

    receipt: Receipt
    thread: "Talk"
    state: TaskState = TaskState.SUBMITTED


@dataclass
class Turn:
    """A run of the model."""

    job: Job
    run_id: str
    words: str
    ended: bool = False
    removed: bool = False


@dataclass
class Talk:
    """A thread of the model: one turn at a time, the others in the order in which they came."""

    thread_id: str
    turns: list[Turn] = field(default_factory=list[Turn])
    running: Turn | None = None
    erased: bool = False

    @property
    def pending(self) -> list[Turn]:
        return [turn for turn in self.turns if not turn.ended and turn is not self.running]

    def next(self) -> None:
        if self.running is None and self.pending:
            self.running = self.pending[0]
            self.running.job.state = TaskState.WORKING

    def stop(self, turn: Turn, state: TaskState) -> None:
        turn.ended = True
        turn.job.state = state
        if self.running is turn:
            self.running = None


class Model:
    def __init__(self, hub: Hub, agent: Scripted) -> None:
        self.hub = hub
        self.agent = agent
        self.talks: list[Talk] = []
        self.jobs: list[Job] = []
        self.going: dict[str, Activation] = {}
        self.count = 0

    def pick(self, number: int) -> Talk:
        return self.talks[number % len(self.talks)]

    # Commands: what the model expects, then what the hub does

    async def create(self, number: int, strategy: Strategy) -> None:
        """On one of the threads, or on a new one."""
        talk = None if number % 3 == 0 or not self.talks else self.pick(number)
        busy = talk is not None and any(not turn.ended for turn in talk.turns)
        expected = None
        if talk is not None and talk.erased:
            expected = FaultCode.NOT_FOUND
        elif busy and strategy == "reject":
            expected = FaultCode.CONFLICT
        self.count += 1
        words = f"input {self.count}"
        thread_id = None if talk is None else talk.thread_id
        receipt = await refused(submit(self.hub, "a", words, strategy=strategy, thread_id=thread_id), expected)
        if receipt is None:
            return
        if talk is None:
            talk = Talk(receipt.thread_id)
            self.talks.append(talk)
        if strategy in ("interrupt", "rollback"):
            for turn in [turn for turn in talk.turns if not turn.ended]:
                talk.stop(turn, TaskState.CANCELLED)
                turn.removed = strategy == "rollback"
        job = Job(receipt, talk)
        self.jobs.append(job)
        talk.turns.append(Turn(job, receipt.run_id, words))
        talk.next()

    async def answer(self, number: int) -> None:
        if not self.jobs:
            return
        job = self.jobs[number % len(self.jobs)]
        expected = None
        if job.thread.erased:
            expected = FaultCode.NOT_FOUND
        elif job.state in TERMINAL:
            expected = FaultCode.TASK_ENDED
        elif job.state is not WAITING:
            expected = FaultCode.NOT_AWAITING
        receipt = await refused(answer(self.hub, job.receipt.task_id, "yes"), expected)
        if receipt is not None:
            job.state = TaskState.WORKING
            job.thread.turns.append(Turn(job, receipt.run_id, ""))
            job.thread.next()

    async def cancel(self, number: int) -> None:
        if not self.jobs:
            return
        job = self.jobs[number % len(self.jobs)]
        expected = None
        if job.thread.erased:
            expected = FaultCode.NOT_FOUND
        elif job.state in TERMINAL:
            expected = FaultCode.TASK_ENDED
        if await refused(self.hub.cancel(OWNER, job.receipt.task_id), expected) is not None:
            for turn in [turn for turn in job.thread.turns if turn.job is job and not turn.ended]:
                job.thread.stop(turn, TaskState.CANCELLED)
            job.state = TaskState.CANCELLED
            job.thread.next()

    async def erase(self, number: int) -> None:
        if not self.talks:
            return
        talk = self.pick(number)
        await refused(self.hub.delete_thread(OWNER, talk.thread_id), FaultCode.NOT_FOUND if talk.erased else None)
        talk.erased = True
        talk.running = None

    async def remove(self, number: int) -> None:
        turns = [turn for talk in self.talks for turn in talk.turns]
        if not turns:
            return
        turn = turns[number % len(turns)]
        expected = None
        if turn.job.thread.erased or turn.removed:
            expected = FaultCode.NOT_FOUND
        elif not turn.ended or turn.job.state not in TERMINAL:
            expected = FaultCode.CONFLICT
        await refused(self.hub.remove_run(OWNER, turn.run_id), expected)
        turn.removed = turn.removed or expected is None

    async def agent_does(self, number: int, what: str) -> None:
        """Let one of the agents at work say something, ask, end or fail."""
        running = [talk.running for talk in self.talks if talk.running is not None]
        if not running:
            return
        turn = running[number % len(running)]
        going = self.going[turn.run_id]
        going.say(f"about {turn.words}")
        talk = turn.job.thread
        match what:
            case "ask":
                going.ask().end()
                talk.stop(turn, WAITING)
            case "end":
                going.end()
                talk.stop(turn, TaskState.COMPLETED)
            case "fail":
                going.fail(RuntimeError("no"))
                talk.stop(turn, TaskState.FAILED)
            case _:
                pass
        talk.next()

    # Agreement

    async def agree(self) -> None:
        for job in self.jobs:
            if not job.thread.erased and job.state is not TaskState.SUBMITTED:
                task = await reaches(self.hub, job.receipt, job.state)
                assert task.state is job.state
        wanted = {talk.running.run_id for talk in self.talks if talk.running is not None}
        while wanted - self.going.keys():
            begun = await self.agent.called()
            self.going[begun.call.run_id] = begun
        assert {start.run.run_id for start in self.hub.engine.active} >= wanted

    async def agree_on_the_log(self, number: int) -> None:
        """Two readers from the same place get the same, and the fold holds what the model says was said."""
        for talk in self.talks:
            scope = Scope(talk.thread_id)
            if talk.erased:
                await refused(self.hub.records(OWNER, scope), FaultCode.NOT_FOUND)
                continue
            records = await self.hub.records(OWNER, scope)
            start = number % (len(records) + 1)
            assert await first(self.hub, scope, start, len(records) - start) == records[start:]
            fold = Fold(talk.thread_id, OWNER, records)
            asked = [message.text for message in fold.messages() if message.role == "user" and message.text]
            # A removed run that was emptied is hidden, a rolled back one too; answers came without a message.
            assert asked == [turn.words for turn in talk.turns if turn.words and not turn.removed]


async def first(hub: Hub, scope: Scope, after: int, count: int) -> list[Record]:
    """What a live reader gets of what is there already."""
    found: list[Record] = []
    if count:
        async for batch in hub.read(OWNER, scope, after):
            found += batch
            if len(found) >= count:
                break
    return found


async def refused(doing: Awaitable[T], expected: FaultCode | None) -> T | None:
    """Whatever it gives, or None if it was refused as expected."""
    try:
        made = await doing
    except FaultError as error:
        assert error.fault.code is expected, f"{error.fault.code}: {error.fault.message}; expected {expected}"
        return None
    assert expected is None, f"expected {expected}"
    return made


NUMBER = st.integers(min_value=0, max_value=50)
COMMANDS = st.one_of(
    st.tuples(st.just("create"), NUMBER, st.sampled_from(["reject", "enqueue", "interrupt", "rollback"])),
    st.tuples(st.just("agent"), NUMBER, st.sampled_from(["say", "ask", "ask", "end", "fail"])),
    st.tuples(st.sampled_from(["answer", "cancel"]), NUMBER, st.just("")),
    st.tuples(st.sampled_from(["erase", "remove", "read"]), NUMBER, st.just("")),
)


async def walk(folder: Path, commands: list[tuple[str, int, str]]) -> None:
    agent = Scripted()
    house = House(folder)
    try:
        model = Model(await house.start(fronted("a", agent)), agent)
        for name, number, what in commands:
            match name:
                case "create":
                    await model.create(number, what)  # pyright: ignore[reportArgumentType]
                case "agent":
                    await model.agent_does(number, what)
                case "answer":
                    await model.answer(number)
                case "cancel":
                    await model.cancel(number)
                case "erase":
                    await model.erase(number)
                case "remove":
                    await model.remove(number)
                case _:
                    await model.agree_on_the_log(number)
            await model.agree()
        await model.agree_on_the_log(0)
    finally:
        await house.close()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(COMMANDS, min_size=5, max_size=30))
def test_the_hub_does_what_a_model_of_it_does(commands: list[tuple[str, int, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(walk(Path(folder), commands))
