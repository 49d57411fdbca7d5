"""Records are encoded once for all readers of the same view, and each reader gets what it would get alone."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.adapters.a2a.codec.v0_3 import Codec as Codec03
from babelgate.adapters.a2a.codec.v1_0 import Codec
from babelgate.adapters.a2a.server.follow import TaskStream as A2AReading
from babelgate.adapters.acp.codec.messages import EncodingContext
from babelgate.adapters.acp.server.follow import RunStream as AcpReading
from babelgate.adapters.kit.server.fanout import EncodedRecord, Encoder, FanoutCache, FanoutLimits, Follower
from babelgate.canonical import Hub, Message, Principal, Receipt, Record, RunInput, Submission
from babelgate.canonical.event import Custom
from tests.gateway.hubs import guarded
from tests.running import running

RECORDS = [Record(seq=seq, at=seq, task_id="t", run_id=None, attempt=0, event=Custom()) for seq in range(1, 41)]


class Chain:
    """Encoder whose every frame depends on all earlier records."""

    def __init__(self) -> None:
        self.read = 0
        self._before = b""

    def write(self, record: Record) -> EncodedRecord:
        self.read += 1
        self._before = sha256(self._before + b"%d" % record.seq).digest()
        return EncodedRecord([self._before], stopped=record.seq % 7 == 0)

    def write_passage(self, passage: Sequence[Record], texts: Sequence[str]) -> Sequence[bytes]:
        """Return the frames that the records have one by one."""
        return [self.write(record).frames[0] for record in passage]

    @classmethod
    def after(cls, records: list[Record]) -> "Chain":
        encoder = cls()
        for record in records:
            encoder.write(record)
        return encoder


ALONE = [Chain.after(RECORDS[:number]).write(record) for number, record in enumerate(RECORDS)]


class Reader:
    """Reader that joins after `place` records, and checks every record that it receives."""

    def __init__(self, lines: FanoutCache, place: int = 0, *, started_run: bool = False) -> None:
        self.place = place
        self.rebuilt = 0
        self.encoder = Chain.after(RECORDS[:place])
        self.follower: Follower = lines.join(
            "view", self.encoder, RECORDS[:place], self._rebuild, started_run=started_run
        )

    async def _rebuild(self, seq: int) -> Encoder:
        self.rebuilt += 1
        return Chain.after([record for record in RECORDS if record.seq < seq])

    async def step(self) -> EncodedRecord:
        encoded = await self.follower.write_record(RECORDS[self.place])
        assert encoded == ALONE[self.place]
        self.place += 1
        return encoded

    async def to(self, place: int) -> None:
        while self.place < place:
            await self.step()


async def share_next(first: Reader, second: Reader) -> bool:
    """Return True if two readers at one place receive the same object, and not only equal bytes."""
    assert first.place == second.place
    return await first.step() is await second.step()


async def test_readers_of_one_view_share_each_encoded_record() -> None:
    lines = FanoutCache()
    readers = [Reader(lines) for _ in range(100)]
    for _ in RECORDS:
        encoded = [await reader.step() for reader in readers]
        assert all(one is other for one, other in pairwise(encoded))
    assert [reader.encoder.read for reader in readers] == [len(RECORDS), *[0] * 99]


async def test_a_slow_reader_encodes_alone_until_it_catches_up() -> None:
    lines = FanoutCache(FanoutLimits(records=5))
    slow, fast = Reader(lines), Reader(lines)
    await slow.step()
    await fast.to(len(RECORDS))
    await slow.to(len(RECORDS) - 5)
    assert slow.rebuilt == 1
    assert await share_next(slow, Reader(lines, len(RECORDS) - 5))
    assert slow.rebuilt == 1


async def test_a_reader_that_falls_behind_again_rebuilds_its_encoder_again() -> None:
    lines = FanoutCache(FanoutLimits(records=5))
    fast = Reader(lines)
    slow = Reader(lines)
    for place, rebuilt in ((10, 1), (20, 2), (30, 3)):
        await slow.step()
        await fast.to(place)
        await slow.to(place)
        assert slow.rebuilt == rebuilt


async def test_a_line_is_limited_in_bytes() -> None:
    lines = FanoutCache(FanoutLimits(bytes=3 * 32))
    fast = Reader(lines)
    await fast.to(len(RECORDS))
    assert await share_next(*(Reader(lines, len(RECORDS) - 3) for _ in range(2)))
    assert not await share_next(*(Reader(lines, len(RECORDS) - 4) for _ in range(2)))
    assert fast.place == len(RECORDS)


async def test_the_only_reader_of_its_run_caches_little() -> None:
    lines = FanoutCache(FanoutLimits(single_reader_bytes=2 * 32))
    first = Reader(lines, started_run=True)
    await first.to(20)
    late, later = (Reader(lines, 10) for _ in range(2))
    await first.to(30)
    await late.to(17)
    await later.to(17)
    assert not await share_next(late, later)
    assert await share_next(late, later)
    await late.to(30)
    await later.to(20)
    assert (late.rebuilt, later.rebuilt) == (0, 0)


async def test_a_frame_over_the_limit_is_shared() -> None:
    lines = FanoutCache(FanoutLimits(bytes=1))
    assert await share_next(Reader(lines), Reader(lines))


async def test_a_reader_that_joins_ahead_advances_the_line() -> None:
    lines = FanoutCache()
    first = Reader(lines)
    await first.to(2)
    ahead = Reader(lines, 10)
    await first.to(10)
    assert first.rebuilt == 0
    assert await share_next(first, ahead)


async def test_a_reader_that_joins_far_ahead_starts_a_line() -> None:
    lines = FanoutCache(FanoutLimits(ahead=3))
    first = Reader(lines)
    ahead, newest = Reader(lines, 10), Reader(lines, 10)
    assert first.encoder.read == 0
    assert await share_next(ahead, newest)
    await first.to(len(RECORDS))
    assert (first.rebuilt, first.encoder.read) == (0, len(RECORDS))


async def test_a_line_ends_with_its_last_reader() -> None:
    lines = FanoutCache()
    await Reader(lines).to(5)
    gc.collect()
    alone = Reader(lines)
    await alone.to(5)
    assert alone.encoder.read == 5


@given(
    st.builds(FanoutLimits, records=st.integers(1, 6), bytes=st.integers(1, 200), ahead=st.integers(0, 20)),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, len(RECORDS) - 1)), min_size=20, max_size=150),
)
async def test_each_reader_gets_what_it_would_get_alone(limits: FanoutLimits, moves: list[tuple[int, int]]) -> None:
    lines = FanoutCache(limits)
    readers: dict[int, Reader] = {}
    for key, place in moves:
        reader = readers.get(key)
        if reader is None or reader.place == len(RECORDS):
            readers[key] = Reader(lines, place)
        else:
            await reader.to(min(reader.place + 1 + place % 7, len(RECORDS)))


# In the adapters


@pytest.mark.parametrize("protocol", ["acp", "a2a-0.3", "a2a-1.0"])
async def test_a_thousand_readers_share_frames_that_are_encoded_once(tmp_path: Path, protocol: str) -> None:
    gate = asyncio.Event()

    async def agent(text: str) -> AsyncGenerator[str]:
        yield "first"
        await gate.wait()
        for number in range(10):
            yield f" {number}"

    async with running(tmp_path, {"agent": agent}) as gateway:
        submission = Submission(agent="agent", input=RunInput(messages=(Message.of("go", "user"),)))
        receipt = await gateway.hub.submit("default", submission)
        lines = FanoutCache()
        started = asyncio.Semaphore(0)

        async def read() -> list[bytes]:
            frames: list[bytes] = []
            async with aclosing(reading(protocol, guarded(gateway.hub), receipt, lines)) as batches:
                async for batch in batches:
                    frames += batch
                    started.release()
            return frames

        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            readers = [group.create_task(read()) for _ in range(1000)]
            for _ in readers:
                await started.acquire()
            gate.set()
        results = [reader.result() for reader in readers]
    last = [frames[-10:] for frames in results]
    assert len(last[0]) == 10
    assert {id(frame) for frames in last for frame in frames} == {id(frame) for frame in last[0]}
    assert all(frames == results[0] for frames in results)


def reading(protocol: str, hub: Hub, receipt: Receipt, lines: FanoutCache) -> AsyncGenerator[Sequence[Any]]:
    if protocol == "acp":
        view = EncodingContext(run_id=receipt.task_id, session_id=receipt.thread_id, agent="agent")
        return AcpReading(hub, Principal.of_owner("default"), [receipt.task], view, stop_after=receipt.seq).follow(
            lines
        )
    dialect = (Codec if protocol == "a2a-1.0" else Codec03)("http://127.0.0.1", "agent")
    task = receipt.task
    return A2AReading(hub, Principal.of_owner("default"), task, task.thread_id, dialect, lines).follow(
        receipt.run_id, None
    )
