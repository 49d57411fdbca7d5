"""Real hubs on real databases for tests, and agents that do nothing until the test says so."""

import asyncio
import itertools
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import pytest

from babelgate.canonical import (
    Agent,
    AgentInfo,
    Answers,
    Event,
    Interrupt,
    Invocation,
    Message,
    Principal,
    Receipt,
    Record,
    Run,
    RunStatus,
    Scope,
    Submission,
    Task,
    TaskState,
    TextPart,
)
from babelgate.canonical.event import (
    InterruptRaised,
    MessageEnded,
    MessageStarted,
    PartAdded,
    PartDelta,
    RunEnded,
    TaskChanged,
    encode_event,
)
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.state import TERMINAL
from babelgate.gateway.access.guard import GuardedHub
from babelgate.gateway.access.policy import AllowAll
from babelgate.gateway.agents.registry import Registry
from babelgate.gateway.clock import Clock
from babelgate.gateway.composition import HubOptions, create_hub
from babelgate.gateway.generation import HubGeneration, HubSettings
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.outbound import Fetcher
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.runs.crons import CronSubmit
from babelgate.gateway.runs.webhooks import WriterFactory
from babelgate.gateway.settings.limits import BudgetSettings
from babelgate.gateway.settings.model import Limits, Retention, Timeout, Webhooks
from babelgate.gateway.storage.blobs import FolderBlobs
from babelgate.gateway.storage.transaction import Transaction
from tests.empty import make_database
from tests.gateway.invariant import check_database
from tests.submissions import make

T = TypeVar("T")
P = ParamSpec("P")
OWNER = "alice"
PRINCIPAL = Principal.of_owner(OWNER)
BOUND = 30.0
"""Timeout of every wait, in seconds. It is long because the machine may be busy."""
_TURNS = 1000
"""Turns of the event loop that `turned` waits for before it sleeps between its checks."""
_PAUSE = 0.002
"""Seconds between two checks of a condition that takes time."""


async def within(awaitable: Awaitable[T], what: str = "it", seconds: float = BOUND) -> T:
    try:
        async with asyncio.timeout(seconds):
            return await awaitable
    except TimeoutError:
        raise AssertionError(f"{what} did not happen within {seconds:g} s") from None


async def eventually(holds: Callable[[], bool]) -> None:
    """Turn the event loop until a condition holds that sends no notification.

    After `_TURNS` turns it checks only every `_PAUSE` seconds, to leave the processor to the code that it waits for.
    """
    for turns in itertools.count():
        if holds():
            return
        await asyncio.sleep(0 if turns < _TURNS else _PAUSE)


async def erased(hub: GatewayHub, thread_id: str, owner: str = OWNER) -> None:
    """Wait until the thread is erased, without reading its log: a reader would keep an ephemeral thread."""

    async def look() -> None:
        while True:
            try:
                await hub.reads.thread(owner, thread_id)
            except FaultError as error:
                assert error.fault.code is FaultCode.NOT_FOUND
                return
            await asyncio.sleep(_PAUSE)

    await within(look(), f"the erasure of {thread_id}")


def say(words: str) -> list[Event]:
    """Return the events of a whole message."""
    return [MessageStarted(), PartAdded(part=TextPart(text=words)), MessageEnded()]


def text(words: str, role: Any = "user") -> tuple[Message, ...]:
    return (Message.of(words, role),)


class Echo:
    """Agent that repeats the caller's text at once."""

    async def run(self, call: Invocation) -> AsyncIterator[Event]:
        for event in say(call.text):
            yield event


@dataclass(eq=False)
class Activation:
    """One call of a `Scripted` agent. It waits until the test adds an event, an error or the end."""

    call: Invocation
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the agent's generator has ended."""
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    stubborn: bool = False
    """True if it continues when it is cancelled."""
    todo: "asyncio.Queue[Any]" = field(default_factory=lambda: asyncio.Queue[Any]())

    def say(self, *events: Event | str) -> "Activation":
        for event in events:
            for each in say(event) if isinstance(event, str) else [event]:
                self.todo.put_nowait(each)
        return self

    def ask(self, *ids: str | None, kind: Any = "input") -> "Activation":
        questions = [InterruptRaised(interrupt_id=i, ask=kind, message=Message.of(f"{i}?")) for i in ids or (None,)]
        self.say(*questions)
        return self

    def open(self, words: str) -> "Activation":
        """Begin a message, and leave it open."""
        return self.say(MessageStarted(), PartAdded(part=TextPart(text=words), open=True))

    def more(self, words: str) -> "Activation":
        return self.say(PartDelta(text=words))

    def end(self, ended: RunEnded | None = None) -> None:
        if ended is not None:
            self.say(ended)
        self.todo.put_nowait(StopAsyncIteration)

    def fail(self, error: BaseException) -> None:
        self.todo.put_nowait(error)


class Scripted:
    """An agent whose every activation is driven by the test."""

    def __init__(self, *, stubborn: bool = False) -> None:
        self.stubborn = stubborn
        self.calls: list[Activation] = []
        self._new: asyncio.Queue[Activation] = asyncio.Queue()

    async def called(self) -> Activation:
        """Wait for the next activation, oldest first."""
        return await within(self._new.get(), "a call of the agent")

    @property
    def waiting(self) -> bool:
        """True if there is an activation that the test has not taken yet."""
        return not self._new.empty()

    async def run(self, call: Invocation) -> AsyncIterator[Event]:
        activation = Activation(call, stubborn=self.stubborn)
        self.calls.append(activation)
        self._new.put_nowait(activation)
        try:
            while True:
                try:
                    item = await activation.todo.get()
                except asyncio.CancelledError:
                    activation.cancelled.set()
                    if not activation.stubborn:
                        raise
                    continue
                if item is StopAsyncIteration:
                    return
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            activation.closed.set()


def registered(
    name: str,
    agent: Agent | None,
    *,
    remembers: bool = True,
    concurrency: int | None = None,
    total: float | None = None,
    idempotent: bool = False,
    broken: str | None = None,
) -> RegisteredAgent:
    return RegisteredAgent(
        info=AgentInfo(name=name, remembers=remembers),
        agent=agent,
        broken=broken,
        concurrency=concurrency,
        timeout=Timeout(total=total),
        idempotent=idempotent,
    )


class HubFactory:
    """Factory of hubs on one folder. At the end it checks the invariants of every database and stops all hubs."""

    def __init__(self, folder: Path, postgres: str | None = None, pooler: str | None = None) -> None:
        self.folder = folder
        self._pooler = pooler
        self._postgres = postgres
        """URL of the PostgreSQL database, or None for a SQLite file in the folder."""
        self._hubs: list[GatewayHub] = []
        self._agents: set[Scripted] = set()

    def make(
        self,
        *agents: RegisteredAgent,
        limits: Limits | None = None,
        budgets: Mapping[str, BudgetSettings] | None = None,
        retention: Retention | None = None,
        clock: Clock | None = None,
        writers: Mapping[str, WriterFactory] | None = None,
        webhook_protocols: Mapping[str, str] | None = None,
        crons: Mapping[str, CronSubmit] | None = None,
        webhook_secret: str | None = None,
        webhook_retries: Sequence[float] | None = None,
        cluster: str | None = None,
        pooler: str | None = None,
        database: str | None = None,
        name: str = "hub.db",
    ) -> GatewayHub:
        """Return a hub that is not started yet. `database` replaces the URL of PostgreSQL for this hub."""
        if self._postgres is None:
            make_database(self.folder / name)
        self._agents |= {each.agent for each in agents if isinstance(each.agent, Scripted)}
        settings = HubSettings(
            limits=limits or Limits(),
            budgets=budgets or {},
            retention=retention or Retention(),
            webhook_secret=webhook_secret,
            webhook_retries=Webhooks().retries if webhook_retries is None else webhook_retries,
            is_shared=cluster is not None,
        )
        generation = HubGeneration.of(Registry(agents), Fetcher(["127.0.0.0/8"]), settings)
        options = HubOptions(
            writers=writers or {},
            webhook_protocols=webhook_protocols or {},
            crons=crons or {},
            pooler=pooler or self._pooler,
            cluster=cluster,
            clock=clock or Clock(),
        )
        url = database or self._postgres or f"sqlite:///{self.folder / name}"
        hub = create_hub(lambda: generation, url, FolderBlobs(self.folder / "blobs", 2**28), options)
        self._hubs.append(hub)
        return hub

    async def start(self, *agents: RegisteredAgent, **settings: Any) -> GatewayHub:
        hub = self.make(*agents, **settings)
        await hub.start()
        return hub

    async def scripted(
        self,
        *,
        stubborn: bool = False,
        remembers: bool = True,
        concurrency: int | None = None,
        total: float | None = None,
        idempotent: bool = False,
        **settings: Any,
    ) -> tuple[GatewayHub, Scripted]:
        """Start a hub with one scripted agent, whose name is `a`, and return both. `stubborn` makes the agent ignore a
        cancel. The other options are those of the registered agent, and `settings` those of `make`."""
        agent = Scripted(stubborn=stubborn)
        options: dict[str, Any] = {"concurrency": concurrency, "total": total, "idempotent": idempotent}
        return await self.start(registered("a", agent, remembers=remembers, **options), **settings), agent

    async def stop(self, hub: GatewayHub) -> None:
        """Check the invariants of the hub's database, and stop the hub as SIGTERM does."""
        self._hubs.remove(hub)
        await self._stop(hub)

    async def _stop(self, hub: GatewayHub) -> None:
        if hub.journal.is_closed or not hub.instance:
            return
        try:
            await check_invariants(hub, self.folder / "blobs")
        finally:
            await within(hub.stop(), "the stop")

    async def close(self) -> None:
        for agent in self._agents:  # the loop cannot end while one of its tasks ignores cancellation
            agent.stubborn = False
            for activation in agent.calls:
                activation.stubborn = False
        errors: list[BaseException] = []
        for hub in self._hubs:
            try:
                await self._stop(hub)
            except BaseException as error:
                errors.append(error)
        if errors:
            raise errors[0]


async def check_invariants(hub: GatewayHub, blobs: Path | None = None) -> None:
    """Check the invariants I1 to I10 on the whole database and on the pumps in memory."""
    await hub.journal.query(check_database, blobs=blobs)
    threads = [(start.owner, start.thread_id) for start in hub.engine.active]
    assert len(threads) == len(set(threads)), "two agents are running on one thread"


@pytest.fixture
async def hubs(tmp_path: Path, postgres: str | None) -> AsyncGenerator[HubFactory]:
    house = HubFactory(tmp_path, postgres)
    yield house
    await house.close()


class PausedWriter:
    """Pause of the journal's writer. Commands that are queued during the pause form one group, in their order."""

    def __init__(self, hub: GatewayHub) -> None:
        self._journal = hub.journal
        self._holding = threading.Event()
        self._go = threading.Event()
        self._queued = self._seen = 0
        self._tasks: set[asyncio.Task[Any] | None] = set()

    async def __aenter__(self) -> "PausedWriter":
        def hold(_: Transaction) -> None:
            self._holding.set()
            assert self._go.wait(30)

        write = self._journal.write
        self._done = write(hold)
        assert await asyncio.to_thread(self._holding.wait, 30)

        def counted(
            command: Callable[Concatenate[Transaction, P], T], *args: P.args, **named: P.kwargs
        ) -> "asyncio.Future[T]":
            self._queued += 1
            self._tasks.add(asyncio.current_task())
            return write(command, *args, **named)

        vars(self._journal)["write"] = counted
        return self

    async def queued(self, asking: "asyncio.Future[Any]", *, writes: bool = False, is_direct: bool = False) -> None:
        """Wait until a command was queued since the last call, or until `asking` is done.

        With `writes`, wait for both: the command of `asking` may be queued after `asking` is done, and after another
        command of the hub. With `is_direct`, count only the commands of the task `asking` itself, and not those of the
        hub.
        """

        def is_queued() -> bool:
            is_counted = asking in self._tasks if is_direct else self._queued > self._seen
            return is_counted and asking.done() if writes else is_counted or asking.done()

        await within(eventually(is_queued), "a command in the queue")
        self._seen = self._queued

    async def __aexit__(self, *_: object) -> None:
        del vars(self._journal)["write"]
        self._go.set()
        await within(self._done)


def guarded(hub: GatewayHub) -> GuardedHub:
    """Return the hub as adapters get it."""
    return GuardedHub(hub, AllowAll(), "")


# What tests do with a hub


async def submit(hub: GatewayHub, agent: str, words: str = "hi", *, owner: str = OWNER, **fields: Any) -> Receipt:
    return await within(
        hub.submit(owner, make(Submission, agent=agent, messages=text(words), **fields)), "the submission"
    )


async def answer(hub: GatewayHub, task_id: str, bare: Any = None, *, owner: str = OWNER, **fields: Any) -> Receipt:
    return await within(hub.answer(owner, make(Answers, task_id=task_id, bare=bare, **fields)), "the answer")


@contextmanager
def refused(code: FaultCode, match: str | None = None) -> Generator[pytest.ExceptionInfo[FaultError]]:
    """Expect a fault of this code."""
    with pytest.raises(FaultError, match=match) as error:
        yield error
    assert error.value.fault.code is code


async def submit_to_end(hub: GatewayHub, agent: str, words: str = "hi", **fields: Any) -> Receipt:
    """Submit an input, and wait until its task has ended."""
    receipt = await submit(hub, agent, words, **fields)
    await ends(hub, receipt)
    return receipt


async def begin(hub: GatewayHub, agent: Scripted, words: str = "hi", **fields: Any) -> tuple[Receipt, Activation]:
    """Submit an input to agent `a`, and wait until it is called."""
    return await submit(hub, "a", words, **fields), await agent.called()


async def converse(hub: GatewayHub, agent: Scripted, words: str = "hi", *, says: str = "", **fields: Any) -> Receipt:
    """Submit an input to agent `a`, which answers it and ends."""
    receipt, activation = await begin(hub, agent, words, **fields)
    await finish(hub, activation.say(says) if says else activation, receipt)
    return receipt


async def finish(hub: GatewayHub, activation: Activation, receipt: Receipt) -> None:
    """End the activation, and wait until the task has ended."""
    activation.end()
    await ends(hub, receipt)


async def submit_and_ask(hub: GatewayHub, agent: Scripted, *ids: str, **fields: Any) -> Receipt:
    """Submit an input to agent `a`, which asks questions of these ids and pauses."""
    receipt, activation = await begin(hub, agent, **fields)
    activation.ask(*ids).end()
    await reaches(hub, receipt, TaskState.INPUT_REQUIRED)
    return receipt


async def batches(
    hub: GatewayHub, scope: Scope, after: int = 0, *, owner: str = OWNER
) -> AsyncGenerator[Sequence[Record], None]:
    """Yield the batches that a reader receives. Fail if one does not arrive in time."""
    reading = hub.reads.follow(owner, scope, after)
    async with aclosing(reading):
        while True:
            try:
                batch = await within(anext(reading), "the next record")
            except StopAsyncIteration:
                return
            yield batch


async def follow(
    hub: GatewayHub, scope: Scope, after: int = 0, *, until: Callable[[Record], bool] | None = None, owner: str = OWNER
) -> list[Record]:
    """Return all records up to the end of the scope, or up to the first record for which `until` holds."""
    records: list[Record] = []
    async with aclosing(batches(hub, scope, after, owner=owner)) as reading:
        async for batch in reading:
            for record in batch:
                records.append(record)
                if until is not None and until(record):
                    return records
    return records


async def reaches(hub: GatewayHub, receipt: Receipt, *wanted: TaskState, owner: str = OWNER) -> Task:
    """Wait until the task is in one of the states, and return it. Fail if the task ends in another state."""

    def there(record: Record) -> bool:
        return isinstance(record.event, TaskChanged) and record.event.state in wanted

    task = await hub.reads.task(owner, receipt.task_id)
    if task.state not in wanted:
        await follow(hub, Scope.task(receipt.task), task.last_seq, until=there, owner=owner)
        task = await hub.reads.task(owner, receipt.task_id)
    assert task.state in wanted or not task.is_terminal, f"the task is {task.state}: {task.fault}"
    return task


async def ends(hub: GatewayHub, receipt: Receipt, *, owner: str = OWNER) -> Task:
    return await reaches(hub, receipt, *TERMINAL, owner=owner)


async def fails(hub: GatewayHub, receipt: Receipt, code: FaultCode) -> None:
    """Wait until the task has failed with this code."""
    task = await ends(hub, receipt)
    assert task.state is TaskState.FAILED
    assert task.fault is not None and task.fault.code is code


async def run_is(hub: GatewayHub, run_id: str, thread_id: str, *wanted: RunStatus, owner: str = OWNER) -> Run:
    """Wait until the run has one of the statuses."""
    scope = Scope(thread_id, "run", run_id)
    async with aclosing(batches(hub, scope, owner=owner)) as reading:
        async for _ in reading:
            run = await hub.reads.run(owner, run_id)
            if run.status in wanted:
                return run
    run = await hub.reads.run(owner, run_id)
    assert run.status in wanted, f"the run ended as {run.status}"
    return run


async def log(hub: GatewayHub, receipt: Receipt, kind: Any = "thread", *, owner: str = OWNER) -> list[Record]:
    scopes = {
        "thread": Scope(receipt.thread_id),
        "task": Scope(receipt.thread_id, "task", receipt.task_id),
        "run": Scope(receipt.thread_id, "run", receipt.run_id),
    }
    return list(await hub.reads.records(owner, scopes[kind]))


async def open_questions(hub: GatewayHub, receipt: Receipt, *, owner: str = OWNER) -> Sequence[Interrupt]:
    return await hub.reads.open_interrupts(owner, receipt.task_id)


def kinds(records: Sequence[Record]) -> list[str]:
    """Return the kinds of records, without consecutive repetitions."""
    return [kind for kind, _ in itertools.groupby(record.event.kind for record in records)]


def states(records: Sequence[Record], task_id: str | None = None) -> list[str]:
    """Return the states of all tasks, or of one task, in their order."""
    return [
        str(record.event.state)
        for record in records
        if isinstance(record.event, TaskChanged) and task_id in (None, record.task_id)
    ]


def comparable(records: Sequence[Record]) -> list[tuple[Any, ...]]:
    """Return records as values that can be compared and printed."""
    return [(r.seq, r.at, r.task_id, r.run_id, r.attempt, encode_event(r.event)) for r in records]
