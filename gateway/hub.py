"""The hub: what servers call. It makes new ids, hands commands to the journal, and starts what was committed."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from shutil import disk_usage
from time import monotonic
from types import MappingProxyType
from typing import Any, Final, Literal
from uuid import uuid4

from msgspec.structs import replace

from babelgate.canonical.agent import AgentInfo, Introspectable
from babelgate.canonical.assistant import Assistants
from babelgate.canonical.cron import Cron
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.history import StateHistory
from babelgate.canonical.hub import (
    Answers,
    Receipt,
    StateUpdate,
    Submission,
    ThreadChange,
    Webhook,
)
from babelgate.canonical.message import FilePart
from babelgate.canonical.run_input import RunInput
from babelgate.canonical.store import Store
from babelgate.canonical.thread import Artifact, Run, Task, Thread
from babelgate.canonical.value import Json, JsonObject
from babelgate.gateway.agents.python.agent import InProcess
from babelgate.gateway.agents.registry import Registry
from babelgate.gateway.background import Failures, Tasks
from babelgate.gateway.clock import Clock
from babelgate.gateway.ids import new_id
from babelgate.gateway.outbound import Fetcher
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.runs import submission as command
from babelgate.gateway.runs import thread_commands
from babelgate.gateway.runs.cluster import Cluster
from babelgate.gateway.runs.crons import Crons
from babelgate.gateway.runs.engine import Engine
from babelgate.gateway.runs.expiry import Expiry
from babelgate.gateway.runs.forks import Base, find_base
from babelgate.gateway.runs.output_schema import find_schema_error
from babelgate.gateway.runs.recovery import Recovery
from babelgate.gateway.runs.retention import Idle, Retention
from babelgate.gateway.runs.retry_schedule import RetrySchedule
from babelgate.gateway.runs.signature import Signer
from babelgate.gateway.runs.state_updates import StateUpdates
from babelgate.gateway.runs.submission import Cancelled, Ids, Submitted
from babelgate.gateway.runs.uploads import Uploads, keep_messages
from babelgate.gateway.runs.webhooks import Deliverer, WriterFactory, register
from babelgate.gateway.settings.model import Limits, Webhooks
from babelgate.gateway.settings.model import Retention as Policy
from babelgate.gateway.storage import assistants, deletion, items, pruning, queries
from babelgate.gateway.storage.blobs import Blobs
from babelgate.gateway.storage.checkpoints import Attached
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.notices import Remote
from babelgate.gateway.storage.reads import Reads
from babelgate.gateway.storage.size import check_size
from babelgate.gateway.storage.transaction import Published, Transaction, read_meta, write_meta
from babelgate.gateway.storage.unavailable import RETRY_AFTER
from babelgate.gateway.storage.webhook_rows import delete_webhook

_KEPT = Policy()
"""For ever."""
_RETRIES: Final = Webhooks().retries

_SWEEP = 3600
"""Seconds between sweeps of the artifact store, and how old an unnamed file must be to go."""

_EXPIRY = 30
"""Beats of a node that leads from one look at the threads that expire to the next."""

_LATEST = 2**62
"""Microseconds that a start may be delayed by: with the time of the day, it is a number that a database can hold."""


ROOM: Final = 16 * 2**20
"""Bytes that must be free on a disk: less than one large run."""
_SHARED_WINDOW: Final = 0.005
"""Seconds for which a node of several gathers tokens, where the settings do not say: its readers may be at others, and
hear of what it stores a notice later."""
_ANSWER: Final = 2.0
"""Seconds within which `ready` answers, whatever the database does: who asks has a timeout, too. Chosen."""
_PROBE: Final = 5.0
"""Seconds for which a write that was tried says that others can be: anybody may ask."""


_STOPPING: Final = 20.0
"""Seconds that a stop takes at most, where the caller does not say. Chosen, not measured."""


CronSubmit = Callable[[Any, str, Cron, str], Awaitable[object]]
"""Hub, owner, cron and the id of the run → its submission, in the words of the cron's protocol."""


class Hub:
    _draining = False
    """No more runs are started."""
    _stopping = False
    """Connections are closed."""

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
        webhook_secret: str | None = None,
        webhook_retries: Sequence[float] = _RETRIES,
        crons: Mapping[str, CronSubmit] = MappingProxyType({}),
        power: bool = False,
        pooler: str | None = None,
        standby: bool = False,
        cluster: str | None = None,
        retention: Policy = _KEPT,
        patience: float = 60.0,
        clock: Clock | None = None,
    ) -> None:
        """`pooler` = the URL by which PostgreSQL is read. `standby` = wait for the database while another gateway uses
        it. `cluster` = share it with others, as the node of this name. `patience` = `recovery.patience` of the
        settings, in seconds."""
        self.registry = registry
        self._standby = standby
        self.instance = ""
        """A UUID, made at the first start of a database and kept in it."""
        self._limits = limits
        self._blobs = blobs
        self._fetcher = fetcher
        self._clock = clock or Clock()
        self._swept = self._clock.now()
        self.journal = Journal(
            journal_url,
            power=power,
            pooler=pooler,
            clock=self._clock,
            on_commit=self._handle_commits,
            shared=cluster is not None,
            on_remote=self._handle_remotes,
        )
        self.reads = Reads(self.journal, blobs, limits.inline, limits.thread)
        self.engine = self._make_engine(is_shared=cluster is not None, patience=patience)
        signer = None if webhook_secret is None else Signer(webhook_secret)
        schedule = RetrySchedule(webhook_retries)
        self._deliverer = Deliverer(
            self.journal, self.reads, fetcher, writers, webhook_protocols, schedule, self._clock, signer
        )
        self._recovery = Recovery(self.journal, self.engine, self._deliverer, registry.get)
        self._uploads = Uploads(self.journal, self.reads, blobs)
        self._state_updates = StateUpdates(self.journal, self.reads, blobs, registry.get_reachable)
        self._probed = -_PROBE
        """When a write was last tried for `ready`, by the monotonic clock."""
        self._probing: asyncio.Task[str | None] | None = None
        self._tasks = Tasks()
        self._expiry = Expiry(self.journal, limits, self._erase_expired, self.prune_thread, self._clock)
        self.retention = Retention(self.journal, retention, self._erase_idle, self._clock, self._leads)
        self._in_process_agents = [each.agent for each in registry.all() if isinstance(each.agent, InProcess)]
        self._items = items.Store(self.journal, self._clock, limits.input)
        self.store: Store = self._items
        self._assistants = assistants.Assistants(self.journal, self._clock, limits)
        self.assistants: Assistants = self._assistants
        by_protocol = {protocol: partial(submit, self) for protocol, submit in crons.items()}
        self.crons = Crons(self.journal, self._clock, limits, by_protocol, fetcher.check, self._leads)
        self.cluster = None if cluster is None else self._make_cluster(cluster)
        """None = the database is this gateway's alone."""

    def _make_engine(self, *, is_shared: bool, patience: float) -> Engine:
        limits = self._limits
        return Engine(
            self.journal,
            self._blobs,
            self.reads,
            self.registry.get,
            self.registry.get_reachable,
            run_timeout=limits.run,
            cancel_grace=limits.cancel_grace,
            event_limit=limits.event,
            output_limit=limits.output,
            attempts=limits.attempts,
            patience=patience,
            window=limits.window if not is_shared or "window" in limits.model_fields_set else _SHARED_WINDOW,
        )

    def _make_cluster(self, name: str) -> Cluster:
        return Cluster(
            self.journal,
            name,
            self.engine,
            self._recovery,
            self._clock,
            lead=self._lead,
            forget_paused=self._forget_paused,
        )

    # Starting and stopping

    async def start(self) -> None:
        """Open the journal and take up what the last gateway left: queued runs stay queued in order, paused tasks
        stay as they are, active runs are re-attached to, started again, or ended with a fault that says why."""
        self._blobs.secure()
        await self.journal.open(wait=self._standby)
        for registered in self.registry.all():
            if isinstance(registered.agent, Attached):
                registered.agent.attach(self.journal, self._items)
        try:
            self.instance = await self.journal.write(_instance)
            await self._assistants.start()
            if self.cluster is None:
                await self._recover()
                await self._expiry.start()
            else:
                await self.cluster.start()
        except BaseException:
            if self.cluster is not None:
                await self.cluster.leave()
            await self.journal.close()
            raise
        self.crons.start()
        self.retention.start()
        self._tasks.spawn(self._sweep_forever(), "sweep")

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    async def drain(self) -> None:
        """Refuse new runs, start none of those that wait, and wait until the running ones have ended."""
        self._draining = True
        if self.cluster is not None:
            self.cluster.close()
        self.engine.slots.close()
        await self.crons.stop()
        await self.engine.drain()

    def close_readers(self) -> None:
        """End every subscription to the log. Responses that wait for more of it are cut off."""
        self._stopping = True
        self.journal.channels.close_all()
        self.reads.close()

    async def stop(self, seconds: float = _STOPPING) -> None:
        """Close subscriptions, release the runs, and commit the rest, in at most `seconds`.

        Every step has a share of the time that is left: neither an agent nor a database that hangs takes all of it.
        """
        self._draining = True
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds

        def share(part: float) -> float:
            return max(0.1, part * (until - loop.time()))

        self.close_readers()
        if self.cluster is not None:
            self.cluster.close()
        for each in (self.crons, self._expiry, self.retention, self._tasks, self._deliverer):
            await each.stop(share(0.1))
        await self.engine.stop(share(0.5))
        if self.cluster is not None:
            await self.cluster.leave(share(0.4))
        await self.journal.close(share(1.0))

    def _check_accepting(self) -> None:
        """Raises shutting_down."""
        if self._draining:
            raise FaultError(
                FaultCode.SHUTTING_DOWN,
                "The gateway is shutting down and starts no more runs. Send the request again.",
                retry_after=RETRY_AFTER,
            )

    async def ready(self) -> str | None:
        """None if the journal can be written to and the store of files can be used, else why not. A disk with hardly
        any room left counts as full before somebody's words do not fit."""
        if self._draining:
            return "the gateway is shutting down"
        for folder in {*self.journal.folders, *self._blobs.folders}:
            if folder.is_dir() and (free := disk_usage(folder).free) < ROOM:
                return f"the disk of {folder} has {free} bytes left"
        if self.journal.failure is None and monotonic() < self._probed + _PROBE:
            return None
        if self._probing is None or self._probing.done():
            self._probing = self._tasks.spawn(self._probe(), "probe")
        await asyncio.wait((self._probing,), timeout=_ANSWER)
        if not self._probing.done():
            return f"the database or the store of files does not answer within {_ANSWER:g} seconds"
        return None if self._probing.cancelled() else self._probing.result()

    async def _probe(self) -> str | None:
        """Return why nothing can be stored; None if it can."""
        if (why := await self._blobs.find_failure()) is not None:
            return why
        try:
            await self.journal.write(lambda tx: write_meta(tx.connection, "probe", str(self._clock.now())))
        except FaultError as error:
            return self.journal.failure or error.fault.message
        self._probed = monotonic()
        return None

    async def _recover(self) -> None:
        for pk, task_id in await self.journal.query(queries.open_tasks):
            self.reads.mark_open(pk, "task", task_id)
        live = await self.journal.query(queries.live_runs)
        for found in live:
            self.reads.mark_open(found.pk, "run", found.run.run_id)
        await self._recovery.take_up(live)
        self._recovery.deliver(await self.journal.query(queries.due_webhooks))

    async def _sweep_forever(self) -> None:
        failures = Failures("the sweep of files and items")

        async def run(sweep: Callable[[], Awaitable[object]]) -> None:
            try:
                await sweep()
            except FaultError:
                pass  # logged where it was raised
            except Exception as error:
                failures.note(error)

        while True:
            if self._leads():
                await run(self.sweep_files)
            await asyncio.sleep(_SWEEP)
            if self._leads():
                await run(self._items.sweep)

    async def sweep_files(self) -> int:
        """Remove the files that no event names, but for those that may be on their way into one. Returns how many."""
        # They are dated by the system's clock: that it was set forward since the last sweep does not make them old.
        now = self._clock.now()
        older = min(self._swept, now - _SWEEP * 1_000_000)
        self._swept = now
        used = await self.journal.query(queries.blobs_in_use)
        return await asyncio.to_thread(self._blobs.sweep, used, older / 1e6)

    def _handle_commits(self, published: Sequence[Published]) -> None:
        for each in published:
            ended = self.reads.handle_commit(each)
            self._expiry.handle_commit(each)
            if self.cluster is not None and self._in_process_agents:
                self.cluster.handle_commit(each)
            for task_id in ended:
                self._forget_paused(each.owner, task_id)
        self.reads.trim()

    # Among other nodes

    def _handle_remotes(self, remotes: Sequence[Remote]) -> None:
        if self.cluster is not None:
            self.cluster.handle_remotes(remotes)

    def _leads(self) -> bool:
        """Whether this gateway does what is to be done once, and not once a node. All of it may be done twice."""
        return self.cluster is None or self.cluster.leads

    def _lead(self, beats: int) -> None:
        self.crons.look()
        if beats % _EXPIRY == 0:
            self._tasks.spawn(self._expiry.start(), "expiry")

    # Agents

    def agents(self) -> Sequence[AgentInfo]:
        return [registered.info for registered in self.registry.all()]

    def agent(self, name: str) -> AgentInfo:
        return self.registry.get(name).info

    def introspectable_agent(self, name: str) -> Introspectable | None:
        agent = self.registry.get(name).agent
        return agent if isinstance(agent, Introspectable) else None

    async def _working(self, name: str) -> RegisteredAgent:
        registered = await self.registry.get_reachable(name)
        if registered.agent is None:
            raise registered.refuse()
        return registered

    def _find_agent(self, name: str) -> RegisteredAgent | None:
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
        return await self.journal.write(thread_commands.create, owner, thread_id, new_id(), change, if_exists)

    async def change_thread(self, owner: str, thread_id: str, change: ThreadChange) -> Thread:
        self._check_change(change)
        return await self.journal.write(thread_commands.change, owner, thread_id, change, self._limits.metadata)

    def _check_change(self, change: ThreadChange) -> None:
        check_size(self._limits.metadata, change.metadata)
        check_size(self._limits.input, change.config, change.extra)

    async def copy_thread(self, owner: str, thread_id: str) -> Thread:
        history = await self.reads.snapshot(owner, thread_id, StateHistory, partial(StateHistory, thread_id, owner))
        revisions = history.all()[::-1]
        names = {revision.checkpoint_id: new_id() for revision in revisions}
        return await self.journal.write(thread_commands.copy, owner, thread_id, new_id(), revisions, names)

    async def update_state(self, owner: str, update: StateUpdate) -> str:
        check_size(self._limits.input, update.values, update.messages)
        return await self._state_updates.apply(owner, update)

    async def upload(
        self, owner: str, thread_id: str, file: FilePart, folder: str | None = None, *, key: str | None = None
    ) -> Artifact:
        return await self._uploads.add(owner, thread_id, file, folder, key)

    # Runs

    async def submit(self, owner: str, submission: Submission) -> Receipt:
        """Raises invalid, shutting_down."""
        self._check_accepting()
        given = submission.input
        check_size(self._limits.input, given.messages, submission.history, given.config)
        check_size(self._limits.input, given.data)  # the same words, most often
        check_size(self._limits.metadata, given.metadata)
        check_size(self._limits.metadata, submission.thread_metadata)
        registered = await self._working(submission.agent)
        info, agent = registered.info, registered.info.name
        if submission.start_in is not None and not 0 <= submission.start_in <= _LATEST:
            raise FaultError(FaultCode.INVALID, "The delay before the start is negative or too long")
        if submission.webhook is not None:
            await self._fetcher.check(submission.webhook.url)
        check_size(self._limits.input, submission.state)
        if given.checkpoint is not None:
            await self.reads.need_revision(owner, submission.thread_id, given.checkpoint)
        ask = replace(submission, agent=agent, input=await self._keep_input(registered, given))
        ask, base = await find_base(self.reads, owner, ask)
        if ask.history:
            ask = replace(ask, history=await keep_messages(self._blobs, ask.history))
        if ask.state and ask.follow_up is not None:
            raise FaultError(FaultCode.INVALID, "The state cannot be changed for a task that is at work.")
        if ask.state and info.stateful:
            return await self._submit_changed(owner, ask, base)
        forks = base is not None or bool(ask.state)
        ids = _fork_ids() if forks else Ids(new_id(), new_id(), new_id(), new_id())
        reserved = self.engine.slots.reserve(agent)
        done = self.journal.write(
            command.submit, owner, ask, ids, self._limits, may_start=reserved, stateful=info.stateful, base=base
        )
        return await self._see_through(owner, agent, ask.webhook, reserved, done)

    async def _submit_changed(self, owner: str, ask: Submission, base: Base | None) -> Receipt:
        """Of an agent that keeps the state itself: it changes it first, on a thread that is there."""
        known = ask.thread_id or await self.reads.thread_of(owner, ask.protocol, ask.agent, ask.alias or "")
        is_new = known is None or not await self._has_thread(owner, known)
        left = replace(ask, thread_id=known)
        if is_new or base is not None:
            left = await self.journal.write(command.prepare, owner, ask, _fork_ids(), base)
        thread_id = left.thread_id
        assert thread_id is not None
        try:
            checkpoint = await self.update_state(
                owner,
                StateUpdate(
                    thread_id=thread_id,
                    values=left.state,
                    checkpoint=left.input.checkpoint,
                    as_node=left.as_node,
                    agent=left.agent,
                ),
            )
            given = left.input if left.input.checkpoint is None else left.input.replace(checkpoint=checkpoint)
            return await self.submit(owner, replace(left, input=given, fork=None, state={}))
        except BaseException:
            if is_new:
                await self.delete_thread(owner, thread_id)
                await self.journal.write(command.forget, owner, thread_id)
            raise

    async def _has_thread(self, owner: str, thread_id: str) -> bool:
        try:
            await self.reads.thread(owner, thread_id)
        except FaultError as error:
            if error.fault.code is not FaultCode.NOT_FOUND:
                raise
            return False
        return True

    async def answer(self, owner: str, answers: Answers) -> Receipt:
        self._check_accepting()
        check_size(self._limits.input, answers.input.messages, answers.input.config)
        check_size(self._limits.input, answers.values, answers.bare)
        check_size(self._limits.metadata, answers.input.metadata)
        task = await self.reads.task(owner, answers.task_id)
        if answers.webhook is not None:
            await self._fetcher.check(answers.webhook.url)
        given = replace(answers, input=await self._keep_input(self._find_agent(task.agent), answers.input))
        ids = Ids(new_id(), new_id(), new_id(), new_id())
        reserved = self.engine.slots.reserve(task.agent)
        done = self.journal.write(command.answer, owner, given, ids, self._limits, may_start=reserved)
        return await self._see_through(owner, task.agent, given.webhook, reserved, done)

    async def _see_through(
        self, owner: str, agent: str, webhook: Webhook | None, reserved: bool, done: "asyncio.Future[Submitted]"
    ) -> Receipt:
        """What is committed runs, whatever becomes of the caller meanwhile."""
        done.add_done_callback(partial(self._dispatch, owner, agent, webhook, reserved))
        return (await asyncio.shield(done)).receipt

    def _dispatch(
        self, owner: str, agent: str, webhook: Webhook | None, reserved: bool, done: "asyncio.Future[Submitted]"
    ) -> None:
        submitted = None if done.exception() is not None else done.result()
        if submitted is not None and webhook is not None:
            self._deliverer.follow(owner, replace(webhook, task_id=submitted.receipt.task_id))
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

    async def _keep_input(self, registered: RegisteredAgent | None, given: RunInput) -> RunInput:
        """The input as it is kept: files in the store, and of the headers those that the agent's server is sent."""
        headers = _forwarded_headers(registered, given.headers)
        return given.replace(headers=headers, messages=await keep_messages(self._blobs, given.messages))

    async def cancel(self, owner: str, task_id: str) -> Task:
        done = self.journal.write(command.cancel, owner, task_id)
        done.add_done_callback(self._stop_cancelled)
        return (await asyncio.shield(done)).task

    async def cancel_run(self, owner: str, run_id: str, *, rollback: bool = False) -> Run:
        done = self.journal.write(command.cancel_run, owner, run_id, rollback=rollback)
        done.add_done_callback(self._stop_cancelled)
        await asyncio.shield(done)
        return await self.reads.run(owner, run_id)

    def _stop_cancelled(self, done: "asyncio.Future[Cancelled]") -> None:
        if done.exception() is None and (stop := done.result().stop) is not None:
            self.engine.stop_run(*stop)

    async def delete_thread(self, owner: str, thread_id: str) -> None:
        await self._erase(owner, thread_id, self.journal.write(deletion.erase_thread, owner, thread_id))

    async def _erase_expired(self, thread: Thread, pk: int, seq: int) -> bool:
        """Whether nothing had happened on it since, so that it is gone."""
        owner, thread_id = thread.owner, thread.thread_id
        done = self.journal.write(deletion.erase_unchanged, pk, owner, thread_id, seq)
        return await self._erase(owner, thread_id, done)

    async def _erase_idle(self, idle: Idle) -> bool:
        done = self.journal.write(
            deletion.erase_unchanged, idle.pk, idle.owner, idle.thread_id, idle.seq, unfinished=idle.unfinished
        )
        return await self._erase(idle.owner, idle.thread_id, done)

    async def _erase(self, owner: str, thread_id: str, done: "asyncio.Future[deletion.Erased | None]") -> bool:
        done.add_done_callback(partial(self._forget_thread, owner, thread_id))
        return await asyncio.shield(done) is not None

    def _forget_thread(self, owner: str, thread_id: str, done: "asyncio.Future[deletion.Erased | None]") -> None:
        """Its readers end and its agent is stopped, whatever became of the caller meanwhile."""
        erased = None if done.exception() is not None else done.result()
        if erased is None:
            return
        self.reads.handle_erase(owner, thread_id, erased)
        self.journal.channels.close(erased.pk)
        if erased.long:
            self.retention.wake()
        for task_id in erased.tasks:
            self._forget_paused(owner, task_id)
        if erased.running is not None:
            self.engine.forget_run(erased.pk, erased.running)

    def _forget_paused(self, owner: str, task_id: str) -> None:
        """The task has ended: no agent keeps a paused call of it."""
        for agent in self._in_process_agents:
            agent.forget(owner, task_id)

    async def prune_thread(self, owner: str, thread_id: str) -> None:
        while (plan := await pruning.make_plan(self.reads, owner, thread_id)) is not None:
            done = self.journal.write(pruning.prune, owner, thread_id, plan)
            done.add_done_callback(self._reread)
            if await asyncio.shield(done) is not None:
                return

    async def change_run(self, owner: str, run_id: str, metadata: JsonObject) -> Run:
        check_size(self._limits.metadata, metadata)
        return await self.journal.write(thread_commands.change_run, owner, run_id, metadata)

    async def remove_run(self, owner: str, run_id: str) -> None:
        done = self.journal.write(deletion.remove_run, owner, run_id)
        done.add_done_callback(self._reread)
        await asyncio.shield(done)

    def _reread(self, done: "asyncio.Future[int] | asyncio.Future[int | None]") -> None:
        """What readers still had in memory of the log as it was is not shown any more."""
        if done.exception() is None and (pk := done.result()) is not None:
            self.journal.channels.get(pk).forget()
            self.reads.forget_log(pk)

    # Webhooks

    async def set_webhook(self, owner: str, webhook: Webhook) -> None:
        task = await self.reads.task(owner, webhook.task_id)
        await self._fetcher.check(webhook.url)
        done = self.journal.write(register, owner, task, webhook, self._limits)
        done.add_done_callback(partial(self._follow_webhook, owner, webhook))
        await asyncio.shield(done)

    def _follow_webhook(self, owner: str, webhook: Webhook, done: "asyncio.Future[None]") -> None:
        """A committed webhook is delivered to, even if its caller disconnects."""
        if done.exception() is None:
            self._deliverer.follow(owner, webhook)

    async def delete_webhook(self, owner: str, task_id: str, webhook_id: str) -> bool:
        await self.reads.task(owner, task_id)
        done = self.journal.write(delete_webhook, owner, task_id, webhook_id)
        done.add_done_callback(partial(self._forget_webhook, owner, task_id, webhook_id))
        return await asyncio.shield(done)

    def _forget_webhook(self, owner: str, task_id: str, webhook_id: str, done: "asyncio.Future[bool]") -> None:
        if done.exception() is None:
            self._deliverer.forget(owner, task_id, webhook_id)

    async def find_schema_error(self, schema: JsonObject, value: Json) -> str | None:
        return await find_schema_error(schema, value)

    async def fetch(self, url: str, received: Callable[[int], None]) -> bytes:
        return await self._fetcher.get(url, received)


def _forwarded_headers(registered: RegisteredAgent | None, headers: Mapping[str, str]) -> Mapping[str, str]:
    """Of a request's headers, those that the agent's settings let through to its server."""
    if not headers or registered is None:
        return {}
    return {name: value for name, value in headers.items() if name in registered.forward}


def _fork_ids() -> Ids:
    """With those of the revisions that a run may begin with."""
    return Ids(new_id(), new_id(), new_id(), new_id(), base=new_id(), state=new_id())


def _instance(tx: Transaction) -> str:
    instance = read_meta(tx.connection, "instance")
    if instance is None:
        instance = str(uuid4())
        write_meta(tx.connection, "instance", instance)
    return instance
