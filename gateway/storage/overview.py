"""Reads of the console, across the threads of one or all owners.

Each of them reads a limited number of rows, however much is stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.message import FilePart
from babelgate.gateway.storage.folded_log import FoldedRecord, RecordFolder, read_piece
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.log_pages import read_ends
from babelgate.gateway.storage.reads import JournalReads
from babelgate.gateway.storage.run_summaries import (
    RunCount,
    RunList,
    RunQuery,
    RunSummary,
    count_runs,
    list_runs,
    summarize_runs,
)
from babelgate.gateway.storage.thread_summaries import (
    ThreadList,
    ThreadQuery,
    ThreadSummary,
    list_threads,
    read_files,
    read_run_ids,
    summarize_thread,
)

T = TypeVar("T")

_ROOM: Final = 2 * 2**20
"""Maximum stored size of the records of one page, in bytes. Chosen: as for other pages of the log."""
_FOLDED_ROOM: Final = 4 * _ROOM
"""Maximum stored size of the records of one page whose deltas are joined, in bytes. Chosen: the JSON of joined deltas
is a fraction of their stored size."""


@dataclass(frozen=True, slots=True)
class RunRecords:
    """One page of the records of a run."""

    records: Sequence[FoldedRecord]
    next_seq: int | None
    """Sequence number to pass as `after` for the next page. None if this page ends with the newest record."""
    last_seq: int
    """Sequence number of the run's last record. While the run is active, that of the newest record of its thread."""
    has_ended: bool


@dataclass(frozen=True, slots=True)
class ThreadContent:
    """Ids of the newest runs of a thread, and the files that the thread refers to."""

    run_ids: Sequence[str]
    """Ids of the thread's newest runs, the oldest of them first."""
    files: Sequence[FilePart]


class Overview:
    """Reads for the console, by owner. For lists, None as the owner means all owners."""

    def __init__(self, journal: Journal, reads: JournalReads) -> None:
        self._journal = journal
        self._reads = reads

    async def runs(self, owner: str | None, query: RunQuery) -> RunList:
        """Return one page of runs, the newest first. Raises invalid for a malformed cursor."""
        return await self._journal.query(list_runs, owner, query)

    async def run(self, owner: str, run_id: str) -> RunSummary:
        """Return the summary of a run. Raises not_found, also if the run was removed."""
        found = await self._journal.query(summarize_runs, [(owner, run_id)])
        return _require_found(found[0] if found and not found[0].run.removed else None, f"Run {run_id} not found")

    async def count_runs(self, owner: str | None, since: int) -> tuple[Mapping[str, RunCount], bool]:
        """Return, for each agent, the number of runs and of failed runs that were created since a time.

        `since` is in microseconds since 1970. The second value is True if there were too many runs to count all of
        them."""
        return await self._journal.query(count_runs, owner, since)

    async def threads(self, owner: str, query: ThreadQuery) -> ThreadList:
        """Return one page of threads, the most recently changed first. Raises invalid for a malformed cursor."""
        return await self._journal.query(list_threads, owner, query)

    async def thread(self, owner: str, thread_id: str) -> ThreadSummary:
        """Return the summary of a thread. Raises not_found."""
        found = await self._journal.query(summarize_thread, owner, thread_id)
        return _require_found(found, f"Thread {thread_id} not found")

    async def thread_content(self, owner: str, thread_id: str) -> ThreadContent:
        """Return the ids of the newest runs of a thread, and its files. Raises not_found."""
        pk = await self._reads.key(owner, thread_id)
        run_ids = await self._journal.query(read_run_ids, pk)
        return ThreadContent(run_ids, await self._journal.query(read_files, pk))

    async def records(self, owner: str, run_id: str, after: int, *, limit: int, folds: bool) -> RunRecords:
        """Return up to `limit` records of a run with a sequence number above `after`.

        With `folds`, the deltas of one part are joined into one record, which counts as one. Raises not_found, also if
        the run was removed."""
        run = await self._reads.run(owner, run_id)
        missing = f"Run {run_id} not found"
        _require_found(None if run.removed else run, missing)
        pk = await self._reads.key(owner, run.thread_id)
        end = run.last_seq
        if not run.has_ended:
            end = _require_found((await self._journal.query(read_ends, [pk])).get(pk), missing)
        folder, room = RecordFolder(folds=folds), _FOLDED_ROOM if folds else _ROOM
        place = max(after, run.first_seq - 1)
        while place < end and len(folder.records) < limit and room > 0:
            left = limit - len(folder.records)
            piece = await self._journal.query(read_piece, pk, run, place, end, limit=left, room=room, folds=folds)
            if piece.until == place and not folder.records:
                _require_found(None, missing)  # erased meanwhile
            if piece.until == place:
                break
            place, room = piece.until, room - piece.size
            for record in piece.records:
                folder.add(record)
        return RunRecords(folder.records, place if place < end else None, end, run.has_ended)


def _require_found(value: T | None, message: str) -> T:
    if value is None:
        raise FaultError(FaultCode.NOT_FOUND, message)
    return value
