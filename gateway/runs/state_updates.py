"""State updates (`update_state`): revisions of a thread's state that callers create.

The gateway commits the revision itself, or the agent that keeps the state of the thread creates it.
"""

from collections.abc import Awaitable, Callable, Sequence, Set
from dataclasses import replace
from functools import partial

from babelgate.canonical.agent import Invocation, Stateful
from babelgate.canonical.fault import FaultError
from babelgate.canonical.history import StateHistory
from babelgate.canonical.hub import RunFilter, StateUpdate
from babelgate.canonical.run_input import RunInput
from babelgate.canonical.thread import Run
from babelgate.gateway.ids import new_id
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.runs import thread_commands
from babelgate.gateway.runs.invocation import upstream_of
from babelgate.gateway.runs.uploads import keep_messages
from babelgate.gateway.storage.blobs import Blobs
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.reads import JournalReads
from babelgate.gateway.storage.run_rows import bound_runs


class StateUpdates:
    """Commands that create a revision of a thread's state for a caller."""

    def __init__(
        self, journal: Journal, reads: JournalReads, blobs: Blobs, reach: Callable[[str], Awaitable[RegisteredAgent]]
    ) -> None:
        self._journal = journal
        self._reads = reads
        self._blobs = blobs
        self._reach = reach

    async def apply(self, owner: str, update: StateUpdate) -> str:
        """Commit a revision for a caller, and return its checkpoint id (`babelgate.canonical.hub.Hub.update_state`)."""
        if update.checkpoint is not None:
            await self._reads.need_revision(owner, update.thread_id, update.checkpoint)
        if (state_owner := await self._find_state_owner(owner, update)) is not None:
            return await self._update_by_owner(owner, update, *state_owner)
        checkpoint_id = new_id()
        stored = replace(update, messages=await keep_messages(self._blobs, update.messages))
        await self._journal.write(thread_commands.update, owner, stored, checkpoint_id)
        return checkpoint_id

    async def _find_state_owner(self, owner: str, update: StateUpdate) -> tuple[str, Stateful] | None:
        """Return the name and the client of the agent that keeps the thread's state, or None if the gateway keeps it.

        This is the agent of the thread's last run, if it is stateful. On a thread without runs it is the agent that the
        update names.
        """
        await self._reads.thread(owner, update.thread_id)
        runs = await (await self._reads.runs(owner, RunFilter(thread_id=update.thread_id), limit=1)).all()
        name = runs[0].agent if runs else update.agent
        try:
            registered = None if name is None else await self._reach(name)
        except FaultError:
            return None
        if registered is None or not registered.info.stateful or not isinstance(registered.agent, Stateful):
            return None
        return registered.info.name, registered.agent

    async def _update_by_owner(self, owner: str, update: StateUpdate, name: str, agent: Stateful) -> str:
        key = await self._reads.key(owner, update.thread_id)
        runs = await self._journal.query(bound_runs, key, name)
        call = Invocation(
            owner=owner,
            agent=name,
            thread_id=update.thread_id,
            task_id="",
            run_id="",
            cause="update",
            input=RunInput(
                messages=await keep_messages(self._blobs, update.messages),
                data=update.values or None,
                checkpoint=update.checkpoint,
            ),
            upstream=upstream_of(runs, ""),
        )
        saved = await agent.update_state(call, removed_ids=update.removed_ids, as_node=update.as_node)
        history = await self._reads.snapshot(
            owner, update.thread_id, StateHistory, partial(StateHistory, update.thread_id, owner)
        )
        change = history.difference(saved.parent_id or history.head_id, saved.values or {})
        shorter = None if change is None else saved.replace(values=None, change=change)
        save = partial(thread_commands.save, agent=name, elsewhere=_find_elsewhere(runs, call.upstream.get("thread")))
        await self._journal.write(save, owner, update.thread_id, saved, shorter, history.seq)
        return saved.checkpoint_id or ""


def _find_elsewhere(runs: Sequence[Run], thread: str | None) -> Set[str]:
    """Return the ids of tasks that wait for an answer on another thread of the agent's server than `thread`, whose
    state is being changed."""
    threads = {run.task_id: run.upstream.get("task", thread) for run in runs}  # oldest first: the newest run decides
    return {task_id for task_id, task_thread in threads.items() if task_thread != thread}
