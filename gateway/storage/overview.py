"""Overview: the reads of the console, across threads and for people.

All of them are bounded, however much is stored.
"""

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
"""Maximum size of one page's records, in bytes as stored. Chosen: as for other pages of the log."""
_FOLDED_ROOM: Final = 4 * _ROOM
"""Maximum size of the records of one page whose deltas are joined. Their JSON is a fraction of what is stored."""


@dataclass(frozen=True, slots=True)
class RunRecords:
    """Page of a run's records."""

    records: Sequence[FoldedRecord]
    next_seq: int | None
    """Sequence number after which the next page begins. None if all records until now were read."""
    last_seq: int
    """Sequence number of the run's end. If it has not ended, of the newest record of its thread."""
    has_ended: bool


@dataclass(frozen=True, slots=True)
class ThreadContent:
    """Runs and files of a thread."""

    run_ids: Sequence[str]
    """Ids of the newest runs, the oldest first."""
    files: Sequence[FilePart]


class Overview:
    """Reads across threads, by owner. With the owner None, lists have the rows of all owners."""

    def __init__(self, journal: Journal, reads: JournalReads) -> None:
        self._journal = journal
        self._reads = reads

    async def runs(self, owner: str | None, query: RunQuery) -> RunList:
        """Return one page of runs, newest first. Raises invalid."""
        return await self._journal.query(list_runs, owner, query)

    async def run(self, owner: str, run_id: str) -> RunSummary:
        """Return one run. Raises not_found, also for a removed one."""
        found = await self._journal.query(summarize_runs, [(owner, run_id)])
        return _require_found(found[0] if found and not found[0].run.removed else None, f"Run {run_id} not found")

    async def count_runs(self, owner: str | None, since: int) -> tuple[Mapping[str, RunCount], bool]:
        """Return the numbers of runs since a time by agent, and True if some runs were too many to be counted."""
        return await self._journal.query(count_runs, owner, since)

    async def threads(self, owner: str, query: ThreadQuery) -> ThreadList:
        """Return one page of threads, the most recently changed first. Raises invalid."""
        return await self._journal.query(list_threads, owner, query)

    async def thread(self, owner: str, thread_id: str) -> ThreadSummary:
        """Return one thread. Raises not_found."""
        found = await self._journal.query(summarize_thread, owner, thread_id)
        return _require_found(found, f"Thread {thread_id} not found")

    async def thread_content(self, owner: str, thread_id: str) -> ThreadContent:
        """Return the runs and files of a thread. Raises not_found."""
        pk = await self._reads.key(owner, thread_id)
        run_ids = await self._journal.query(read_run_ids, pk)
        return ThreadContent(run_ids, await self._journal.query(read_files, pk))

    async def records(self, owner: str, run_id: str, after: int, *, limit: int, folds: bool) -> RunRecords:
        """Return records of a run after a sequence number, at most `limit`.

        With `folds`, consecutive deltas of a part are one record. Raises not_found, also for a removed run.
        """
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
