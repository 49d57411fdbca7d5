"""Cache of the last committed rows of threads, tasks and runs, and of the status of threads, in the memory of the event
loop.

Only commits fill it, before their records are published; reads never do. So a cached row is never older than the
records that its reader has seen, and a slow read cannot overwrite a newer row. Other rows are read from the
database."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import TypeVar, cast

import msgspec

from babelgate.canonical.thread import Run, Task, Thread, ThreadStatus


class ThreadStanding(msgspec.Struct, frozen=True):
    """Columns of a thread's row that change with its runs, and not with the thread itself."""

    thread_id: str
    status: ThreadStatus
    updated_at: int
    """Time of the newest record of the thread, in microseconds since 1970."""


Row = TypeVar("Row", bound=Thread | Task | Run)
Cached = TypeVar("Cached", bound=Thread | ThreadStanding | Task | Run)
_Key = tuple[type, str, str]


class RowChange(msgspec.Struct, frozen=True):
    """New value of a row of a thread, task or run that a commit has written.

    If the value is None, it invalidates all cached rows of the thread."""

    pk: int
    owner: str = ""
    value: Thread | ThreadStanding | Task | Run | None = None
    size: int = 0
    """Size of the row as JSON, in bytes."""


class RowCache:
    """Cache of at most `most` rows of at most `largest` bytes each.

    The rows of the thread that changed longest ago are evicted first."""

    def __init__(self, most: int = 4096, largest: int = 8192) -> None:
        self._most = most
        self._largest = largest
        self._rows: dict[_Key, Thread | ThreadStanding | Task | Run] = {}
        self._threads: OrderedDict[int, set[_Key]] = OrderedDict()
        """Cache keys of the rows of each thread, by the thread's database key, the least recently changed first."""

    def get(self, kind: type[Cached], owner: str, row_id: str) -> Cached | None:
        """Return the row of a thread, task or run, or the standing of a thread, or None if it is not cached."""
        return cast("Cached | None", self._rows.get((kind, owner, row_id)))

    def apply(self, changes: Iterable[RowChange]) -> None:
        for change in changes:
            if change.value is None:
                self._drop(change.pk)
                continue
            key = (type(change.value), change.owner, _id_of(change.value))
            keys = self._threads.setdefault(change.pk, set())
            self._threads.move_to_end(change.pk)
            if change.size > self._largest:
                keys.discard(key)
                self._rows.pop(key, None)
            else:
                keys.add(key)
                self._rows[key] = change.value
        while max(len(self._rows), len(self._threads)) > self._most:
            self._drop(next(iter(self._threads)))

    def _drop(self, pk: int) -> None:
        for key in self._threads.pop(pk, ()):
            del self._rows[key]


def _id_of(value: Thread | ThreadStanding | Task | Run) -> str:
    match value:
        case Thread() | ThreadStanding():
            return value.thread_id
        case Task():
            return value.task_id
        case Run():
            return value.run_id
