"""The hub: what servers call. It mints ids, hands commands to the journal, and lets readers follow the log."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Literal, TypeVar
from uuid import NAMESPACE_OID, uuid4, uuid5

from canonical.agent import AgentInfo, Introspectable, Invocation, Stateful
from canonical.event import ArtifactAdded, Record, RunCreated, TaskChanged
from canonical.fault import Fault, FaultCode, FaultError
from canonical.fold import Fold
from canonical.history import StateHistory
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
from canonical.listed import Listed
from canonical.message import FilePart, Message
from canonical.run_input import RunInput
from canonical.state import TERMINAL, RunStatus
from canonical.store import Store
from canonical.thread import Artifact, Interrupt, Run, Task, Thread, ThreadView
from gateway.agents.python.agent import InProcess
from gateway.agents.registry import Registry
from gateway.background import Tasks
from gateway.clock import Clock
from gateway.fronted import Fronted
from gateway.ids import new_id
from gateway.outbound import Fetcher
from gateway.runs import deletion, lifecycle, thread_commands
from gateway.runs import submission as command
from gateway.runs.engine import Engine
from gateway.runs.expiry import Expiry
from gateway.runs.invocation import upstream_of
from gateway.runs.lifecycle import Start
from gateway.runs.submission import Cancelled, Ids, Submitted
from gateway.runs.webhooks import Deliverer, WriterFactory
from gateway.settings.model import Limits
from gateway.storage import items, listing, queries
from gateway.storage.blobs import Blobs
from gateway.storage.checkpoints import Attached
from gateway.storage.journal import Journal
from gateway.storage.queries import Due, LiveRun
from gateway.storage.size import check_size
from gateway.storage.statements import table_of
from gateway.storage.subscription import Reader
from gateway.storage.tables import WebhookRow
from gateway.storage.transaction import Published, Transaction, read_meta, write_meta

T = TypeVar("T")
S = TypeVar("S", bound=Snapshot)

_SWEEP = 3600
"""Seconds between sweeps of the artifact store, and how old an unnamed file must be to go."""


_LATEST = 2**62
"""Microseconds that a start may be delayed by: with the time of the day, it is a number that a database can hold."""


class Hub:
    def __init__(
        self,
        *,
        registry: Registry,
        journal_url: str,
        blobs: Blobs,
        limits: Limits,
        fetcher: Fetcher,
        writers: Mapping[str, WriterFactory],
        webhook_protocols: Mapping[str, str] = MappingProxyType({}),
        power: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.registry = registry
        self.instance = ""
        """A UUID, made at the first start of a database and kept in it."""
        self._limits = limits
        self._blobs = blobs
        self._fetcher = fetcher
        self._clock = clock or Clock()
        self._swept = self._clock.now()
        self.journal = Journal(journal_url, power=power, clock=self._clock, on_commit=self._handle_commits)
        self._reader = Reader(self.journal, blobs, limits.inline)
        self.engine = Engine(
            self.journal,
            blobs,
            self._reader,
            registry.get,
            registry.get_reachable,
            run_timeout=limits.run,
            cancel_grace=limits.cancel_grace,
            event_limit=limits.event,
            output_limit=limits.output,
        )
        self._deliverer = Deliverer(self.journal, fetcher, writers)
        self._webhook_protocols = webhook_protocols
        """By dialect: in which protocol's words the thread is named, if that has names of its own for threads."""
        self._tasks = Tasks()
        self._expiry = Expiry(self.journal, limits, self._erase_expired, self._clock)
        self._parking = [each.agent for each in registry.all() if isinstance(each.agent, InProcess)]
        self._items = items.Store(self.journal, self._clock, limits.input)
        self.store: Store = self._items

    # Starting and stopping

    async def start(self) -> None:
        """Open the journal and take up what the last gateway left: queued runs stay queued in order, paused tasks
        stay as they are, active runs are re-attached to, started again, or ended with a fault that says why."""
        self._blobs.secure()
        await self.journal.open()
        for fronted in self.registry.all():
            if isinstance(fronted.agent, Attached):
                fronted.agent.attach(self.journal, self._items)
        try:
            self.instance = await self.journal.write(_instance)
            await self._recover()
        except BaseException:
            await self.journal.close()
            raise
        await self._expiry.start()
        self._tasks.spawn(self._sweep_forever(), "sweep")

    def close_readers(self) -> None:
        """End every subscription to the log."""
        self.journal.channels.close_all()
        self._reader.close()

    async def stop(self) -> None:
        """Subscriptions end first, so that no request holds the server up; then runs are released, and the rest is
        committed."""
        self.close_readers()
        await self._expiry.stop()
        await self._tasks.stop()
        await self._deliverer.stop()
        await self.engine.stop()
        await self.journal.close()

    async def ready(self) -> str | None:
        """None if the journal can be written to, else why not."""
        if self.journal.failure is None:
            return None
        try:
            await self.journal.write(lambda tx: write_meta(tx.connection, "probe", str(self._clock.now())))
        except FaultError:
            return self.journal.failure
        return None

    async def _recover(self) -> None:
        for pk, task_id in await self.journal.query(queries.open_tasks):
            self._reader.mark_open(pk, "task", task_id)
        live = await self.journal.query(queries.live_runs)
        for found in live:
            self._reader.mark_open(found.pk, "run", found.run.run_id)
        for found in live:
            if found.run.status is RunStatus.RUNNING:
                await self.engine.recover(Start(found.owner, found.thread_id, found.task, found.run, found.pk))
        for found in live:
            if found.run.status is RunStatus.PENDING:
                await self._requeue(found)
        for due in await self.journal.query(queries.due_webhooks):
            task = await self.journal.row(Task, due.owner, due.webhook.task_id)
            if task is not None:
                await self._follow(due, task)

    async def _requeue(self, found: LiveRun) -> None:
        try:
            self.registry.get(found.agent)
        except FaultError:
            fault = Fault(code=FaultCode.AGENT_UNREACHABLE, message=f"Agent {found.agent} is no longer configured")
            await self.journal.write(
                partial(
                    lifecycle.fail_pending,
                    owner=found.owner,
                    thread_id=found.thread_id,
                    run_id=found.run.run_id,
                    fault=fault,
                )
            )
            return
        self.engine.slots.offer(found.owner, found.thread_id, found.agent)

    async def _sweep_forever(self) -> None:
        while True:
            await self.sweep_files()
            await asyncio.sleep(_SWEEP)
            await self._items.sweep()

    async def sweep_files(self) -> int:
        """Remove the files that no event names, but for those that may be on their way into one. Returns how many."""
        # They are dated by the system's clock: that it was set forward since the last sweep does not make them old.
        now = self._clock.now()
        older = min(self._swept, now - _SWEEP * 1_000_000)
        self._swept = now
        used = await self.journal.query(queries.blobs_in_use)
        return await asyncio.to_thread(self._blobs.sweep, used, older / 1e6)

    def _handle_commits(self, published: Sequence[Published]) -> None:
        for entry in published:
            self._reader.handle_commit(entry)
            self._expiry.handle_commit(entry)
            event = entry.record.event
            if self._parking and isinstance(event, TaskChanged) and event.state in TERMINAL:
                self._forget_paused(entry.owner, entry.record.task_id or "")
        self._reader.trim()

    # Agents

    def agents(self) -> Sequence[AgentInfo]:
        return [fronted.info for fronted in self.registry.all()]

    def agent(self, name: str) -> AgentInfo:
        return self.registry.get(name).info

    def introspectable_agent(self, name: str) -> Introspectable | None:
        agent = self.registry.get(name).agent
        return agent if isinstance(agent, Introspectable) else None

    async def _working(self, name: str) -> Fronted:
        fronted = await self.registry.get_reachable(name)
        if fronted.agent is None:
            raise FaultError(FaultCode.AGENT_UNREACHABLE, f"Agent {fronted.info.name} is broken: {fronted.broken}")
        return fronted

    def _find_agent(self, name: str) -> Fronted | None:
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
        self._check_change(change)
        return await self.journal.write(
            partial(
                thread_commands.create, owner=owner, thread_id=thread_id or new_id(), asked=change, if_exists=if_exists
            )
        )

    async def change_thread(self, owner: str, thread_id: str, change: ThreadChange) -> Thread:
        self._check_change(change)
        most = self._limits.metadata
        return await self.journal.write(
            partial(thread_commands.change, owner=owner, thread_id=thread_id, asked=change, most=most)
        )

    def _check_change(self, change: ThreadChange) -> None:
        check_size(self._limits.metadata, change.metadata)
        check_size(self._limits.input, change.config, change.extra)

    async def copy_thread(self, owner: str, thread_id: str) -> Thread:
        history = await self.snapshot(owner, thread_id, StateHistory, partial(StateHistory, thread_id, owner))
        revisions = history.all()[::-1]
        names = {revision.checkpoint_id: new_id() for revision in revisions}
        return await self.journal.write(
            partial(
                thread_commands.copy,
                owner=owner,
                thread_id=thread_id,
                new_id=new_id(),
                revisions=revisions,
                names=names,
            )
        )

    async def update_state(self, owner: str, update: StateUpdate) -> str:
        check_size(self._limits.input, update.values, update.messages)
        if update.checkpoint is not None:
            await self._check_revision(owner, update.thread_id, update.checkpoint)
        if (keeper := await self._state_owner(owner, update)) is not None:
            return await self._update_state(owner, update, *keeper)
        checkpoint_id = new_id()
        kept = replace(update, messages=await self._keep_files(update.messages))
        await self.journal.write(partial(thread_commands.update, owner=owner, asked=kept, checkpoint_id=checkpoint_id))
        return checkpoint_id

    async def _state_owner(self, owner: str, update: StateUpdate) -> tuple[str, Stateful] | None:
        """The agent that keeps the thread's state, if the last one on it does; before the first, the one that the
        thread was made for."""
        await self.thread(owner, update.thread_id)
        runs = await (await self.runs(owner, RunFilter(thread_id=update.thread_id), limit=1)).all()
        name = runs[0].agent if runs else update.agent
        try:
            fronted = None if name is None else await self.registry.get_reachable(name)
        except FaultError:
            return None
        if fronted is None or not fronted.info.stateful or not isinstance(fronted.agent, Stateful):
            return None
        return fronted.info.name, fronted.agent

    async def _update_state(self, owner: str, update: StateUpdate, name: str, agent: Stateful) -> str:
        key = await self._reader.key(owner, update.thread_id)
        runs = await self.journal.query(partial(lifecycle.bound_runs, pk=key, agent=name))
        call = Invocation(
            owner=owner,
            agent=name,
            thread_id=update.thread_id,
            task_id="",
            run_id="",
            cause="update",
            input=RunInput(
                messages=await self._keep_files(update.messages),
                data=update.values or None,
                checkpoint=update.checkpoint,
            ),
            upstream=upstream_of(runs, ""),
        )
        saved = await agent.update_state(call, removed_ids=update.removed_ids, as_node=update.as_node)
        await self.journal.write(partial(thread_commands.save, owner=owner, thread_id=update.thread_id, saved=saved))
        return saved.checkpoint_id or ""

    async def _check_revision(self, owner: str, thread_id: str | None, checkpoint: str) -> None:
        known = _require_found(thread_id, f"Checkpoint {checkpoint} not found")
        history = await self.snapshot(owner, known, StateHistory, partial(StateHistory, known, owner))
        _require_found(history.get(checkpoint), f"Checkpoint {checkpoint} not found")

    async def upload(
        self, owner: str, thread_id: str, file: FilePart, folder: str | None = None, *, key: str | None = None
    ) -> Artifact:
        await self.thread(owner, thread_id)  # before its bytes are stored
        part = await self._blobs.keep(file)
        artifact_id = new_id() if key is None else str(uuid5(NAMESPACE_OID, f"{thread_id}/upload/{key}"))
        added = ArtifactAdded(artifact_id=artifact_id, name=file.name, part=part, origin="caller", folder=folder)
        before = None
        if key is not None:
            fold = await self.snapshot(owner, thread_id, Fold, partial(Fold, thread_id, owner))
            if artifact_id in fold.artifacts:
                return _as_before(fold.artifacts[artifact_id], added)
            before = fold.seq
        write = partial(thread_commands.upload, owner=owner, thread_id=thread_id, added=added, after=before)
        record = await self.journal.write(write)
        kept = record.event
        assert isinstance(kept, ArtifactAdded)
        made = Artifact(
            artifact_id=kept.artifact_id,
            name=kept.name,
            parts=(kept.part,),
            origin="caller",
            folder=kept.folder,
            created_at=record.at,
        )
        return made if kept is added else _as_before(made, added)

    # Runs

    async def submit(self, owner: str, submission: Submission) -> Receipt:
        """Raises invalid."""
        given = submission.input
        check_size(self._limits.input, given.messages, submission.history, given.config)
        check_size(self._limits.input, given.data)  # the same words, most often
        check_size(self._limits.metadata, given.metadata)
        check_size(self._limits.metadata, submission.thread_metadata)
        fronted = await self._working(submission.agent)
        info, agent = fronted.info, fronted.info.name
        if submission.start_in is not None and not 0 <= submission.start_in <= _LATEST:
            raise FaultError(FaultCode.INVALID, "The delay before the start is negative or too long")
        if submission.webhook is not None:
            await self._fetcher.check(submission.webhook.url)
        if given.checkpoint is not None:
            await self._check_revision(owner, submission.thread_id, given.checkpoint)
        ask = replace(submission, agent=agent, input=await self._keep_input(fronted, given))
        if ask.history:
            ask = replace(ask, history=await self._keep_files(ask.history))
        ids = Ids(new_id(), new_id(), new_id(), new_id())
        reserved = self.engine.slots.reserve(agent)
        return await self._submit(
            owner,
            agent,
            ask.webhook,
            reserved,
            lambda tx: command.submit(tx, owner, ask, ids, self._limits, may_start=reserved, stateful=info.stateful),
        )

    async def answer(self, owner: str, answers: Answers) -> Receipt:
        check_size(self._limits.input, answers.input.messages, answers.input.config)
        check_size(self._limits.input, answers.values, answers.bare)
        check_size(self._limits.metadata, answers.input.metadata)
        task = await self.task(owner, answers.task_id)
        if answers.webhook is not None:
            await self._fetcher.check(answers.webhook.url)
        given = replace(answers, input=await self._keep_input(self._find_agent(task.agent), answers.input))
        ids = Ids(new_id(), new_id(), new_id(), new_id())
        reserved = self.engine.slots.reserve(task.agent)
        return await self._submit(
            owner,
            task.agent,
            given.webhook,
            reserved,
            lambda tx: command.answer(tx, owner, given, ids, self._limits, may_start=reserved),
        )

    async def _submit(
        self, owner: str, agent: str, webhook: Webhook | None, reserved: bool, run: Callable[[Transaction], Submitted]
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
            due = Due(owner, receipt.thread_id, submitted.pk, hook, receipt.seq)
            self._tasks.spawn(self._follow(due, receipt.task), f"webhook of {receipt.task_id}")
        if submitted is not None and submitted.stop is not None:
            self.engine.stop_run(*submitted.stop)
        if submitted is not None and submitted.start is not None:
            self.engine.begin(submitted.start)
            return
        if reserved:
            self.engine.slots.release(agent)
        if submitted is not None and submitted.idle:
            receipt = submitted.receipt
            self.engine.slots.offer(owner, receipt.thread_id, agent)

    async def _keep_input(self, fronted: Fronted | None, given: RunInput) -> RunInput:
        """The input as it is kept: files in the store, and of the headers those that the agent's server is sent."""
        headers = _forwarded_headers(fronted, given.headers)
        return given.replace(headers=headers, messages=await self._keep_files(given.messages))

    async def _keep_files(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The messages with ids, and with their files in the store."""
        if not messages:
            return ()
        kept = await self._blobs.keep_all(messages)
        return tuple(m if m.message_id else m.replace(message_id=new_id()) for m in kept)

    async def cancel(self, owner: str, task_id: str) -> Task:
        done = self.journal.write(lambda tx: command.cancel(tx, owner, task_id))
        done.add_done_callback(self._stop_cancelled)
        return (await asyncio.shield(done)).task

    async def cancel_run(self, owner: str, run_id: str, *, rollback: bool = False) -> Run:
        done = self.journal.write(lambda tx: command.cancel_run(tx, owner, run_id, rollback=rollback))
        done.add_done_callback(self._stop_cancelled)
        await asyncio.shield(done)
        return await self.run(owner, run_id)

    def _stop_cancelled(self, done: "asyncio.Future[Cancelled]") -> None:
        if done.exception() is None and (stop := done.result().stop) is not None:
            self.engine.stop_run(*stop)

    async def delete_thread(self, owner: str, thread_id: str) -> None:
        await self._erase(owner, thread_id, lambda tx: deletion.erase_thread(tx, owner, thread_id))

    async def _erase_expired(self, thread: Thread, pk: int, seq: int) -> bool:
        """Whether nothing had happened on it since, so that it is gone."""
        owner, thread_id = thread.owner, thread.thread_id
        return await self._erase(owner, thread_id, lambda tx: deletion.erase_unchanged(tx, pk, owner, thread_id, seq))

    async def _erase(
        self, owner: str, thread_id: str, command: Callable[[Transaction], deletion.Erased | None]
    ) -> bool:
        done = self.journal.write(command)
        done.add_done_callback(partial(self._forget_thread, owner, thread_id))
        return await asyncio.shield(done) is not None

    def _forget_thread(self, owner: str, thread_id: str, done: "asyncio.Future[deletion.Erased | None]") -> None:
        """Its readers end and its agent is stopped, whatever became of the caller meanwhile."""
        erased = None if done.exception() is not None else done.result()
        if erased is None:
            return
        self._reader.handle_erase(owner, thread_id, erased)
        self.journal.channels.close(erased.pk)
        for task_id in erased.tasks:
            self._forget_paused(owner, task_id)
        if erased.running is not None:
            self.engine.forget_run(erased.pk, erased.running)

    def _forget_paused(self, owner: str, task_id: str) -> None:
        """The task has ended: no agent keeps a paused call of it."""
        for agent in self._parking:
            agent.forget(owner, task_id)

    async def remove_run(self, owner: str, run_id: str) -> None:
        done = self.journal.write(lambda tx: deletion.remove_run(tx, owner, run_id))
        done.add_done_callback(self._reread)
        await asyncio.shield(done)

    def _reread(self, done: "asyncio.Future[int]") -> None:
        """What readers still had in memory of the run is not shown any more."""
        if done.exception() is None:
            self.journal.channels.get(done.result()).forget()
            self._reader.snapshots.forget(done.result())

    # Reading

    async def task(self, owner: str, task_id: str) -> Task:
        return _require_found(await self.journal.row(Task, owner, task_id), f"Task {task_id} not found")

    async def run(self, owner: str, run_id: str) -> Run:
        return _require_found(await self.journal.row(Run, owner, run_id), f"Run {run_id} not found")

    async def run_input(self, owner: str, run: Run) -> RunCreated:
        """Raises not_found."""
        key = await self._reader.key(owner, run.thread_id)
        for record in await self.journal.page(key, run.first_seq - 1, 1):
            if isinstance(record.event, RunCreated):
                return record.event
        raise FaultError(FaultCode.NOT_FOUND, f"Run {run.run_id} not found")

    async def runs(self, owner: str, where: RunFilter, *, limit: int, offset: int = 0) -> Listed[Run]:
        places = await self.journal.query(partial(listing.runs, owner=owner, where=where, limit=limit, offset=offset))
        return listing.create_listing(self.journal, places, partial(listing.runs_at, owner=owner))

    async def thread_view(self, owner: str, thread_id: str) -> ThreadView:
        found = await self.journal.query(partial(listing.thread_view, owner=owner, thread_id=thread_id))
        return _require_found(found, f"Thread {thread_id} not found")

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
        places, total = await self.journal.query(
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
        return ThreadPage(threads=listing.create_listing(self.journal, places, listing.threads_at), total=total)

    async def thread(self, owner: str, thread_id: str) -> Thread:
        return _require_found(await self.journal.row(Thread, owner, thread_id), f"Thread {thread_id} not found")

    async def thread_of(self, owner: str, protocol: str, agent: str, alias: str) -> str | None:
        return await self.journal.query(
            partial(queries.thread_of, owner=owner, protocol=protocol, agent=agent, alias=alias)
        )

    async def aliases(self, owner: str, protocol: str, thread_ids: Sequence[str]) -> Mapping[str, str]:
        return await self.journal.query(partial(queries.aliases, owner=owner, protocol=protocol, thread_ids=thread_ids))

    async def open_interrupts(self, owner: str, task_id: str) -> Sequence[Interrupt]:
        return await self.journal.query(partial(queries.open_interrupts, owner=owner, task_id=task_id))

    async def tasks(self, owner: str, where: TaskFilter, *, limit: int, cursor: str | None = None) -> TaskPage:
        found = await self.journal.query(partial(listing.tasks, owner=owner, where=where, limit=limit, cursor=cursor))
        places, following, total = found
        tasks = listing.create_listing(self.journal, places, partial(listing.tasks_at, owner=owner))
        return TaskPage(tasks=tasks, next_cursor=following, total=total)

    async def chain(self, owner: str, task_id: str) -> Sequence[Task]:
        found = await self.journal.query(partial(queries.chain, owner=owner, task_id=task_id))
        return found or _require_found(None, f"Task {task_id} not found")

    async def records(self, owner: str, scope: Scope, after: int = 0, *, inline: bool = False) -> Sequence[Record]:
        return [record async for some in self.log(owner, scope, after, inline=inline) for record in some]

    def log(
        self, owner: str, scope: Scope, after: int = 0, *, inline: bool = False
    ) -> AsyncGenerator[Sequence[Record]]:
        return self._reader.log(owner, scope, after, inline=inline)

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
        found = await self.journal.query(partial(queries.file, owner=owner, blob=blob))
        return await self._blobs.load(_require_found(found, "No such file"))

    async def file_pieces(self, owner: str, blob: str) -> tuple[FilePart, AsyncGenerator[bytes]]:
        found = _require_found(await self.journal.query(partial(queries.file, owner=owner, blob=blob)), "No such file")
        size = await self._blobs.size(blob)
        return found.replace(size=size), self._blobs.pieces(blob)

    # Webhooks

    async def set_webhook(self, owner: str, webhook: Webhook) -> None:
        task = await self.task(owner, webhook.task_id)
        await self._fetcher.check(webhook.url)
        pk, seq = await self.journal.write(
            partial(_set_webhook, owner=owner, task=task, hook=webhook, limits=self._limits)
        )
        await self._follow(Due(owner, task.thread_id, pk, webhook, seq), task)

    async def webhooks(self, owner: str, task_id: str) -> Sequence[Webhook]:
        await self.task(owner, task_id)
        return await self.journal.query(partial(queries.webhooks, owner=owner, task_id=task_id))

    async def delete_webhook(self, owner: str, task_id: str, webhook_id: str) -> bool:
        await self.task(owner, task_id)
        self._deliverer.forget(owner, task_id, webhook_id)
        return await self.journal.write(partial(_delete_webhook, owner=owner, task_id=task_id, webhook_id=webhook_id))

    async def _follow(self, due: Due, task: Task) -> None:
        protocol = self._webhook_protocols.get(due.webhook.dialect)
        name = task.thread_id
        if protocol is not None:
            name = (await self.aliases(due.owner, protocol, [name])).get(name, name)
        self._deliverer.follow(due, task, name, partial(self.read, inline=True))

    async def fetch(self, url: str, received: Callable[[int], None]) -> bytes:
        return await self._fetcher.get(url, received)


def _forwarded_headers(fronted: Fronted | None, headers: Mapping[str, str]) -> Mapping[str, str]:
    """Of a request's headers, those that the agent's settings let through to its server."""
    if not headers or fronted is None:
        return {}
    return {name: value for name, value in headers.items() if name in fronted.forward}


def _require_found(value: T | None, message: str) -> T:
    if value is None:
        raise FaultError(FaultCode.NOT_FOUND, message)
    return value


def _instance(tx: Transaction) -> str:
    instance = read_meta(tx.connection, "instance")
    if instance is None:
        instance = str(uuid4())
        write_meta(tx.connection, "instance", instance)
    return instance


def _set_webhook(tx: Transaction, owner: str, task: Task, hook: Webhook, limits: Limits) -> tuple[int, int]:
    """The key of the thread, and the seq that the webhook begins after."""
    state = tx.need_thread(owner, task.thread_id)
    command.insert_webhook(tx, state, task.task_id, hook, state.seq, limits)
    return state.pk, state.seq


def _delete_webhook(tx: Transaction, owner: str, task_id: str, webhook_id: str) -> bool:
    table = table_of(WebhookRow)
    deleted = tx.connection.execute(
        table.delete().where(table.c.owner == owner, table.c.task_id == task_id, table.c.webhook_id == webhook_id)
    )
    return deleted.rowcount > 0


def _as_before(known: Artifact, added: ArtifactAdded) -> Artifact:
    """What was uploaded before under the key of this upload."""
    if (known.parts, known.name, known.folder) != ((added.part,), added.name, added.folder):
        raise FaultError(FaultCode.INVALID, "Another file was uploaded with this key")
    return known
