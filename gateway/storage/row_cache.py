"""Read cache: threads, tasks and runs as they were committed last, in the memory of the event loop.

It is filled by commits alone, before anybody is told of them, and never by reads: so it is never older than what its
reader knows of, and nothing that is read late can overwrite something newer. What is not in it is read from the
database.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import TypeVar, cast

import msgspec

from babelgate.canonical.thread import Run, Task, Thread

Row = TypeVar("Row", bound=Thread | Task | Run)
_Key = tuple[type, str, str]


class RowChange(msgspec.Struct, frozen=True):
    """A row that a commit has written; without a value, all rows of the thread are to be read anew."""

    pk: int
    owner: str = ""
    value: Thread | Task | Run | None = None
    size: int = 0
    """Bytes of its JSON."""


class RowCache:
    """`most` rows of at most `largest` bytes each; the threads that changed longest ago go first."""

    def __init__(self, most: int = 4096, largest: int = 8192) -> None:
        self._most = most
        self._largest = largest
        self._rows: dict[_Key, Thread | Task | Run] = {}
        self._threads: OrderedDict[int, set[_Key]] = OrderedDict()
        """By key of a thread, which of the rows are its."""

    def get(self, kind: type[Row], owner: str, row_id: str) -> Row | None:
        """The row, if it is here."""
        return cast("Row | None", self._rows.get((kind, owner, row_id)))

    def apply(self, changes: Iterable[RowChange]) -> None:
        for change in changes:
            if change.value is None:
                self._drop(change.pk)
                continue
            key = (type(change.value), change.owner, _id_of(change.value))
            mine = self._threads.setdefault(change.pk, set())
            self._threads.move_to_end(change.pk)
            if change.size > self._largest:
                mine.discard(key)
                self._rows.pop(key, None)
            else:
                mine.add(key)
                self._rows[key] = change.value
        while max(len(self._rows), len(self._threads)) > self._most:
            self._drop(next(iter(self._threads)))

    def _drop(self, pk: int) -> None:
        for key in self._threads.pop(pk, ()):
            del self._rows[key]


def _id_of(value: Thread | Task | Run) -> str:
    match value:
        case Thread():
            return value.thread_id
        case Task():
            return value.task_id
        case Run():
            return value.run_id
