"""The hub: what servers call. It mints ids, hands commands to the journal, and lets readers follow the log."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from canonical.agent import AgentInfo
from canonical.event import (
    ArtifactAdded,
    InterruptRaised,
    PartAdded,
    Record,
    RunCreated,
    RunEnded,
    RunRemoved,
    TaskChanged,
    TaskCreated,
)
from canonical.fault import Fault, FaultCode, FaultError
from canonical.hub import Answers, Receipt, Scope, Submission, TaskFilter, TaskPage, Webhook
from canonical.message import FilePart, Message, Part
from canonical.state import TERMINAL, RunStatus
from canonical.thread import Interrupt, Run, Task, Thread
from gateway import command, erase, turn, view
from gateway.blob import Blobs
from gateway.command import Bounds, Cancelled, Ids, Submitted
from gateway.engine import Engine, Fronted, Tasks
from gateway.journal import Journal
from gateway.ledger import Ledger, Published, read_meta, write_meta
from gateway.recorder import mint
from gateway.sql import table_of
from gateway.table import WebhookRow
from gateway.turn import Start
from gateway.view import Due, LiveRun
from gateway.webhook import Deliverer, WriterFactory

__all__ = ("Fetches", "Hub", "Limits", "Registered")

T = TypeVar("T")

_SWEEP = 3600
"""Seconds between sweeps of the artifact store, and how old an unnamed file must be to go."""


class Registered(Protocol):
    """The configured agents (`gateway.registry`)."""

    def get(self, name: str) -> Fronted: ...

    def all(self) -> Sequence[Fronted]: ...


class Fetches(Protocol):
    """Calls to addresses that callers named, under the gateway's rules (`gateway.fetch`)."""

    async def check(self, url: str) -> Any: ...

    async def get(self, url: str) -> bytes: ...

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> int: ...


class Limits(Protocol):
    """The part of the settings that the hub lives by; sizes in bytes, times in seconds."""

    @property
    def inline(self) -> int: ...
    @property
    def run(self) -> float: ...
    @property
    def cancel_grace(self) -> float: ...
    @property
    def event(self) -> int: ...


class Hub:
    def __init__(
        self,
        *,
        registry: Registered,
        journal_url: str,
        blobs: Blobs,
        limits: Limits,
        bounds: Bounds,
        fetcher: Fetches,
        writers: Mapping[str, WriterFactory],
        power: bool = False,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.registry = registry
        self.instance = ""
        """A UUID, made at the first start of a database and kept in it."""
        self._bounds = bounds
        self._limits = limits
        self._blobs = blobs
        self._fetcher = fetcher
        self._clock = clock or (lambda: time.time_ns() // 1000)
        self.journal = Journal(journal_url, power=power, clock=clock, on_commit=self._committed)
        self.engine = Engine(
            self.journal,
            blobs,
            registry.get,
            run_timeout=limits.run,
            cancel_grace=limits.cancel_grace,
            event_limit=limits.event,
        )
        self._deliverer = Deliverer(self.journal, fetcher, writers)
        self._tasks = Tasks()
        self._keys: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._erasures = 0
        """How many threads were erased: a key that was read meanwhile may be one of theirs."""
        self._live: set[tuple[str, str]] = set()
        """(owner, id) of tasks that are not terminal and of runs that have not ended."""

    # Starting and stopping

    async def start(self) -> None:
        """Open the journal and take up what the last gateway left: queued runs stay queued in order, paused tasks
        stay as they are, active runs are re-attached to, started again, or ended with a fault that says why."""
        await self.journal.open()
        try:
            self.instance = await self.journal.write(_instance)
            await self._recover()
        except BaseException:
            await self.journal.close()
            raise
        self._tasks.spawn(self._sweep_forever(), "sweep")

    async def stop(self) -> None:
        """Readers end first, so that no request holds the server up; then runs are let go and the rest is committed."""
        self.journal.channels.close_all()
        await self._tasks.stop()
        await self._deliverer.stop()
        await self.engine.stop()
        await self.journal.close()

    async def ready(self) -> str | None:
        """None if the journal can be written to, else why not."""
        if self.journal.failed is None:
            return None
        try:
            await self.journal.write(lambda ledger: write_meta(ledger.connection, "probe", str(self._clock())))
        except FaultError:
            return self.journal.failed
        return None

    async def _recover(self) -> None:
        for owner, task in await self.journal.query(view.open_tasks):
            self._live.add((owner, task.task_id))
        live = await self.journal.query(view.live_runs)
        for found in live:
            self._live.add((found.owner, found.run.run_id))
        for found in live:
            if found.run.status is RunStatus.RUNNING:
                await self.engine.recover(Start(found.owner, found.thread_id, found.task, found.run, found.pk))
        for found in live:
            if found.run.status is RunStatus.PENDING:
                await self._requeue(found)
        for due in await self.journal.query(view.due_webhooks):
            task = await self.journal.query(partial(view.task, owner=due.owner, task_id=due.webhook.task_id))
            if task is not None:
                await self._follow(due, task)

    async def _requeue(self, found: LiveRun) -> None:
        try:
            self.registry.get(found.agent)
        except FaultError:
            fault = Fault(code=FaultCode.AGENT_UNREACHABLE, message=f"Agent {found.agent} is no longer configured")
            await self.journal.write(
                partial(
                    turn.fail_pending,
                    owner=found.owner,
                    thread_id=found.thread_id,
                    run_id=found.run.run_id,
                    fault=fault,
                )
            )
            return
        self.engine.offer(found.owner, found.thread_id, found.agent)

    async def _sweep_forever(self) -> None:
        while True:
            used = await self.journal.query(view.blobs_in_use)
            await asyncio.to_thread(self._blobs.sweep, used, time.time() - _SWEEP)
            await asyncio.sleep(_SWEEP)

    def _committed(self, published: Sequence[Published]) -> None:
        """Keep account of what is open and where threads are, on the loop, before anybody hears of the commit."""
        for entry in published:
            event, owner = entry.record.event, entry.owner
            match event:
                case TaskCreated():
                    self._live.add((owner, event.task_id))
                    self._keys[owner, entry.thread_id] = entry.pk
                case RunCreated():
                    self._live.add((owner, event.run_id))
                case RunEnded():
                    self._live.discard((owner, entry.record.run_id or ""))
                case TaskChanged() if event.state in TERMINAL:
                    self._live.discard((owner, entry.record.task_id or ""))
                case _:
                    pass
        self._trim_keys()

    def _trim_keys(self) -> None:
        while len(self._keys) > 10_000:
            self._keys.popitem(last=False)

    # Agents

    def agents(self) -> Sequence[AgentInfo]:
        return [fronted.info for fronted in self.registry.all()]

    def agent(self, name: str) -> AgentInfo:
        return self.registry.get(name).info

    def _working(self, name: str) -> Fronted:
        fronted = self.registry.get(name)
        if fronted.agent is None:
            raise FaultError(FaultCode.AGENT_UNREACHABLE, f"Agent {fronted.info.name} is broken: {fronted.broken}")
        return fronted

    # Writing

    async def submit(self, owner: str, submission: Submission) -> Receipt:
        agent = self._working(submission.agent).info.name
        if submission.start_after is not None and not 0 <= submission.start_after < 2**63:
            raise FaultError(FaultCode.INVALID, "The time to start at is out of range")
        if submission.webhook is not None:
            await self._fetcher.check(submission.webhook.url)
        ask = replace(submission, agent=agent, messages=await self._kept(submission.messages))
        if ask.history:
            ask = replace(ask, history=await self._kept(ask.history))
        ids = Ids(mint(), mint(), mint())
        reserved = self.engine.reserve(agent)
        return await self._submitted(
            owner,
            agent,
            ask.webhook,
            reserved,
            lambda ledger: command.submit(ledger, owner, ask, ids, self._bounds, may_start=reserved),
        )

    async def answer(self, owner: str, answers: Answers) -> Receipt:
        task = await self.task(owner, answers.task_id)
        if answers.webhook is not None:
            await self._fetcher.check(answers.webhook.url)
        given = replace(answers, messages=await self._kept(answers.messages))
        ids = Ids(mint(), mint(), mint())
        reserved = self.engine.reserve(task.agent)
        return await self._submitted(
            owner,
            task.agent,
            given.webhook,
            reserved,
            lambda ledger: command.answer(ledger, owner, given, ids, self._bounds, may_start=reserved),
        )

    async def _submitted(
        self, owner: str, agent: str, webhook: Webhook | None, reserved: bool, run: Callable[[Ledger], Submitted]
    ) -> Receipt:
        """Commit, and see to it that what was committed runs, whatever becomes of the caller meanwhile."""
        done = self.journal.write(run)
        done.add_done_callback(partial(self._dispatch, owner, agent, webhook, reserved))
        return (await asyncio.shield(done)).receipt

    def _dispatch(
        self, owner: str, agent: str, webhook: Webhook | None, reserved: bool, done: "asyncio.Future[Submitted]"
    ) -> None:
        submitted = None if done.exception() is not None else done.result()
        if submitted is not None and webhook is not None:
            receipt = submitted.receipt
            hook = replace(webhook, task_id=receipt.task_id)
            due = Due(owner, receipt.thread_id, hook, receipt.seq)
            self._tasks.spawn(self._follow(due, receipt.task), f"webhook of {receipt.task_id}")
        if submitted is not None and submitted.stop is not None:
            self.engine.stop_run(*submitted.stop)
        if submitted is not None and submitted.start is not None:
            self.engine.begin(submitted.start)
            return
        if reserved:
            self.engine.release(agent)
        if submitted is not None and submitted.idle:
            receipt = submitted.receipt
            self.engine.offer(owner, receipt.thread_id, agent)

    async def _kept(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The messages with ids, and with their files in the store."""
        if not messages:
            return ()
        kept = await self._blobs.keep_all(messages)
        return tuple(m if m.message_id else m.model_copy(update={"message_id": mint()}) for m in kept)

    async def cancel(self, owner: str, task_id: str) -> Task:
        done = self.journal.write(lambda ledger: command.cancel(ledger, owner, task_id))
        done.add_done_callback(self._stop_cancelled)
        return (await asyncio.shield(done)).task

    def _stop_cancelled(self, done: "asyncio.Future[Cancelled]") -> None:
        if done.exception() is None and (run_id := done.result().stop) is not None:
            self.engine.stop_run(run_id)

    async def delete_thread(self, owner: str, thread_id: str) -> None:
        done = self.journal.write(lambda ledger: erase.erase_thread(ledger, owner, thread_id))
        done.add_done_callback(partial(self._forget_thread, owner, thread_id))
        await asyncio.shield(done)

    def _forget_thread(self, owner: str, thread_id: str, done: "asyncio.Future[erase.Erased]") -> None:
        """Its readers end and its agent is stopped, whatever became of the caller meanwhile."""
        if done.exception() is not None:
            return
        erased = done.result()
        self._erasures += 1
        self._keys.pop((owner, thread_id), None)
        self._live.difference_update((owner, open_id) for open_id in erased.open)
        self.journal.channels.close(erased.pk)
        if erased.running is not None:
            self.engine.forget_run(erased.running)

    async def remove_run(self, owner: str, run_id: str) -> None:
        done = self.journal.write(lambda ledger: erase.remove_run(ledger, owner, run_id))
        done.add_done_callback(self._reread)
        await asyncio.shield(done)

    def _reread(self, done: "asyncio.Future[int]") -> None:
        """What readers still had in memory of the run is not shown any more."""
        if done.exception() is None:
            self.journal.channels.get(done.result()).forget()

    # Reading

    async def task(self, owner: str, task_id: str) -> Task:
        found = await self.journal.query(partial(view.task, owner=owner, task_id=task_id))
        return _found(found, f"Task {task_id} not found")

    async def run(self, owner: str, run_id: str) -> Run:
        found = await self.journal.query(partial(view.run, owner=owner, run_id=run_id))
        return _found(found, f"Run {run_id} not found")

    async def thread(self, owner: str, thread_id: str) -> Thread:
        found = await self.journal.query(partial(view.thread, owner=owner, thread_id=thread_id))
        return _found(found, f"Thread {thread_id} not found")

    async def thread_of(self, owner: str, protocol: str, agent: str, alias: str) -> str | None:
        return await self.journal.query(
            partial(view.thread_of, owner=owner, protocol=protocol, agent=agent, alias=alias)
        )

    async def aliases(self, owner: str, protocol: str, thread_ids: Sequence[str]) -> Mapping[str, str]:
        return await self.journal.query(partial(view.aliases, owner=owner, protocol=protocol, thread_ids=thread_ids))

    async def open_interrupts(self, owner: str, task_id: str) -> Sequence[Interrupt]:
        return await self.journal.query(partial(view.open_interrupts, owner=owner, task_id=task_id))

    async def tasks(self, owner: str, where: TaskFilter, *, limit: int, cursor: str | None = None) -> TaskPage:
        return await self.journal.query(partial(view.tasks, owner=owner, where=where, limit=limit, cursor=cursor))

    async def chain(self, owner: str, task_id: str) -> Sequence[Task]:
        found = await self.journal.query(partial(view.chain, owner=owner, task_id=task_id))
        return found or _found(None, f"Task {task_id} not found")

    async def records(self, owner: str, scope: Scope, after: int = 0, *, inline: bool = False) -> Sequence[Record]:
        pk = await self._key(owner, scope.thread_id)
        records: list[Record] = []
        until: int | None = None
        if scope.kind == "task":
            task = await self.task(owner, scope.id or "")
            after = max(after, task.first_seq - 1)
            until = task.last_seq if task.terminal else None
        while page := await self.journal.page(pk, after, 2048, until):
            after = page[-1].seq
            records += [record for record in page if scope.holds(record)]
        return [await self._inlined(record) for record in records] if inline else records

    async def read(
        self, owner: str, scope: Scope, after: int = 0, *, inline: bool = False
    ) -> AsyncIterator[Sequence[Record]]:
        pk = await self._key(owner, scope.thread_id)
        channel = self.journal.channels.get(pk)
        channel.readers += 1
        try:
            while True:
                batch = channel.after(after)
                if batch is None:
                    closed = channel.closed
                    if closed and self.journal.closed:
                        return
                    batch = await self.journal.page(pk, after)
                    if not batch and channel.seq > after and not closed:
                        continue  # published while the page was read
                if batch:
                    after = batch[-1].seq
                    held, ended = await self._held(owner, scope, batch)
                    if held:
                        yield [await self._inlined(record) for record in held] if inline else held
                    if ended:
                        return
                    continue
                if scope.kind != "thread" and (owner, scope.id or "") not in self._live:
                    return
                if channel.closed:
                    return
                await channel.more()
        finally:
            channel.readers -= 1

    async def _held(self, owner: str, scope: Scope, batch: Sequence[Record]) -> tuple[list[Record], bool]:
        """The part of a batch that is in the scope, up to its end, and whether it ends there. What comes after the end
        of a task (the removal of a run of it) is for readers of the thread: one that was there before, and left at the
        end, has not seen it either."""
        held: list[Record] = []
        for record in batch:
            if scope.holds(record):
                if isinstance(record.event, RunRemoved) and (owner, scope.id or "") not in self._live:
                    task = await self.task(owner, scope.id or "")
                    if record.seq > task.last_seq:
                        return held, True
                held.append(record)
                if _ends(scope, record):
                    return held, True
        return held, False

    async def _key(self, owner: str, thread_id: str) -> int:
        while (key := self._keys.get((owner, thread_id))) is None:
            erasures = self._erasures
            key = await self.journal.query(partial(view.thread_key, owner=owner, thread_id=thread_id))
            if key is None:
                raise FaultError(FaultCode.NOT_FOUND, f"Thread {thread_id} not found")
            if self._erasures == erasures:
                self._keys[owner, thread_id] = key
                self._trim_keys()
                break
        return key

    async def _inlined(self, record: Record) -> Record:
        """The record with the bytes of small stored files in the parts that name them."""
        event = record.event
        match event:
            case PartAdded() | ArtifactAdded():
                part = await self._inline(event.part)
                return record if part is event.part else replace(record, event=event.model_copy(update={"part": part}))
            case RunCreated():
                messages = tuple([await self._inline_message(message) for message in event.messages])
                same = all(a is b for a, b in zip(messages, event.messages, strict=True))
                return record if same else replace(record, event=event.model_copy(update={"messages": messages}))
            case InterruptRaised():
                message = await self._inline_message(event.message)
                same = message is event.message
                return record if same else replace(record, event=event.model_copy(update={"message": message}))
            case _:
                return record

    async def _inline(self, part: Part) -> Part:
        return await self._blobs.load(part, self._limits.inline) if isinstance(part, FilePart) else part

    async def _inline_message(self, message: Message) -> Message:
        if not any(isinstance(part, FilePart) and part.blob for part in message.parts):
            return message
        return message.model_copy(update={"parts": tuple([await self._inline(part) for part in message.parts])})

    async def file(self, owner: str, blob: str) -> FilePart:
        found = await self.journal.query(partial(view.file, owner=owner, blob=blob))
        return await self._blobs.load(_found(found, "No such file"))

    # Webhooks

    async def set_webhook(self, owner: str, webhook: Webhook) -> None:
        task = await self.task(owner, webhook.task_id)
        await self._fetcher.check(webhook.url)
        seq = await self.journal.write(partial(_set_webhook, owner=owner, task=task, hook=webhook))
        await self._follow(Due(owner, task.thread_id, webhook, seq), task)

    async def webhooks(self, owner: str, task_id: str) -> Sequence[Webhook]:
        await self.task(owner, task_id)
        return await self.journal.query(partial(view.webhooks, owner=owner, task_id=task_id))

    async def delete_webhook(self, owner: str, task_id: str, webhook_id: str) -> bool:
        await self.task(owner, task_id)
        self._deliverer.forget(owner, task_id, webhook_id)
        return await self.journal.write(partial(_delete_webhook, owner=owner, task_id=task_id, webhook_id=webhook_id))

    async def _follow(self, due: Due, task: Task) -> None:
        protocol = due.webhook.dialect.partition("-")[0]
        names = await self.aliases(due.owner, protocol, [task.thread_id])
        self._deliverer.follow(due, task, names.get(task.thread_id, task.thread_id), partial(self.read, inline=True))

    async def fetch(self, url: str) -> bytes:
        return await self._fetcher.get(url)


def _found(value: T | None, message: str) -> T:
    if value is None:
        raise FaultError(FaultCode.NOT_FOUND, message)
    return value


def _ends(scope: Scope, record: Record) -> bool:
    event = record.event
    if scope.kind == "run":
        return isinstance(event, RunEnded)
    return scope.kind == "task" and isinstance(event, TaskChanged) and event.state in TERMINAL


def _instance(ledger: Ledger) -> str:
    instance = read_meta(ledger.connection, "instance")
    if instance is None:
        instance = str(uuid4())
        write_meta(ledger.connection, "instance", instance)
    return instance


def _set_webhook(ledger: Ledger, owner: str, task: Task, hook: Webhook) -> int:
    state = ledger.need_thread(owner, task.thread_id)
    command.insert_webhook(ledger, state, task.task_id, hook, state.seq)
    return state.seq


def _delete_webhook(ledger: Ledger, owner: str, task_id: str, webhook_id: str) -> bool:
    table = table_of(WebhookRow)
    deleted = ledger.connection.execute(
        table.delete().where(table.c.owner == owner, table.c.task_id == task_id, table.c.webhook_id == webhook_id)
    )
    return deleted.rowcount > 0
