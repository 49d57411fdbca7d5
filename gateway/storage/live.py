"""Publish-subscribe in memory: a channel keeps the newest committed events of a thread in a ring buffer, and has one
wake-up for all who wait for more.

A reader is a cursor, not a queue: it takes from the ring if its cursor is inside and reads a page from the journal
otherwise. So a slow reader costs nothing and holds nobody up, and nothing overflows. What another gateway has
committed is in no ring here: its readers are woken, and read pages.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from babelgate.canonical.event import Record
from babelgate.gateway.storage.page_cache import fitting

_BYTES: Final = 2**20
"""Of the events that one thread has in memory: larger ones are read from the journal."""
_LINGER: Final = 5.0
"""Seconds for which the events of a thread stay in memory after its last run. Chosen: readers that keep up have them by
then, and one that does not would keep 300 KiB."""


class Channel:
    """The end of one thread's log. Only touched on the event loop."""

    __slots__ = ("_bytes", "_records", "_ring", "_sizes", "_waiters", "closed", "pinned", "readers", "seq")

    def __init__(self, ring: int) -> None:
        self.seq = 0
        """Of the newest record that was published here, or told of by another gateway; 0 before the first."""
        self.readers = 0
        self.pinned = 0
        """Runs that are active on the thread."""
        self.closed = False
        self._ring = ring
        # Lists: an empty deque takes 600 bytes, no part of one can be copied alone, and what is dropped goes together.
        self._records: list[Record] = []
        self._sizes: list[int] = []
        """Of the records, in bytes."""
        self._bytes = 0
        self._waiters: dict[asyncio.Future[None], None] = {}

    def publish(self, records: Sequence[Record], sizes: Sequence[int]) -> None:
        if self.seq and records[0].seq != self.seq + 1 and not self._closes_gap(records):
            self.wake()
            return
        self._records.extend(records)
        self._sizes.extend(sizes)
        self._bytes += sum(sizes)
        self.seq = records[-1].seq
        surplus = 0
        while len(self._records) - surplus > self._ring or self._bytes > _BYTES:
            self._bytes -= self._sizes[surplus]
            surplus += 1
        if surplus:
            del self._records[:surplus], self._sizes[:surplus]
        self.wake()

    def _closes_gap(self, records: Sequence[Record]) -> bool:
        """Another gateway has written to the thread, too: its records are before these, or after them and told of
        already. Whether these are the newest; the ring holds none but what follows each other."""
        if records[0].seq <= self.seq:
            return False
        self.forget()
        return True

    def note(self, seq: int) -> None:
        """Another gateway has committed records up to this one."""
        if seq > self.seq:
            self.forget()
            self.seq = seq
            self.wake()

    def after(self, cursor: int, limit: int | None = None, room: int | None = None) -> list[Record] | None:
        """Return the records after `cursor`: at most `limit`, and as many as `room` bytes hold, but at least one.
        Return None if the ring does not reach back that far."""
        records = self._records
        behind = self.seq - cursor
        if behind <= 0 and self.seq:
            return []
        if not records or cursor + 1 < records[0].seq:
            return None
        begin = len(records) - behind
        end = len(records) if limit is None else min(len(records), begin + limit)
        if room is not None:
            end = fitting(self._sizes, begin, end, room)
        return records[begin:end]

    def forget(self) -> None:
        """The log was changed under records that are in memory: readers take pages from the journal."""
        self._records.clear()
        self._sizes.clear()
        self._bytes = 0

    def wake(self) -> None:
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def pin(self) -> None:
        """A run begins on the thread."""
        self.pinned += 1

    def unpin(self) -> None:
        """A run has ended on the thread."""
        self.pinned -= 1
        if not self.pinned:
            asyncio.get_running_loop().call_later(_LINGER, self._forget_if_idle)

    def _forget_if_idle(self) -> None:
        if not self.pinned:
            self.forget()

    def close(self) -> None:
        """No more will come: the thread was erased, or the gateway stops."""
        self.closed = True
        self.wake()

    async def more(self) -> None:
        """Wait for the next publication or the close."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            await waiter
        finally:  # a reader that goes leaves nothing behind, however long the thread is silent
            self._waiters.pop(waiter, None)


class Channels:
    """The channels of threads that are active or were so lately."""

    def __init__(self, ring: int = 512, idle: int = 256) -> None:
        self._ring = ring
        self._idle = idle
        self._most = 2 * idle
        """Channels at which some are looked for that can go."""
        self._channels: OrderedDict[int, Channel] = OrderedDict()
        self._closed = False

    def get(self, pk: int) -> Channel:
        channel = self._channels.get(pk)
        if channel is None:
            self._evict()  # before there is a new one, which nobody reads as yet: it would go
            channel = self._channels[pk] = Channel(self._ring)
            channel.closed = self._closed
        else:
            self._channels.move_to_end(pk)
        return channel

    def publish(self, pk: int, records: Sequence[Record], sizes: Sequence[int]) -> None:
        self.get(pk).publish(records, sizes)

    def note(self, pk: int, seq: int) -> None:
        channel = self._channels.get(pk)
        if channel is not None:
            channel.note(seq)

    def ends(self) -> dict[int, int]:
        """By key of a thread, the newest record that is known here."""
        return {pk: channel.seq for pk, channel in self._channels.items()}

    def forget(self, pk: int) -> None:
        channel = self._channels.get(pk)
        if channel is not None:
            channel.forget()

    def close(self, pk: int) -> None:
        channel = self._channels.pop(pk, None)
        if channel is not None:
            channel.close()

    def close_all(self) -> None:
        self._closed = True
        for channel in list(self._channels.values()):
            channel.close()

    def _evict(self) -> None:
        """Now and then, drop the least recently used channels that nobody reads and nothing runs on."""
        if len(self._channels) < self._most:
            return
        surplus = len(self._channels) - self._idle
        for pk in [pk for pk, channel in self._channels.items() if not (channel.readers or channel.pinned)][:surplus]:
            del self._channels[pk]
        # Where most are in use, all of them are not looked at again for each new one.
        self._most = max(2 * self._idle, len(self._channels) + self._idle)
