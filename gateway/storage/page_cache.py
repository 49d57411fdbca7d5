"""Cache of decoded pages of logs, which all readers share.

A reader has a cursor. It requests the next few records, and stores no others while its client receives them. So the
pages of all readers together have one limit, however many readers there are and however slow they are.

Only complete pages are cached: existing records do not change, but more may follow at the end of a log. Two events do
change records: a thread is erased, or its log is rewritten because a run was removed or states were pruned. Both call
`forget`."""

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter
from typing import Final

from babelgate.canonical.event import Record
from babelgate.gateway.storage.thread_keys import ThreadKeys

BLOCK: Final = 512
"""Maximum number of records in a page. A page ends at the next multiple of this number, so that readers with different
cursors can share pages. Chosen."""
_MAX_BYTES: Final = 16 * 2**20
"""Maximum estimated size of all cached pages in memory, in bytes. Chosen: 25,000 tokens."""
_RECORD: Final = 450
"""Estimated size of a decoded record in memory without its content, in bytes. Measured: a token takes 430 bytes,
2026-11."""
_CONTENT: Final = 3
"""Estimated bytes in memory per stored byte of a record's content. Chosen: text takes one, JSON of small values ten."""
_SEQ: Final = attrgetter("seq")


class RecordPage:
    """Consecutive records of one thread's log, as one query has read and decoded them."""

    __slots__ = ("_sizes", "after", "loaded_at", "records", "weight")

    def __init__(self, after: int, records: Sequence[Record], sizes: Sequence[int], loaded_at: float = 0.0) -> None:
        """Create a page from records and their stored sizes in bytes."""
        self.after = after
        """Sequence number after which the page begins."""
        self.records = records
        self.loaded_at = loaded_at
        """Time at which the query of the page began, in seconds of the event loop's clock."""
        self.weight = _RECORD * len(records) + _CONTENT * sum(sizes)
        """Estimated size of the page in memory, in bytes."""
        self._sizes = sizes

    @property
    def last(self) -> int:
        return self.records[-1].seq if self.records else self.after

    def select(
        self, after: int, until: int | None = None, limit: int | None = None, room: int | None = None
    ) -> Sequence[Record]:
        """Return the records with a sequence number above `after` and up to `until`, at most `limit` records and `room`
        bytes.

        At least one record is returned, if there is one. A limit that is None does not apply."""
        records = self.records
        begin = 0 if after <= self.after else bisect_right(records, after, key=_SEQ)
        end = len(records) if limit is None else min(len(records), begin + limit)
        if until is not None and self.last > until:
            end = min(end, bisect_right(records, until, key=_SEQ))
        if room is not None:
            end = fitting(self._sizes, begin, end, room)
        return records if begin == 0 and end == len(records) else records[begin:end]


def fitting(sizes: Sequence[int], begin: int, end: int, room: int) -> int:
    """Return the end index, at most `end`, of the longest slice of `sizes` from `begin` whose sum is at most `room`.

    The slice has at least one item."""
    for place in range(begin, end):
        room -= sizes[place]
        if room < 0:
            return max(place, min(begin + 1, end))
    return end


Load = Callable[[int, int, int], Awaitable[tuple[Sequence[Record], Sequence[int], bool]]]
"""Function that reads records of a thread from the database: its key, `after` and `until`.

It returns the records, their stored sizes in bytes, and True if they end before `until` because they are large."""


class PageCache:
    """LRU cache of pages, bounded by their estimated size in memory."""

    def __init__(self, load: Load, most: int = _MAX_BYTES) -> None:
        self._load = load
        self._most = most
        self._size = 0
        self._blocks: OrderedDict[tuple[int, int], list[RecordPage]] = OrderedDict()
        """Cached pages, by the database key of the thread and the number of the block (`after // BLOCK`)."""
        self._keys = ThreadKeys[tuple[int, int]]()
        """Keys of `_blocks`."""
        self._loading: dict[tuple[int, int, int], asyncio.Task[tuple[RecordPage, bool]]] = {}
        """Queries in progress, by the database key of the thread, `after` and `until`, so that readers share one
        query."""

    async def get(self, pk: int, after: int, until: int | None = None, *, since: float | None = None) -> RecordPage:
        """Return a page that contains the record after `after`, from the cache or the database.

        The page is empty if no record follows up to `until`. With `since`, a page whose query began before this time of
        the event loop's clock is not used."""
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
        """Return a cached page that contains the record after `after`, or None.

        With `since`, a page whose query began before this time of the event loop's clock does not count."""
        block = (pk, after // BLOCK)
        for page in self._blocks.get(block, ()):
            if page.after <= after < page.last and (since is None or page.loaded_at >= since):
                self._blocks.move_to_end(block)
                return page
        return None

    async def _read(self, pk: int, after: int, until: int) -> tuple[RecordPage, bool]:
        """Read a page from the database. The second value is True if the page may be cached.

        A page may be cached if no later record can belong to it: it reaches `until`, or it was cut because of its size.
        """
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
        self._keys.add(block[0], block)
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
        self._keys.discard(block[0], block)

    def forget(self, pk: int) -> None:
        """Drop the pages of a thread that was erased, or whose earlier records have changed."""
        for block in self._keys.of(pk):
            self._drop(block)
        for key in [key for key in self._loading if key[0] == pk]:
            del self._loading[key]
