"""Tests of channels: the newest records of a thread in memory, and one wake-up for all readers that wait."""

import asyncio
from collections.abc import Sequence

import pytest

from babelgate.canonical import Record
from babelgate.canonical.event import Custom
from babelgate.gateway.storage import live
from babelgate.gateway.storage.live import Channel, Channels
from tests.gateway.hubs import eventually, within


def some(first: int, last: int) -> Sequence[Record]:
    return [Record(seq, seq, None, None, 0, Custom()) for seq in range(first, last + 1)]


def publish(channel: Channel, first: int, last: int, size: int = 100) -> None:
    records = some(first, last)
    channel.publish(records, [size] * len(records))


def seqs(records: Sequence[Record] | None) -> list[int] | None:
    return None if records is None else [record.seq for record in records]


def test_only_a_cursor_inside_the_ring_is_served_from_memory() -> None:
    channel = Channel(ring=4)
    assert channel.after(0) is None
    publish(channel, 1, 3)
    assert seqs(channel.after(0)) == [1, 2, 3]
    publish(channel, 4, 6)
    assert seqs(channel.after(1)) is None
    assert seqs(channel.after(2)) == [3, 4, 5, 6]
    assert seqs(channel.after(5)) == [6]
    assert seqs(channel.after(6)) == []
    assert seqs(channel.after(9)) == []


def test_a_new_channel_has_no_records_before_its_start() -> None:
    channel = Channel(ring=4)
    publish(channel, 100, 101)
    assert channel.after(98) is None
    assert seqs(channel.after(99)) == [100, 101]


def test_records_of_another_gateway_reset_the_ring() -> None:
    channel = Channel(ring=8)
    publish(channel, 1, 3)
    channel.note(3)
    assert seqs(channel.after(1)) == [2, 3]
    channel.note(5)
    assert channel.seq == 5 and channel.after(3) is None and channel.after(4) is None
    assert seqs(channel.after(5)) == []
    publish(channel, 6, 7)
    assert seqs(channel.after(5)) == [6, 7] and channel.after(4) is None
    publish(channel, 10, 10)  # committed here before the notice of 8 and 9 arrives
    assert seqs(channel.after(9)) == [10] and channel.after(7) is None
    channel.note(9)
    assert channel.seq == 10 and seqs(channel.after(9)) == [10]
    channel.note(12)  # the notice arrives before 11 is published here
    publish(channel, 11, 11)
    assert channel.seq == 12 and channel.after(10) is None and seqs(channel.after(12)) == []
    publish(channel, 13, 13)
    assert seqs(channel.after(12)) == [13] and channel.after(11) is None


async def test_a_notice_wakes_a_waiting_reader_once() -> None:
    channels = Channels()
    channels.note(1, 7)  # the thread has no reader, and so no channel
    assert channels.ends() == {}
    channel = channels.get(1)
    waiting = asyncio.ensure_future(channel.more())
    await asyncio.sleep(0)
    channels.note(1, 7)
    await within(waiting)
    again = asyncio.ensure_future(channel.more())
    await asyncio.sleep(0)
    channels.note(1, 7)
    await asyncio.sleep(0)
    assert not again.done() and channels.ends() == {1: 7}
    again.cancel()


def test_the_ring_keeps_the_end_of_a_large_batch() -> None:
    channel = Channel(ring=4)
    publish(channel, 1, 10)
    assert channel.after(5) is None
    assert seqs(channel.after(6)) == [7, 8, 9, 10]


def test_a_ring_is_bounded_by_bytes() -> None:
    channel = Channel(ring=100)
    publish(channel, 1, 10, size=200_000)
    assert channel.after(4) is None
    assert seqs(channel.after(5)) == [6, 7, 8, 9, 10]
    publish(channel, 11, 11, size=2_000_000)  # this record alone exceeds the limit
    assert channel.after(10) is None
    assert seqs(channel.after(11)) == []
    publish(channel, 12, 12)
    assert channel.after(10) is None
    assert seqs(channel.after(11)) == [12]


def test_a_reader_may_change_its_batch() -> None:
    channel = Channel(ring=4)
    publish(channel, 1, 2)
    batch = channel.after(0)
    publish(channel, 3, 4)
    assert seqs(batch) == [1, 2]


def test_readers_of_a_cleared_channel_use_the_journal() -> None:
    channel = Channel(ring=4)
    publish(channel, 1, 4)
    channel.forget()
    assert channel.after(0) is None
    assert channel.seq == 4
    publish(channel, 5, 5)
    assert channel.after(3) is None
    assert seqs(channel.after(4)) == [5]


async def test_one_publication_wakes_all_readers() -> None:
    channel = Channel(ring=4)
    waiting = [asyncio.ensure_future(channel.more()) for _ in range(3)]
    await asyncio.sleep(0)
    publish(channel, 1, 1)
    await within(asyncio.gather(*waiting))


async def test_closing_wakes_all_readers() -> None:
    channels = Channels()
    waiting = [asyncio.ensure_future(channels.get(pk).more()) for pk in (1, 1, 2)]
    await asyncio.sleep(0)
    channels.close_all()
    await within(asyncio.gather(*waiting))
    assert channels.get(1).closed
    assert channels.get(3).closed  # the thread is read for the first time after the close


async def test_a_cancelled_reader_of_a_silent_thread_is_removed() -> None:
    channel = Channel(ring=4)
    for _ in range(10):
        waiting = asyncio.ensure_future(channel.more())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
    waiters = getattr(channel, "_waiters")  # noqa: B009  private, but it must not grow
    assert len(waiters) == 0


def test_only_unused_channels_are_dropped() -> None:
    channels = Channels(idle=4)
    read, pinned = channels.get(1), channels.get(2)
    read.readers = pinned.pinned = 1
    old = channels.get(3)
    for pk in range(4, 40):
        channels.get(pk)
    assert channels.get(1) is read and channels.get(2) is pinned
    assert channels.get(3) is not old


def test_a_closed_channel_makes_room_for_another() -> None:
    channels = Channels()
    closed = channels.get(1)
    channels.close(1)
    assert closed.closed
    assert not channels.get(1).closed
    channels.close(2)  # never had a reader


def test_a_new_channel_stays_while_all_others_are_used() -> None:
    channels = Channels(idle=4)
    used = [channels.get(pk) for pk in range(1, 8)]
    for pk, channel in enumerate(used, 1):
        assert channels.get(pk) is channel
        channel.readers += 1
    for pk in range(8, 30):
        channel = channels.get(pk)
        assert channels.get(pk) is channel, f"the channel of thread {pk} was dropped before it could be read"
        channel.readers += 1
        used.append(channel)
    assert [channels.get(pk) for pk in range(1, 30)] == used
    for channel in used:
        channel.readers -= 1
    for pk in range(30, 80):
        channels.get(pk)
    assert channels.get(1) is not used[0], "a channel without readers was not dropped"


async def test_records_of_silent_threads_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_LINGER", 0.0)
    channels, silent = Channels(), range(2, 2 + 3 * 64)
    for pk in (1, *silent):
        channels.publish(pk, some(1, 3), [100] * 3)
    seq = 3

    def are_dropped() -> bool:
        nonlocal seq
        seq += 1
        channels.publish(1, some(seq, seq), [100])
        return all(channels.get(pk).after(1) is None for pk in silent)

    await within(eventually(are_dropped), "the end of the second period")
    assert seqs(channels.get(1).after(seq - 1)) == [seq], "the newest record"
    assert seqs(channels.get(2).after(3)) == []
    channels.publish(2, some(4, 5), [100] * 2)
    assert seqs(channels.get(2).after(3)) == [4, 5]
