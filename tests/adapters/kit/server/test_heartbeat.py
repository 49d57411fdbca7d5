"""Heartbeats of silent streams, and readers that stop reading."""

import asyncio

from babelgate.adapters.kit.server.heartbeat import SEND_TIMEOUT, Monitor
from tests.bridge import BOUND


class Stream:
    """Stream that counts its heartbeats and disconnects."""

    def __init__(self, interval: float | None) -> None:
        self.beats = 0
        self.cuts = 0
        self.beaten = asyncio.Event()
        self.monitor = Monitor(interval, self._beat, self._cut)

    def _beat(self) -> None:
        self.beats += 1
        self.beaten.set()

    def _cut(self) -> None:
        self.cuts += 1


async def test_a_heartbeat_is_sent_only_after_silence() -> None:
    stream = Stream(15)
    stream.monitor.open()
    now = asyncio.get_running_loop().time()
    stream.monitor.check(now + 14.9)
    assert stream.beats == 0
    stream.monitor.check(now + 15.1)
    stream.monitor.check(now + 29)
    assert stream.beats == 1
    stream.monitor.begin_send()
    stream.monitor.check(now + 31)
    assert stream.beats == 1, "a heartbeat was sent during a chunk"
    stream.monitor.end_send()
    stream.monitor.check(now + 14.9)
    assert stream.beats == 1
    stream.monitor.close()


async def test_a_reader_that_stops_reading_is_disconnected() -> None:
    for interval in (None, 5.0):
        stream = Stream(interval)
        stream.monitor.open()
        now = asyncio.get_running_loop().time()
        stream.monitor.check(now + 2 * SEND_TIMEOUT)
        assert stream.cuts == 0, "no send is pending"
        stream.monitor.begin_send()
        stream.monitor.check(now + SEND_TIMEOUT - 1)
        assert stream.cuts == 0
        stream.monitor.check(now + SEND_TIMEOUT + 1)
        assert stream.cuts == 1
        stream.monitor.close()


async def test_one_timer_serves_streams_of_any_interval() -> None:
    slow, quick = Stream(15), Stream(0.01)
    slow.monitor.open()
    quick.monitor.open()
    async with asyncio.timeout(BOUND):
        await quick.beaten.wait()
        quick.beaten.clear()
        await quick.beaten.wait()
    quick.monitor.close()
    beats = quick.beats
    slow.monitor.check(asyncio.get_running_loop().time() + 16)
    assert (slow.beats, quick.beats) == (1, beats)
    slow.monitor.close()


async def test_many_streams_are_checked_in_slices() -> None:
    streams = [Stream(0.01) for _ in range(200)]
    beaten_together: list[int] = []
    before = 0
    for stream in streams:
        stream.monitor.open()
    async with asyncio.timeout(BOUND):
        while not all(stream.beats for stream in streams):
            await asyncio.sleep(0)
            beats = sum(stream.beats for stream in streams)
            beaten_together.append(beats - before)
            before = beats
    for stream in streams:
        stream.monitor.close()
    assert max(beaten_together) <= 32
