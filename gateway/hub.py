"""The hub: what servers call. It mints ids, hands commands to the journal, and lets readers follow the log."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Protocol, TypeVar
from uuid import uuid4

from canonical.agent import AgentInfo, Drawn, Invocation, Stateful
from canonical.event import ArtifactAdded, Record, RunCreated
from canonical.fault import Fault, FaultCode, FaultError
from canonical.history import History
from canonical.hub import (
    Answers,
    Receipt,
    RunFilter,
    Scope,
    Snapshot,
    StateUpdate,
    Submission,
    TaskFilter,
    TaskPage,
    ThreadChange,
    ThreadFilter,
    ThreadOrder,
    ThreadPage,
    Webhook,
)
from canonical.message import FilePart, Message
from canonical.state import RunStatus
from canonical.store import Store
from canonical.thread import Artifact, Interrupt, Run, Task, Thread, ThreadView
from gateway import command, conversation, erase, listing, store, turn, view
from gateway.blob import Blobs
from gateway.checkpoint import Attached
from gateway.command import Bounds, Cancelled, Ids, Submitted
from gateway.engine import Engine, Fronted, Tasks
from gateway.expiry import Expiry
from gateway.invocation import upstream_of
from gateway.journal import Journal
from gateway.ledger import Ledger, Published, read_meta, write_meta
from gateway.reader import Reader
from gateway.recorder import mint
from gateway.sql import table_of
from gateway.table import WebhookRow
from gateway.turn import Start
from gateway.view import Due, LiveRun
from gateway.webhook import Deliverer, WriterFactory

__all__ = ("Fetches", "Hub", "Limits", "Registered")

T = TypeVar("T")
S = TypeVar("S", bound=Snapshot)

_SWEEP = 3600
"""Seconds between sweeps of the artifact store, and how old an unnamed file must be to go."""


class Registered(Protocol):
    """The configured agents (`gateway.registry`)."""

    def get(self, name: str) -> Fronted: ...

    async def reached(self, name: str) -> Fronted:
        """The same, and looks for one that is broken."""
        ...

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
    def ephemeral_ttl(self) -> float: ...
    @property
    def input_ttl(self) -> float: ...
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
        self._blobs = blobs
        self._fetcher = fetcher
        self._clock = clock or (lambda: time.time_ns() // 1000)
        self.journal = Journal(journal_url, power=power, clock=clock, on_commit=self._committed)
        self._reader = Reader(self.journal, blobs, limits.inline)
        self.engine = Engine(
            self.journal,
            blobs,
            self._reader,
            registry.get,
            registry.reached,
            run_timeout=limits.run,
            cancel_grace=limits.cancel_grace,
            event_limit=limits.event,
        )
        self._deliverer = Deliverer(self.journal, fetcher, writers)
        self._tasks = Tasks()
        self._expiry = Expiry(self.journal, limits, self._erase, self._clock)
        self._items = store.Store(self.journal, self._clock)
        self.store: Store = self._items

    # Starting and stopping

    async def start(self) -> None:
        """Open the journal and take up what the last gateway left: queued runs stay queued in order, paused tasks
        stay as they are, active runs are re-attached to, started again, or ended with a fault that says why."""
        await self.journal.open()
        for fronted in self.registry.all():
            if isinstance(fronted.agent, Attached):
                fronted.agent.attach(self.journal)
        try:
            self.instance = await self.journal.write(_instance)
            await self._recover()
        except BaseException:
            await self.journal.close()
            raise
        await self._expiry.start()
        self._tasks.spawn(self._sweep_forever(), "sweep")

    def let_go(self) -> None:
        """Nobody reads the log any longer."""
        self.journal.channels.close_all()
        self._reader.close()

    async def stop(self) -> None:
        """Readers end first, so that no request holds the server up; then runs are let go and the rest is committed."""
        self.let_go()
        await self._expiry.stop()
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
            self._reader.opened(owner, task.task_id)
        live = await self.journal.query(view.live_runs)
        for found in live:
            self._reader.opened(found.owner, found.run.run_id)
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
            await self._items.sweep()

    def _committed(self, published: Sequence[Published]) -> None:
        for entry in published:
            self._reader.committed(entry)
            self._expiry.committed(entry)
        self._reader.trim()

    # Agents

    def agents(self) -> Sequence[AgentInfo]:
        return [fronted.info for fronted in self.registry.all()]

    def agent(self, name: str) -> AgentInfo:
        return self.registry.get(name).info

    def drawn(self, name: str) -> Drawn | None:
        agent = self.registry.get(name).agent
        return agent if isinstance(agent, Drawn) else None

    async def _working(self, name: str) -> Fronted:
        fronted = await self.registry.reached(name)
        if fronted.agent is None:
            raise FaultError(FaultCode.AGENT_UNREACHABLE, f"Agent {fronted.info.name} is broken: {fronted.broken}")
        return fronted

    def _known(self, name: str) -> Fronted | None:
        try:
            return self.registry.get(name)
        except FaultError:  # gone from the configuration since
            return None

    # Threads

    async def create_thread(
        self,
        owner: str,
        change: ThreadChange,
        *,
        thread_id: str | None = None,
        if_exists: Literal["raise", "return"] = "raise",
    ) -> Thread:
        return await self.journal.write(
            partial(conversation.create, owner=owner, thread_id=thread_id or mint(), asked=change, if_exists=if_exists)
        )

    async def change_thread(self, owner: str, thread_id: str, change: ThreadChange) -> Thread:
        return await self.journal.write(partial(conversation.change, owner=owner, thread_id=thread_id, asked=change))

    async def copy_thread(self, owner: str, thread_id: str) -> Thread:
        history = History(thread_id, owner, await self.records(owner, Scope(thread_id)))
        revisions = history.all()[::-1]
        names = {revision.checkpoint_id: mint() for revision in revisions}
        return await self.journal.write(
            partial(
                conversation.copy, owner=owner, thread_id=thread_id, new_id=mint(), revisions=revisions, names=names
            )
        )

    async def update_state(self, owner: str, update: StateUpdate) -> str:
        if update.checkpoint is not None:
            await self._check_revision(owner, update.thread_id, update.checkpoint)
        if (keeper := await self._keeper(owner, update.thread_id)) is not None:
            return await self._revised(owner, update, *keeper)
        checkpoint_id = mint()
        kept = replace(update, messages=await self._kept(update.messages))
        await self.journal.write(partial(conversation.update, owner=owner, asked=kept, checkpoint_id=checkpoint_id))
        return checkpoint_id

    async def _keeper(self, owner: str, thread_id: str) -> tuple[str, Stateful] | None:
        """The agent that keeps the thread's state, if the last one on it does; before the first, the one that the
        thread was made for, as LangGraph marks it."""
        thread = await self.thread(owner, thread_id)
        runs = await self.runs(owner, RunFilter(thread_id=thread_id), limit=1)
        name: Any = runs[0].agent if runs else thread.metadata.get("graph_id")
        try:
            fronted = await self.registry.reached(name) if isinstance(name, str) else None
        except FaultError:
            return None
        if fronted is None or not fronted.info.stateful or not isinstance(fronted.agent, Stateful):
            return None
        return fronted.info.name, fronted.agent

    async def _revised(self, owner: str, update: StateUpdate, name: str, agent: Stateful) -> str:
        key = await self._reader.key(owner, update.thread_id)
        runs = await self.journal.query(partial(turn.bound_runs, pk=key, agent=name))
        call = Invocation(
            owner=owner,
            agent=name,
            thread_id=update.thread_id,
            task_id="",
            run_id="",
            cause="update",
            messages=await self._kept(update.messages),
            data=update.values or None,
            checkpoint=update.checkpoint,
            upstream=upstream_of(runs, ""),
        )
        saved = await agent.update_state(call, forgets=update.forgets, as_node=update.as_node)
        await self.journal.write(partial(conversation.save, owner=owner, thread_id=update.thread_id, saved=saved))
        return saved.checkpoint_id or ""

    async def _check_revision(self, owner: str, thread_id: str | None, checkpoint: str) -> None:
        known = _found(thread_id, f"Checkpoint {checkpoint} not found")
        history = await self.snapshot(owner, known, History, partial(History, known, owner))
        _found(history.get(checkpoint), f"Checkpoint {checkpoint} not found")

    async def upload(self, owner: str, thread_id: str, file: FilePart, folder: str | None = None) -> Artifact:
        await self.thread(owner, thread_id)  # before its bytes are stored
        part = await self._blobs.keep(file)
        added = ArtifactAdded(artifact_id=mint(), name=file.name, part=part, origin="caller", folder=folder)
        at = await self.journal.write(partial(conversation.upload, owner=owner, thread_id=thread_id, added=added))
        return Artifact(
            artifact_id=added.artifact_id,
            name=added.name,
            parts=(part,),
            origin="caller",
            folder=folder,
            created_at=at,
        )

    # Runs

    async def submit(self, owner: str, submission: Submission) -> Receipt:
        fronted = await self._working(submission.agent)
        info, agent = fronted.info, fronted.info.name
        if submission.start_after is not None and not 0 <= submission.start_after < 2**63:
            raise FaultError(FaultCode.INVALID, "The time to start at is out of range")
        if submission.webhook is not None:
            await self._fetcher.check(submission.webhook.url)
        if submission.checkpoint is not None:
            await self._check_revision(owner, submission.thread_id, submission.checkpoint)
        headers = _forwarded(fronted, submission.headers)
        ask = replace(submission, agent=agent, headers=headers, messages=await self._kept(submission.messages))
        if ask.history:
            ask = replace(ask, history=await self._kept(ask.history))
        ids = Ids(mint(), mint(), mint(), mint())
        reserved = self.engine.reserve(agent)
        return await self._submitted(
            owner,
            agent,
            ask.webhook,
            reserved,
            lambda ledger: command.submit(
                ledger, owner, ask, ids, self._bounds, may_start=reserved, stateful=info.stateful
            ),
        )

    async def answer(self, owner: str, answers: Answers) -> Receipt:
        task = await self.task(owner, answers.task_id)
        if answers.webhook is not None:
            await self._fetcher.check(answers.webhook.url)
        headers = _forwarded(self._known(task.agent), answers.headers)
        given = replace(answers, headers=headers, messages=await self._kept(answers.messages))
        ids = Ids(mint(), mint(), mint(), mint())
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

    async def cancel_run(self, owner: str, run_id: str, *, rollback: bool = False) -> Run:
        done = self.journal.write(lambda ledger: command.cancel_run(ledger, owner, run_id, rollback=rollback))
        done.add_done_callback(self._stop_cancelled)
        await asyncio.shield(done)
        return await self.run(owner, run_id)

    def _stop_cancelled(self, done: "asyncio.Future[Cancelled]") -> None:
        if done.exception() is None and (stop := done.result().stop) is not None:
            self.engine.stop_run(*stop)

    async def delete_thread(self, owner: str, thread_id: str) -> None:
        await self._erase(owner, thread_id)

    async def _erase(self, owner: str, thread_id: str) -> None:
        done = self.journal.write(lambda ledger: erase.erase_thread(ledger, owner, thread_id))
        done.add_done_callback(partial(self._forget_thread, owner, thread_id))
        await asyncio.shield(done)

    def _forget_thread(self, owner: str, thread_id: str, done: "asyncio.Future[erase.Erased]") -> None:
        """Its readers end and its agent is stopped, whatever became of the caller meanwhile."""
        if done.exception() is not None:
            return
        erased = done.result()
        self._reader.erased(owner, thread_id, erased)
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
            self._reader.snapshots.forget(done.result())

    # Reading

    async def task(self, owner: str, task_id: str) -> Task:
        found = await self.journal.query(partial(view.task, owner=owner, task_id=task_id))
        return _found(found, f"Task {task_id} not found")

    async def run(self, owner: str, run_id: str) -> Run:
        found = await self.journal.query(partial(view.run, owner=owner, run_id=run_id))
        return _found(found, f"Run {run_id} not found")

    async def created(self, owner: str, run: Run) -> RunCreated:
        key = await self._reader.key(owner, run.thread_id)
        for record in await self.journal.page(key, run.first_seq - 1, 1):
            if isinstance(record.event, RunCreated):
                return record.event
        raise FaultError(FaultCode.NOT_FOUND, f"Run {run.run_id} not found")

    async def runs(self, owner: str, where: RunFilter, *, limit: int, offset: int = 0) -> Sequence[Run]:
        return await self.journal.query(partial(listing.runs, owner=owner, where=where, limit=limit, offset=offset))

    async def thread_view(self, owner: str, thread_id: str) -> ThreadView:
        found = await self.journal.query(partial(listing.thread_view, owner=owner, thread_id=thread_id))
        return _found(found, f"Thread {thread_id} not found")

    async def threads(
        self,
        owner: str,
        where: ThreadFilter,
        *,
        limit: int,
        offset: int = 0,
        order: ThreadOrder = "created_at",
        descending: bool = True,
    ) -> ThreadPage:
        return await self.journal.query(
            partial(
                listing.threads,
                owner=owner,
                where=where,
                limit=limit,
                offset=offset,
                order=order,
                descending=descending,
            )
        )

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
        return await self._reader.records(owner, scope, after, inline=inline)

    async def snapshot(
        self,
        owner: str,
        thread_id: str,
        name: Hashable,
        empty: Callable[[], S],
        *,
        until: int | None = None,
        inline: bool = False,
    ) -> S:
        return await self._reader.snapshot(owner, thread_id, name, empty, until, inline=inline)

    def read(
        self, owner: str, scope: Scope, after: int = 0, *, inline: bool = False
    ) -> AsyncIterator[Sequence[Record]]:
        return self._reader.read(owner, scope, after, inline=inline)

    async def await_thread(self, owner: str, thread_id: str) -> bool:
        return await self._reader.await_thread(owner, thread_id)

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


def _forwarded(fronted: Fronted | None, headers: Mapping[str, str]) -> Mapping[str, str]:
    """Of a request's headers, those that the agent's settings let through to its server."""
    if not headers or fronted is None:
        return {}
    return {name: value for name, value in headers.items() if name in fronted.forward}


def _found(value: T | None, message: str) -> T:
    if value is None:
        raise FaultError(FaultCode.NOT_FOUND, message)
    return value


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
