"""Queries of the hub (the read model). They change nothing.

Rows that changed recently come from memory, all others from the database."""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence, Set
from functools import partial
from typing import TypeVar

from babelgate.canonical.event import Record, RunCreated
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.history import StateHistory
from babelgate.canonical.hub import (
    RunFilter,
    RunPage,
    Scope,
    TaskFilter,
    TaskPage,
    ThreadFilter,
    ThreadOrder,
    Turn,
    Webhook,
)
from babelgate.canonical.json import has_members
from babelgate.canonical.listed import Listed
from babelgate.canonical.message import FilePart
from babelgate.canonical.thread import Interrupt, Run, Task, Thread, ThreadView
from babelgate.gateway.storage import listing, queries, thread_values
from babelgate.gateway.storage.run_page import run_page
from babelgate.gateway.storage.subscription import LogReader
from babelgate.gateway.storage.turns import find_records, find_turns, read_turns, removed_messages

T = TypeVar("T")


class JournalReads(LogReader):
    """Implementation of `babelgate.canonical.hub.Reads` over the journal. It inherits the reads of logs from
    `LogReader`."""

    async def task(self, owner: str, task_id: str) -> Task:
        return _require_found(await self._journal.row(Task, owner, task_id), f"Task {task_id} not found")

    async def tasks(self, owner: str, where: TaskFilter, *, limit: int, cursor: str | None = None) -> TaskPage:
        places, next_cursor, total = await self._journal.query(listing.tasks, owner, where, limit, cursor)
        tasks = listing.create_listing(self._journal, places, partial(listing.tasks_at, owner=owner))
        return TaskPage(tasks=tasks, next_cursor=next_cursor, total=total)

    async def tasks_active_at(
        self, owner: str, moment: int, *, slack: int, limit: int, agents: Set[str] | None = None
    ) -> Sequence[Task]:
        return await self._journal.query(listing.tasks_active_at, owner, moment, slack, limit, agents)

    async def chain(self, owner: str, task_id: str) -> Sequence[Task]:
        chain = await self._journal.query(queries.chain, owner, task_id)
        return chain or _require_found(None, f"Task {task_id} not found")

    async def open_interrupts(self, owner: str, task_id: str) -> Sequence[Interrupt]:
        return await self._journal.query(queries.open_interrupts, owner, task_id)

    async def known_interrupts(self, owner: str, thread_id: str, interrupt_ids: Collection[str]) -> Set[str]:
        return await self._journal.query(queries.known_interrupts, owner, thread_id, interrupt_ids)

    async def run(self, owner: str, run_id: str) -> Run:
        return _require_found(await self._journal.row(Run, owner, run_id), f"Run {run_id} not found")

    async def run_input(self, owner: str, run: Run) -> RunCreated:
        """Return the `RunCreated` event of a run, which has its input. Raises not_found."""
        key = await self.key(owner, run.thread_id)
        for record in await self._journal.page(key, run.first_seq - 1, 1):
            if isinstance(record.event, RunCreated):
                return record.event
        raise FaultError(FaultCode.NOT_FOUND, f"Run {run.run_id} not found")

    async def runs(self, owner: str, where: RunFilter, *, limit: int, offset: int = 0) -> Listed[Run]:
        places = await self._journal.query(listing.runs, owner, where, limit=limit, offset=offset)
        return listing.create_listing(self._journal, places, partial(listing.runs_at, owner=owner))

    async def last_begun(self, owner: str, thread_id: str, *, ended_before: int | None = None) -> Run | None:
        pk = await self.key(owner, thread_id)
        return await self._journal.query(queries.last_begun, pk, ended_before)

    async def run_page(self, owner: str, thread_id: str, agent: str, *, limit: int, offset: int = 0) -> RunPage | None:
        pk = await self.key(owner, thread_id)
        return await self._journal.query(run_page, pk, agent, limit, offset)

    async def turns(
        self, owner: str, thread_id: str, *, limit: int, beyond: int | None = None, descending: bool = True
    ) -> Sequence[Turn]:
        pk = await self.key(owner, thread_id)
        return await self._journal.query(find_turns, pk, limit=limit, beyond=beyond, descending=descending)

    async def turn_log(
        self, owner: str, thread_id: str, turns: Sequence[Turn], *, inline: bool = False
    ) -> AsyncGenerator[Sequence[Record]]:
        if not turns:
            return
        pk = await self.key(owner, thread_id)
        wanted = await self._journal.query(find_records, pk, owner, turns)
        after, has_more = 0, True
        while has_more:
            records, has_more = await self._journal.query(read_turns, pk, wanted, after)
            after = records[-1].seq if records else after
            batches = self._with_files(records, inline=inline)
            del records  # frees them before the next page is read
            async for batch in batches:
                yield batch

    async def removed_messages(self, owner: str, thread_id: str) -> Set[str]:
        pk = await self.key(owner, thread_id)
        return await self._journal.query(removed_messages, pk)

    async def thread(self, owner: str, thread_id: str) -> Thread:
        return _require_found(await self._journal.row(Thread, owner, thread_id), f"Thread {thread_id} not found")

    async def thread_view(self, owner: str, thread_id: str) -> ThreadView:
        view = self._journal.cached_view(owner, thread_id)
        if view is None:
            view = await self._journal.query(listing.thread_view, owner, thread_id)
        return _require_found(view, f"Thread {thread_id} not found")

    async def threads(
        self,
        owner: str,
        where: ThreadFilter,
        *,
        limit: int,
        offset: int = 0,
        order: ThreadOrder = "created_at",
        descending: bool = True,
        shared: Set[int] = frozenset(),
    ) -> Listed[ThreadView]:
        among = await self._find_by_values(owner, where)
        places = await self._journal.query(
            listing.threads,
            owner,
            where,
            among,
            shared,
            limit=limit,
            offset=offset,
            order=order,
            descending=descending,
        )
        return listing.create_listing(self._journal, places, listing.threads_at)

    async def count_threads(self, owner: str, where: ThreadFilter, shared: Set[int] = frozenset()) -> int:
        among = await self._find_by_values(owner, where)
        return await self._journal.query(listing.count_threads, owner, where, among, shared)

    async def _find_by_values(self, owner: str, where: ThreadFilter) -> Set[int] | None:
        """Return the database keys of the threads whose state has the values of a filter, or None if the filter has no
        values.

        The values of threads that are missing in the index are computed from their logs, and added to the index."""
        if not where.values:
            return None
        threads = await self._journal.query(thread_values.find, owner, where.values)
        computed: list[thread_values.ThreadValues] = []
        for pk, thread_id in threads.unknown:
            values = await self._values_of(owner, pk, thread_id)
            if values is None:
                continue
            if has_members(values.values, where.values):
                threads.matching.add(pk)
            computed.append(values)
            if len(computed) == thread_values.BATCH:
                await self._journal.write(thread_values.keep, owner, computed)
                computed = []
        if computed:
            await self._journal.write(thread_values.keep, owner, computed)
        return threads.matching

    async def _values_of(self, owner: str, pk: int, thread_id: str) -> thread_values.ThreadValues | None:
        """Compute the values of a thread's newest state. Return None if it was erased meanwhile or is larger than
        `limits.thread`."""
        try:
            history = await self.snapshot(owner, thread_id, StateHistory, partial(StateHistory, thread_id, owner))
        except FaultError as error:
            if error.fault.code not in (FaultCode.NOT_FOUND, FaultCode.TOO_LARGE):
                raise
            return None
        return thread_values.ThreadValues(pk, thread_id, history.seq, thread_values.values_of(history))

    async def need_revision(self, owner: str, thread_id: str | None, checkpoint_id: str) -> None:
        """Raise not_found if the thread has no revision with this id, or if `thread_id` is None."""
        known_id = _require_found(thread_id, f"Checkpoint {checkpoint_id} not found")
        history = await self.snapshot(owner, known_id, StateHistory, partial(StateHistory, known_id, owner))
        _require_found(history.get(checkpoint_id), f"Checkpoint {checkpoint_id} not found")

    async def thread_of(self, owner: str, protocol: str, agent: str, alias: str) -> str | None:
        return await self._journal.query(queries.thread_of, owner, protocol, agent, alias)

    async def aliases(self, owner: str, protocol: str, thread_ids: Sequence[str]) -> Mapping[str, str]:
        return await self._journal.query(queries.aliases, owner, protocol, thread_ids)

    async def records(self, owner: str, scope: Scope, after: int = 0, *, inline: bool = False) -> Sequence[Record]:
        return [record async for some in self.log(owner, scope, after, inline=inline) for record in some]

    async def agents_of(self, owner: str, thread_id: str) -> Sequence[str]:
        """Return the names of the agents that have run on a thread, or an empty list if there is no such thread."""
        return await self._journal.query(queries.agents_of, owner, thread_id)

    async def file(self, owner: str, blob: str, agents: Set[str] | None = None) -> FilePart:
        """Return the file with the hash `blob`, with its bytes, if a thread of the owner refers to it. Raises
        not_found.

        With `agents`, only threads count on which no other agents ran."""
        part = await self._journal.query(listing.file, owner, blob, agents)
        return await self.load_file(_require_found(part, "No such file"))

    async def has_file(self, owner: str, blob: str, agents: Set[str] | None = None) -> bool:
        """Return True if `file` with the same arguments would find the file."""
        return await self._journal.query(listing.file, owner, blob, agents) is not None

    async def load_file(self, part: FilePart) -> FilePart:
        """Return the file part with its bytes in `inline`. Raises not_found if the file was deleted."""
        return await self._blobs.load(part)

    async def file_pieces(
        self, owner: str, blob: str, agents: Set[str] | None = None
    ) -> tuple[FilePart, AsyncGenerator[bytes]]:
        """Return the description of the file with the hash `blob`, and a generator of its bytes in pieces. Raises
        not_found.

        A thread of the owner must refer to it. With `agents`, only threads count on which no other agents ran."""
        part = _require_found(await self._journal.query(listing.file, owner, blob, agents), "No such file")
        return await self.load_file_pieces(part)

    async def load_file_pieces(self, part: FilePart) -> tuple[FilePart, AsyncGenerator[bytes]]:
        """Return the file part with its size set, and a generator of its bytes in pieces. Raises not_found if it was
        deleted."""
        assert part.blob is not None
        size = await self._blobs.size(part.blob)
        return part.replace(size=size), self._blobs.pieces(part.blob)

    async def webhooks(self, owner: str, task_id: str) -> Sequence[Webhook]:
        await self.task(owner, task_id)
        return await self._journal.query(queries.webhooks, owner, task_id)


def _require_found(value: T | None, message: str) -> T:
    if value is None:
        raise FaultError(FaultCode.NOT_FOUND, message)
    return value
