"""Cache of folded threads, so that a repeated read of a long thread reads only the records since the cached snapshot.

A cached snapshot is only a copy. It can be dropped at any time, and is rebuilt from the log."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Final, TypeVar

from babelgate.adapters.kit.aside import TimeSlice
from babelgate.canonical.event import Event, Record
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.hub import Snapshot
from babelgate.gateway.storage.thread_keys import ThreadKeys

S = TypeVar("S", bound=Snapshot)
Page = Callable[[int, int | None], Awaitable[Sequence[Record]]]
"""Function that returns a page of records after one sequence number and up to another. The page is empty only at the
end."""

_MAX_BYTES: Final = 32 * 1024 * 1024
_OVERHEAD: Final = 4 * 1024
"""Estimated size, in bytes, of a snapshot's objects without their content. Chosen."""
_NEAR: Final = 256
"""Lead in records up to which a newer snapshot does not replace the older one of the two that are cached per name.
Chosen."""
_EARLIER: Final = "earlier"
"""Marker in the cache key of the older one of the two snapshots that are cached per name."""


class SnapshotCache:
    """LRU cache of snapshots of threads, bounded by their total size in bytes."""

    def __init__(
        self, largest: Callable[[], int], most: int = _MAX_BYTES, rewrites: tuple[type[Event], ...] = ()
    ) -> None:
        """Create an empty cache.

        `largest` returns the maximum size of one snapshot in bytes, cached or not. `most` is the maximum total size in
        bytes. `rewrites` are the types of events that change the meaning of earlier records, if other gateways may
        write them."""
        self._largest = largest
        self._most = most
        self._rewrites = rewrites
        self._size = 0
        self._cached: OrderedDict[tuple[int, Hashable], Any] = OrderedDict()
        self._keys = ThreadKeys[tuple[int, Hashable]]()
        self._forgotten = 0
        """Number of calls of `forget`. A snapshot whose computation began before the last call is not cached."""

    async def get(
        self,
        pk: int,
        name: Hashable,
        empty: Callable[[], S],
        page: Page,
        until: int | None,
    ) -> S:
        """Return the snapshot that results from a thread's records up to `until`, or from all committed ones if it is
        None.

        `pk` is the thread's database key, and `name` identifies the kind of snapshot. `empty` creates a snapshot of no
        records, and `page` reads records. The result is a copy, which may be changed. Raises too_large if the snapshot
        is larger than `largest`.
        """
        forgotten = self._forgotten
        cached = self._nearest(pk, name, until)
        snapshot: S = empty() if cached is None else cached.copy()
        start, time_slice = snapshot.seq, TimeSlice()
        while until is None or snapshot.seq < until:
            records = await page(snapshot.seq, until)
            if not records:
                break
            if cached is not None and any(isinstance(record.event, self._rewrites) for record in records):
                self.forget(pk)
                return await self.get(pk, name, empty, page, until)
            for record in records:
                snapshot.apply(record)
                if time_slice.is_used_up:
                    await time_slice.pause()
            if snapshot.size > (largest := self._largest()):
                raise FaultError(
                    FaultCode.TOO_LARGE,
                    f"The thread is larger than {largest} bytes (limits.thread), so it cannot be read as a whole "
                    "or sent to an agent. Read its runs one by one.",
                    limit=self._largest,
                )
        if self._forgotten == forgotten:
            self._keep(pk, name, snapshot, changed=snapshot.seq > start)
        return snapshot

    def _nearest(self, pk: int, name: Hashable, until: int | None) -> Any:
        """Return the newest cached snapshot that includes no record after `until`, or None.

        Two are cached per name: the newest and an older one. Some readers return to the start of a run while others
        follow its end."""
        keys = [key for key in ((pk, name), (pk, (_EARLIER, name))) if key in self._cached]
        usable = [key for key in keys if until is None or self._cached[key].seq <= until]
        if not usable:
            return None
        nearest = max(usable, key=lambda key: self._cached[key].seq)
        self._cached.move_to_end(nearest)
        return self._cached[nearest]

    def forget(self, pk: int) -> None:
        """Drop the snapshots of a thread that was erased, or whose earlier records changed."""
        self._forgotten += 1
        for key in self._keys.of(pk):
            self._drop(key)

    def _keep(self, pk: int, name: Hashable, snapshot: Snapshot, *, changed: bool) -> None:
        """Cache a copy of a snapshot, unless it is unchanged since it was read from the cache (`changed` is False).

        If it is newer than the newest cached snapshot of its name, it becomes the newest, and the former newest becomes
        the older one. Otherwise it becomes the older one itself. The present older one stays if it is at most `_NEAR`
        records behind.
        """
        if not changed:
            return
        newest = self._cached.get((pk, name))
        if newest is not None and newest.seq >= snapshot.seq:
            self._keep_earlier((pk, (_EARLIER, name)), snapshot.copy())
            return
        self._drop((pk, name))
        if newest is not None:
            self._keep_earlier((pk, (_EARLIER, name)), newest)
        self._put((pk, name), snapshot.copy())

    def _keep_earlier(self, key: tuple[int, Hashable], snapshot: Snapshot) -> None:
        earlier = self._cached.get(key)
        if earlier is None or not earlier.seq <= snapshot.seq <= earlier.seq + _NEAR:
            self._drop(key)
            self._put(key, snapshot)

    def _put(self, key: tuple[int, Hashable], snapshot: Snapshot) -> None:
        if snapshot.size + _OVERHEAD > self._most:
            return
        self._cached[key] = snapshot
        self._keys.add(key[0], key)
        self._size += snapshot.size + _OVERHEAD
        while self._size > self._most:
            self._drop(next(iter(self._cached)))

    def _drop(self, key: tuple[int, Hashable]) -> None:
        dropped = self._cached.pop(key, None)
        if dropped is not None:
            self._keys.discard(key[0], key)
            self._size -= dropped.size + _OVERHEAD
