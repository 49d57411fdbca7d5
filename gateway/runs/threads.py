"""Commands on threads: create, change, copy, upload, prune and erase."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, Protocol, runtime_checkable

from babelgate.canonical.history import StateHistory
from babelgate.canonical.hub import StateUpdate, ThreadChange
from babelgate.canonical.message import FilePart
from babelgate.canonical.thread import Artifact, Run, Thread
from babelgate.canonical.value import JsonObject
from babelgate.gateway.ids import new_id
from babelgate.gateway.runs import thread_commands
from babelgate.gateway.runs.engine import Engine
from babelgate.gateway.runs.retention import Idle
from babelgate.gateway.runs.state_updates import StateUpdates
from babelgate.gateway.runs.uploads import Uploads
from babelgate.gateway.settings.model import Limits
from babelgate.gateway.storage import audit, deletion, pruning
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.reads import JournalReads
from babelgate.gateway.storage.size import check_size


@runtime_checkable
class PausedCalls(Protocol):
    """Agent that keeps a paused call in memory, or in a process, while its question is open."""

    def forget(self, owner: str, task_id: str) -> None:
        """Drop the paused call of a task that has ended, if there is one."""


class ThreadCommands:
    """Commands of callers on threads. Caches and running agents are updated after a commit even if the caller
    disconnects."""

    def __init__(
        self,
        journal: Journal,
        reads: JournalReads,
        engine: Engine,
        uploads: Uploads,
        state_updates: StateUpdates,
        in_process_agents: Callable[[], Sequence[PausedCalls]],
        limits: Callable[[], Limits],
        long_thread_erased: asyncio.Event,
    ) -> None:
        """Create the commands.

        `in_process_agents` and `limits` return those of the current generation. `long_thread_erased` is set when a
        thread was erased whose log is so long that the retention sweep has to erase the rest.
        """
        self._journal = journal
        self._reads = reads
        self._engine = engine
        self._uploads = uploads
        self._state_updates = state_updates
        self._in_process_agents = in_process_agents
        self._limits = limits
        self._long_thread_erased = long_thread_erased

    async def create(
        self, owner: str, change: ThreadChange, thread_id: str | None, if_exists: Literal["raise", "return"]
    ) -> Thread:
        """Create a thread without a run (`babelgate.canonical.hub.Hub.create_thread`)."""
        self._check_change(change)
        return await self._journal.write(thread_commands.create, owner, thread_id, new_id(), change, if_exists)

    async def change(self, owner: str, thread_id: str, change: ThreadChange) -> Thread:
        """Change the metadata and settings of a thread (`babelgate.canonical.hub.Hub.change_thread`)."""
        self._check_change(change)
        return await self._journal.write(thread_commands.change, owner, thread_id, change, self._limits().metadata)

    def _check_change(self, change: ThreadChange) -> None:
        check_size(self._limits().metadata, change.metadata)
        check_size(self._limits().input, change.config, change.extra)

    async def copy(self, owner: str, thread_id: str) -> Thread:
        """Create a thread with the metadata and revisions of another one
        (`babelgate.canonical.hub.Hub.copy_thread`)."""
        history = await self._reads.snapshot(owner, thread_id, StateHistory, partial(StateHistory, thread_id, owner))
        revisions = history.all()[::-1]
        names = {revision.checkpoint_id: new_id() for revision in revisions}
        return await self._journal.write(thread_commands.copy, owner, thread_id, new_id(), revisions, names)

    async def update_state(self, owner: str, update: StateUpdate) -> str:
        """Commit a revision of a thread's state, and return its checkpoint id
        (`babelgate.canonical.hub.Hub.update_state`)."""
        check_size(self._limits().input, update.values, update.messages)
        return await self._state_updates.apply(owner, update)

    async def upload(self, owner: str, thread_id: str, file: FilePart, folder: str | None, key: str | None) -> Artifact:
        """Store a file on a thread as an input of its next run (`babelgate.canonical.hub.Hub.upload`)."""
        return await self._uploads.add(owner, thread_id, file, folder, key)

    async def delete(self, owner: str, thread_id: str) -> None:
        """Erase a thread with its log and files (`babelgate.canonical.hub.Hub.delete_thread`)."""
        await self._erase(
            owner,
            thread_id,
            self._journal.write_audited(
                audit.deletion("thread", thread_id, owner), deletion.erase_thread, owner, thread_id
            ),
        )

    async def erase_expired(self, thread: Thread, pk: int, seq: int) -> bool:
        """Erase a thread that has expired, if `seq` is still the number of its newest record. `pk` is the key of its
        row. Return True if the thread was erased."""
        owner, thread_id = thread.owner, thread.thread_id
        commit = self._journal.write(deletion.erase_unchanged, pk, owner, thread_id, seq)
        return await self._erase(owner, thread_id, commit)

    async def erase_idle(self, idle: Idle) -> bool:
        """Erase a thread unless it was used since the sweep has read `idle`. Return True if the thread was erased."""
        commit = self._journal.write(
            deletion.erase_unchanged, idle.pk, idle.owner, idle.thread_id, idle.seq, unfinished=idle.unfinished
        )
        return await self._erase(idle.owner, idle.thread_id, commit)

    async def _erase(self, owner: str, thread_id: str, commit: "asyncio.Future[deletion.Erased | None]") -> bool:
        commit.add_done_callback(partial(self._forget, owner, thread_id))
        return await asyncio.shield(commit) is not None

    def _forget(self, owner: str, thread_id: str, commit: "asyncio.Future[deletion.Erased | None]") -> None:
        """Remove an erased thread from memory after its commit: close its readers, and stop its agent."""
        erased = None if commit.exception() is not None else commit.result()
        if erased is None:
            return
        self._reads.handle_erase(owner, thread_id, erased)
        self._journal.channels.close(erased.pk)
        self._engine.exchanges.forget_thread(erased.pk)
        if erased.long:
            self._long_thread_erased.set()
        for task_id in erased.tasks:
            self.forget_paused(owner, task_id)
        if erased.running is not None:
            self._engine.forget_run(erased.pk, erased.running)

    @property
    def has_in_process_agents(self) -> bool:
        """True if any agent runs in this process."""
        return bool(self._in_process_agents())

    def forget_paused(self, owner: str, task_id: str) -> None:
        """Drop the paused calls that agents in this process keep for a task that has ended."""
        for agent in self._in_process_agents():
            agent.forget(owner, task_id)

    async def prune(self, owner: str, thread_id: str) -> None:
        """Delete all revisions of a thread except the newest (`babelgate.canonical.hub.Hub.prune_thread`)."""
        while (plan := await pruning.make_plan(self._reads, owner, thread_id)) is not None:
            commit = self._journal.write_audited(
                audit.deletion("state", thread_id, owner), pruning.prune, owner, thread_id, plan
            )
            commit.add_done_callback(self._drop_cached_log)
            if await asyncio.shield(commit) is not None:
                return

    async def change_run(self, owner: str, run_id: str, metadata: JsonObject) -> Run:
        """Replace the metadata of an ended run (`babelgate.canonical.hub.Hub.change_run`)."""
        check_size(self._limits().metadata, metadata)
        return await self._journal.write(thread_commands.change_run, owner, run_id, metadata)

    async def remove_run(self, owner: str, run_id: str) -> None:
        """Hide an ended run and delete its content (`babelgate.canonical.hub.Hub.remove_run`)."""
        commit = self._journal.write_audited(audit.deletion("run", run_id, owner), deletion.remove_run, owner, run_id)
        commit.add_done_callback(self._drop_cached_log)
        await asyncio.shield(commit)

    def _drop_cached_log(self, commit: "asyncio.Future[int] | asyncio.Future[int | None]") -> None:
        """Drop the records of a thread that are cached in memory, after a commit that has changed old records."""
        if commit.exception() is None and (pk := commit.result()) is not None:
            self._journal.channels.get(pk).forget()
            self._reads.forget_log(pk)
