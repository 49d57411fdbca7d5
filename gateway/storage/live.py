"""Publish-subscribe in memory: a channel has the newest committed records of one thread in a ring buffer, and wakes all
readers that wait for more.

A reader has a cursor, and no queue. If the cursor is inside the ring, it takes the next records from there; otherwise
it reads a page from the journal. So a slow reader costs no memory and delays no other reader. Records that other
gateways commit are not put into the ring: the readers are woken, and read pages."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from contextvars import Context
from typing import Final

from babelgate.canonical.event import Record
from babelgate.gateway.storage.page_cache import fitting

_BYTES: Final = 2**20
"""Maximum size of the records in one ring, in bytes. Older records are read from the journal. Chosen."""
_LINGER: Final = 5.0
"""Minimum seconds for which the records of a thread stay in memory after its last publication, and half of the maximum.
Chosen: readers that keep up have read them by then. A thread with a slow reader would hold 300 KiB, and an idle stream
7 KiB."""
_SLICE: Final = 64
"""Number of rings that are cleared in one turn of the event loop. Chosen: short rings take 0.5 ms."""


class Channel:
    """The newest records of one thread, and the readers that wait for more. Used only on the event loop."""

    __slots__ = ("_bytes", "_records", "_ring", "_sizes", "_waiters", "closed", "pinned", "readers", "seq")

    def __init__(self, ring: int) -> None:
        self.seq = 0
        """Sequence number of the newest record that this gateway has published, or that another has announced. 0 before
        the first."""
        self.readers = 0
        """Number of readers that follow the thread."""
        self.pinned = 0
        """Number of active runs on the thread. While there are any, the channel stays in memory."""
        self.closed = False
        self._ring = ring
        # Lists, not deques: an empty deque takes 600 bytes and has no slices, and records are dropped in blocks.
        self._records: list[Record] = []
        self._sizes: list[int] = []
        """Stored size of each record in the ring, in bytes."""
        self._bytes = 0
        """Total stored size of the records in the ring, in bytes."""
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
        """Handle records that do not directly follow the newest one. Return True if the ring can take them.

        If they are newer, another gateway has written records in between: clear the ring, which holds only consecutive
        records, and return True. If they are older, return False."""
        if records[0].seq <= self.seq:
            return False
        self.forget()
        return True

    def note(self, seq: int) -> None:
        """Clear the ring and wake the readers if another gateway has committed records up to `seq` that the channel
        lacks."""
        if seq > self.seq:
            self.forget()
            self.seq = seq
            self.wake()

    def after(self, cursor: int, limit: int | None = None, room: int | None = None) -> list[Record] | None:
        """Return the records after the sequence number `cursor`: at most `limit` records and `room` bytes, but at least
        one.

        Return an empty list if there are none yet, and None if the ring no longer has them, so that they must be read
        from the journal."""
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
        """Clear the ring, because its records have changed or are not needed soon. Readers read the journal instead."""
        self._records.clear()
        self._sizes.clear()
        self._bytes = 0

    def wake(self) -> None:
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def close(self) -> None:
        """Close the channel, because the thread was erased or the gateway stops. No more records follow."""
        self.closed = True
        self.wake()

    async def more(self) -> None:
        """Wait until records are published or announced, or the channel is closed."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            await waiter
        finally:  # a reader that leaves must not stay registered while nothing is published
            self._waiters.pop(waiter, None)


class Channels:
    """Channels of all threads that have readers or active runs, or had them recently, by the thread's database key."""

    def __init__(self, ring: int = 512, idle: int = 256) -> None:
        self._ring = ring
        self._idle = idle
        self._most = 2 * idle
        """Number of channels from which on unused ones are dropped."""
        self._channels: OrderedDict[int, Channel] = OrderedDict()
        self._recent: dict[Channel, None] = {}
        """Channels with a publication in the current period of `_LINGER` seconds."""
        self._earlier: dict[Channel, None] = {}
        """Channels with a publication in the period before."""
        self._silent: list[Channel] = []
        """Channels whose rings are about to be cleared."""
        self._period: asyncio.TimerHandle | None = None
        """Timer of the current period; None if all rings are empty. A timer for each channel would take 700 bytes."""
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
        channel = self.get(pk)
        channel.publish(records, sizes)
        self._recent[channel] = None
        if self._period is None:
            self._begin_period()

    def _begin_period(self) -> None:
        # The current context would hold the whole request that published.
        self._period = asyncio.get_running_loop().call_later(_LINGER, self._end_period, context=Context())

    def _end_period(self) -> None:
        """Begin to clear the rings of the channels that had no publication in this period, and start the next one."""
        self._period = None
        self._silent += [channel for channel in self._earlier if channel not in self._recent]
        self._earlier, self._recent = self._recent, {}
        self._clear_some()
        if self._earlier:
            self._begin_period()

    def _clear_some(self) -> None:
        for channel in self._silent[-_SLICE:]:
            if channel not in self._recent:
                channel.forget()
        del self._silent[-_SLICE:]
        if self._silent:
            asyncio.get_running_loop().call_soon(self._clear_some)

    def note(self, pk: int, seq: int) -> None:
        channel = self._channels.get(pk)
        if channel is not None:
            channel.note(seq)

    def ends(self) -> dict[int, int]:
        """Return, for each thread with a channel, the sequence number of its newest known record, by database key."""
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
