"""Snapshot cache: what the records of lately used threads add up to, so that whoever looks at a long thread again reads
what came since, and not all of it.

A snapshot is never the only place where something is: it can be forgotten at any time, and is made again from the log.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Final, TypeVar

from babelgate.adapters.kit.aside import TimeSlice
from babelgate.canonical.event import Event, Record
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.hub import Snapshot

S = TypeVar("S", bound=Snapshot)
Page = Callable[[int, int | None], Awaitable[Sequence[Record]]]
"""Reads some records after one seq and up to another; none if there are no more."""

_MOST_BYTES: Final = 32 * 1024 * 1024
_EACH: Final = 4 * 1024
"""Bytes that one takes however little is in it."""
_NEAR: Final = 256
"""Records by which an earlier one is brought up to what is asked for, and stays where it is."""
_EARLIER: Final = "earlier"
"""Beside its name."""


class SnapshotCache:
    """Bounded by the bytes in them; the least recently used go first."""

    def __init__(self, largest: int, most: int = _MOST_BYTES, rewrites: tuple[type[Event], ...] = ()) -> None:
        """`largest`: bytes that one may hold, be it kept or not. `rewrites`: records with which earlier ones change,
        where another gateway may have written them."""
        self._largest = largest
        self._most = most
        self._rewrites = rewrites
        self._size = 0
        self._kept: OrderedDict[tuple[int, Hashable], Any] = OrderedDict()
        self._forgotten = 0
        """How often a log was changed: what was read before that must not be kept after it."""

    async def get(
        self,
        pk: int,
        name: Hashable,
        empty: Callable[[], S],
        page: Page,
        until: int | None,
    ) -> S:
        """Of the records up to `until`, or of all that are committed. It is the caller's to go on with. Raises
        too_large."""
        forgotten = self._forgotten
        kept = self._nearest(pk, name, until)
        found: S = empty() if kept is None else kept.copy()
        begun, time_slice = found.seq, TimeSlice()
        while until is None or found.seq < until:
            records = await page(found.seq, until)
            if not records:
                break
            if kept is not None and any(isinstance(record.event, self._rewrites) for record in records):
                self.forget(pk)
                return await self.get(pk, name, empty, page, until)
            for record in records:
                found.apply(record)
                if time_slice.is_used_up:
                    await time_slice.pause()
            if found.size > self._largest:
                raise FaultError(
                    FaultCode.TOO_LARGE,
                    f"The thread holds more than {self._largest} bytes (limits.thread), too much to be shown, or told "
                    "to an agent, as a whole. Its runs can be looked at one by one.",
                    limit=self._largest,
                )
        if self._forgotten == forgotten:
            self._keep(pk, name, found, changed=found.seq > begun)
        return found

    def _nearest(self, pk: int, name: Hashable, until: int | None) -> Any:
        """Of the newest, and of an earlier one beside it: readers come back to where a run began, while others look at
        what it has said since."""
        both = [key for key in ((pk, name), (pk, (_EARLIER, name))) if key in self._kept]
        fit = [key for key in both if until is None or self._kept[key].seq <= until]
        if not fit:
            return None
        nearest = max(fit, key=lambda key: self._kept[key].seq)
        self._kept.move_to_end(nearest)
        return self._kept[nearest]

    def forget(self, pk: int) -> None:
        """The thread was erased, or its log changed under its records."""
        self._forgotten += 1
        for key in [key for key in self._kept if key[0] == pk]:
            self._drop(key)

    def _keep(self, pk: int, name: Hashable, found: Snapshot, *, changed: bool) -> None:
        """A copy, unless there is one that is as new. The one whose place it takes stays beside it for a while."""
        if not changed:
            return
        known = self._kept.get((pk, name))
        if known is not None and known.seq >= found.seq:
            self._keep_earlier((pk, (_EARLIER, name)), found.copy())
            return
        self._drop((pk, name))
        if known is not None:
            self._keep_earlier((pk, (_EARLIER, name)), known)
        self._put((pk, name), found.copy())

    def _keep_earlier(self, key: tuple[int, Hashable], found: Snapshot) -> None:
        known = self._kept.get(key)
        if known is None or not known.seq <= found.seq <= known.seq + _NEAR:
            self._drop(key)
            self._put(key, found)

    def _put(self, key: tuple[int, Hashable], kept: Snapshot) -> None:
        if kept.size + _EACH > self._most:
            return
        self._kept[key] = kept
        self._size += kept.size + _EACH
        while self._size > self._most:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: tuple[int, Hashable]) -> None:
        dropped = self._kept.pop(key, None)
        if dropped is not None:
            self._size -= dropped.size + _EACH
