"""Publish-subscribe in memory: a channel has the newest committed records of one thread in a ring buffer, and wakes all
readers that wait for more.

A reader is a cursor, not a queue. It takes records from the ring if its cursor is inside, and reads a page from the
journal otherwise. So a slow reader costs nothing, delays no other reader, and overflows nothing. Commits of other
gateways are not put into the ring: the readers are woken, and read pages.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from babelgate.canonical.event import Record
from babelgate.gateway.storage.page_cache import fitting

_BYTES: Final = 2**20
"""Maximum size of one ring's records, in bytes. Older records are read from the journal. Chosen."""
_LINGER: Final = 5.0
"""Seconds for which the records of a thread stay in memory after its last run. Chosen: readers that keep up have read
them by then, and a thread with a slow reader would hold 300 KiB."""


class Channel:
    """End of one thread's log. Used only on the event loop."""

    __slots__ = ("_bytes", "_records", "_ring", "_sizes", "_waiters", "closed", "pinned", "readers", "seq")

    def __init__(self, ring: int) -> None:
        self.seq = 0
        """Sequence number of the newest record published here, or announced by another gateway. Initially 0."""
        self.readers = 0
        """Number of readers that use the channel."""
        self.pinned = 0
        """Number of active runs on the thread."""
        self.closed = False
        self._ring = ring
        # Lists, not deques: an empty deque takes 600 bytes and has no slices, and records are dropped in blocks.
        self._records: list[Record] = []
        self._sizes: list[int] = []
        """Sizes of the records, in bytes."""
        self._bytes = 0
        """Sum of the sizes."""
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
        """Clear the ring if these records are newer than the channel, because it holds only consecutive records.

        Another gateway has written between them. Return False if the records are older, which the ring does not need.
        """
        if records[0].seq <= self.seq:
            return False
        self.forget()
        return True

    def note(self, seq: int) -> None:
        """Wake the readers because another gateway has committed records up to `seq`."""
        if seq > self.seq:
            self.forget()
            self.seq = seq
            self.wake()

    def after(self, cursor: int, limit: int | None = None, room: int | None = None) -> list[Record] | None:
        """Return the records after `cursor`: at most `limit` records and `room` bytes, but at least one record.

        Return None if the ring does not reach back that far.
        """
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
        """Clear the ring, because records in it have changed or are not needed. Readers read the journal instead."""
        self._records.clear()
        self._sizes.clear()
        self._bytes = 0

    def wake(self) -> None:
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def pin(self) -> None:
        """Count a run that begins on the thread: its records stay in memory."""
        self.pinned += 1

    def unpin(self) -> None:
        """Subtract a run that has ended. After the last one, the records are dropped `_LINGER` seconds later."""
        self.pinned -= 1
        if not self.pinned:
            asyncio.get_running_loop().call_later(_LINGER, self._forget_if_idle)

    def _forget_if_idle(self) -> None:
        if not self.pinned:
            self.forget()

    def close(self) -> None:
        """Close the channel, because the thread was erased or the gateway stops. No more records follow."""
        self.closed = True
        self.wake()

    async def more(self) -> None:
        """Wait for the next publication or the close."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            await waiter
        finally:  # a reader that leaves must not stay registered while nothing is published
            self._waiters.pop(waiter, None)


class Channels:
    """Channels of threads that are or were recently active, by key."""

    def __init__(self, ring: int = 512, idle: int = 256) -> None:
        self._ring = ring
        self._idle = idle
        self._most = 2 * idle
        """Number of channels at which unused ones are dropped."""
        self._channels: OrderedDict[int, Channel] = OrderedDict()
        self._closed = False

    def get(self, pk: int) -> Channel:
        channel = self._channels.get(pk)
        if channel is None:
            self._evict()  # before the new channel is added: it has no reader yet, and would be dropped
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
        """Return the sequence number of the newest known record of each thread with a channel, by key."""
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
        """Drop the least recently used channels without readers and runs, if there are too many channels."""
        if len(self._channels) < self._most:
            return
        surplus = len(self._channels) - self._idle
        for pk in [pk for pk, channel in self._channels.items() if not (channel.readers or channel.pinned)][:surplus]:
            del self._channels[pk]
        # If most channels are in use, a higher threshold avoids a scan for each new channel.
        self._most = max(2 * self._idle, len(self._channels) + self._idle)
