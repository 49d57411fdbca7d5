"""Page cache: decoded pages of logs, which all readers share.

A reader is a cursor. It asks for the next few records, and holds nothing else while its client takes them. So the pages
of all readers together have one bound, however many readers there are and however slow they are.

Only whole pages are cached: the records of a log do not change, but more may follow its end at any time. Two events
change records, the erasure of a thread and the rewriting of a log. Both call `forget`.
"""

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter
from typing import Final

from babelgate.canonical.event import Record

BLOCK: Final = 512
"""Maximum number of records in a page. Pages begin at multiples of it, so that all readers can share them."""
_MAX_BYTES: Final = 16 * 2**20
"""Maximum estimated size of all cached pages, in bytes. Chosen: 25,000 tokens."""
_RECORD: Final = 450
"""Estimated bytes of a decoded record without its content. Measured: a token takes 430 bytes, 2026-11."""
_CONTENT: Final = 3
"""Estimated bytes of decoded content per byte in the log. Chosen: text takes one, JSON of small values ten."""
_SEQ: Final = attrgetter("seq")


class RecordPage:
    """Consecutive records of a thread."""

    __slots__ = ("_sizes", "after", "loaded_at", "records", "weight")

    def __init__(self, after: int, records: Sequence[Record], sizes: Sequence[int], loaded_at: float = 0.0) -> None:
        """Create a page. `sizes` = size of each record in the log, in bytes."""
        self.after = after
        """Sequence number before that of the first record."""
        self.records = records
        self.loaded_at = loaded_at
        """Time at which the query began, in seconds of the event loop."""
        self.weight = _RECORD * len(records) + _CONTENT * sum(sizes)
        """Estimated size in memory, in bytes."""
        self._sizes = sizes

    @property
    def last(self) -> int:
        return self.records[-1].seq if self.records else self.after

    def select(
        self, after: int, until: int | None = None, limit: int | None = None, room: int | None = None
    ) -> Sequence[Record]:
        """Return the records after a sequence number and not after `until`.

        At most `limit` records and `room` bytes are returned, but at least one record. None means that there is no such
        limit.
        """
        records = self.records
        begin = 0 if after <= self.after else bisect_right(records, after, key=_SEQ)
        end = len(records) if limit is None else min(len(records), begin + limit)
        if until is not None and self.last > until:
            end = min(end, bisect_right(records, until, key=_SEQ))
        if room is not None:
            end = fitting(self._sizes, begin, end, room)
        return records if begin == 0 and end == len(records) else records[begin:end]


def fitting(sizes: Sequence[int], begin: int, end: int, room: int) -> int:
    """Return the end of a slice that begins at `begin` and has at most `room` bytes, or one item."""
    for place in range(begin, end):
        room -= sizes[place]
        if room < 0:
            return max(place, min(begin + 1, end))
    return end


Load = Callable[[int, int, int], Awaitable[tuple[Sequence[Record], Sequence[int], bool]]]
"""Function of the key of a thread, `after` and `until`. It returns the records, their sizes in bytes, and True if they
end before `until` because they are large."""


class PageCache:
    """Cache of pages, bounded by their total weight. The least recently used are dropped first."""

    def __init__(self, load: Load, most: int = _MAX_BYTES) -> None:
        self._load = load
        self._most = most
        self._size = 0
        self._blocks: OrderedDict[tuple[int, int], list[RecordPage]] = OrderedDict()
        """Pages of each block, by key of the thread and number of the block."""
        self._loading: dict[tuple[int, int, int], asyncio.Task[tuple[RecordPage, bool]]] = {}
        """Queries in progress, by key of the thread, `after` and `until`."""

    async def get(self, pk: int, after: int, until: int | None = None, *, since: float | None = None) -> RecordPage:
        """Return a page with the next record after a sequence number. It is empty if no record follows up to `until`.

        `since` = earliest time, of the event loop, at which the page may have been loaded.
        """
        page = self.find(pk, after, since=since)
        if page is not None:
            return page
        end = (after // BLOCK + 1) * BLOCK
        key = (pk, after, end if until is None else min(end, until))
        if key[2] <= after:
            return RecordPage(after, (), ())
        loading = self._loading.get(key)
        if loading is not None:
            page, is_whole = await asyncio.shield(loading)
            # More records may have been appended since that query began.
            if is_whole and (since is None or page.loaded_at >= since):
                return page
            return (await self._read(*key))[0]
        loading = self._loading[key] = asyncio.ensure_future(self._read(*key))
        loading.add_done_callback(lambda done: self._keep(key, done))
        return (await asyncio.shield(loading))[0]

    def find(self, pk: int, after: int, *, since: float | None = None) -> RecordPage | None:
        """Return a cached page with the next record after `after`, or None. `since` = the page must have been loaded at
        this time or later, in loop time."""
        block = (pk, after // BLOCK)
        for page in self._blocks.get(block, ()):
            if page.after <= after < page.last and (since is None or page.loaded_at >= since):
                self._blocks.move_to_end(block)
                return page
        return None

    async def _read(self, pk: int, after: int, until: int) -> tuple[RecordPage, bool]:
        """Return a page, and True if it is whole: no record can follow between its last one and `until`."""
        loaded_at = asyncio.get_running_loop().time()
        records, sizes, is_cut = await self._load(pk, after, until)
        page = RecordPage(after, records, sizes, loaded_at)
        return page, bool(records) and (is_cut or page.last == until)

    def _keep(self, key: tuple[int, int, int], done: "asyncio.Task[tuple[RecordPage, bool]]") -> None:
        is_current = self._loading.get(key) is done
        if is_current:
            del self._loading[key]
        if done.cancelled() or done.exception() is not None or not is_current:
            return
        page, is_whole = done.result()
        if not is_whole or page.weight > self._most:
            return
        block = (key[0], page.after // BLOCK)
        pages = self._blocks.setdefault(block, [])
        for other in [other for other in pages if page.after <= other.after and other.last <= page.last]:
            pages.remove(other)
            self._size -= other.weight
        pages.append(page)
        self._blocks.move_to_end(block)
        self._size += page.weight
        while self._size > self._most:
            self._drop(next(iter(self._blocks)))

    def _drop(self, block: tuple[int, int]) -> None:
        self._size -= sum(page.weight for page in self._blocks.pop(block))

    def forget(self, pk: int) -> None:
        """Drop the pages of a thread that was erased, or whose log was rewritten."""
        for block in [block for block in self._blocks if block[0] == pk]:
            self._drop(block)
        for key in [key for key in self._loading if key[0] == pk]:
            del self._loading[key]
