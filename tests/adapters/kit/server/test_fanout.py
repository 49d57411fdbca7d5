"""A record is encoded once for all who read the same view, and whoever shares sees what it would have seen alone."""

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
from babelgate.canonical import Hub, Message, Receipt, Record, RunInput, Submission
from babelgate.canonical.event import Custom
from tests.running import running

RECORDS = [Record(seq=seq, at=seq, task_id="t", run_id=None, attempt=0, event=Custom()) for seq in range(1, 41)]


class Chain:
    """An encoder whose every frame depends on all records before."""

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
        made = cls()
        for record in records:
            made.write(record)
        return made


ALONE = [Chain.after(RECORDS[:number]).write(record) for number, record in enumerate(RECORDS)]


class Reader:
    """Comes when `place` records are there, and checks all that it is told."""

    def __init__(self, lines: FanoutCache, place: int = 0, *, started_run: bool = False) -> None:
        self.place = place
        self.rebuilt = 0
        self.encoder = Chain.after(RECORDS[:place])
        self.follower: Follower = lines.join(
            "view", self.encoder, RECORDS[:place], self._again, started_run=started_run
        )

    async def _again(self, seq: int) -> Encoder:
        self.rebuilt += 1
        return Chain.after([record for record in RECORDS if record.seq < seq])

    async def step(self) -> EncodedRecord:
        told = await self.follower.write_record(RECORDS[self.place])
        assert told == ALONE[self.place]
        self.place += 1
        return told

    async def to(self, place: int) -> None:
        while self.place < place:
            await self.step()


async def shared(one: Reader, other: Reader) -> bool:
    """Whether two readers at one place are given the same bytes, and not only equal ones."""
    assert one.place == other.place
    return await one.step() is await other.step()


async def test_readers_of_one_view_are_given_what_was_encoded_once() -> None:
    lines = FanoutCache()
    readers = [Reader(lines) for _ in range(100)]
    for _ in RECORDS:
        told = [await reader.step() for reader in readers]
        assert all(one is other for one, other in pairwise(told))
    assert [reader.encoder.read for reader in readers] == [len(RECORDS), *[0] * 99]


async def test_who_falls_behind_encodes_for_itself_until_it_has_caught_up() -> None:
    lines = FanoutCache(FanoutLimits(records=5))
    slow, fast = Reader(lines), Reader(lines)
    await slow.step()
    await fast.to(len(RECORDS))
    await slow.to(len(RECORDS) - 5)
    assert slow.rebuilt == 1
    assert await shared(slow, Reader(lines, len(RECORDS) - 5))
    assert slow.rebuilt == 1


async def test_who_falls_behind_again_after_it_had_caught_up_begins_again_from_the_log() -> None:
    lines = FanoutCache(FanoutLimits(records=5))
    fast = Reader(lines)
    slow = Reader(lines)
    for place, rebuilt in ((10, 1), (20, 2), (30, 3)):
        await slow.step()
        await fast.to(place)
        await slow.to(place)
        assert slow.rebuilt == rebuilt


async def test_what_is_kept_is_bounded_in_bytes_too() -> None:
    lines = FanoutCache(FanoutLimits(bytes=3 * 32))
    fast = Reader(lines)
    await fast.to(len(RECORDS))
    assert await shared(*(Reader(lines, len(RECORDS) - 3) for _ in range(2)))
    assert not await shared(*(Reader(lines, len(RECORDS) - 4) for _ in range(2)))
    assert fast.place == len(RECORDS)


async def test_the_only_reader_of_its_own_run_keeps_little_until_another_joins() -> None:
    lines = FanoutCache(FanoutLimits(single_reader_bytes=2 * 32))
    first = Reader(lines, started_run=True)
    await first.to(20)
    late, later = (Reader(lines, 10) for _ in range(2))
    await first.to(30)
    await late.to(17)
    await later.to(17)
    assert not await shared(late, later)
    assert await shared(late, later)
    await late.to(30)
    await later.to(20)
    assert (late.rebuilt, later.rebuilt) == (0, 0)


async def test_one_frame_that_is_larger_than_the_bound_is_shared_all_the_same() -> None:
    lines = FanoutCache(FanoutLimits(bytes=1))
    assert await shared(Reader(lines), Reader(lines))


async def test_who_comes_ahead_of_the_others_brings_them_up() -> None:
    lines = FanoutCache()
    first = Reader(lines)
    await first.to(2)
    ahead = Reader(lines, 10)
    await first.to(10)
    assert first.rebuilt == 0
    assert await shared(first, ahead)


async def test_who_comes_far_ahead_begins_anew_and_those_who_come_then_share_with_it() -> None:
    lines = FanoutCache(FanoutLimits(ahead=3))
    first = Reader(lines)
    ahead, newest = Reader(lines, 10), Reader(lines, 10)
    assert first.encoder.read == 0
    assert await shared(ahead, newest)
    await first.to(len(RECORDS))
    assert (first.rebuilt, first.encoder.read) == (0, len(RECORDS))


async def test_nothing_is_kept_for_nobody() -> None:
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
async def test_each_reader_sees_what_it_would_see_alone(bounds: FanoutLimits, moves: list[tuple[int, int]]) -> None:
    lines = FanoutCache(bounds)
    readers: dict[int, Reader] = {}
    for who, where in moves:
        reader = readers.get(who)
        if reader is None or reader.place == len(RECORDS):
            readers[who] = Reader(lines, where)
        else:
            await reader.to(min(reader.place + 1 + where % 7, len(RECORDS)))


# In the adapters


@pytest.mark.parametrize("protocol", ["acp", "a2a-0.3", "a2a-1.0"])
async def test_a_thousand_readers_are_sent_frames_that_were_encoded_once(tmp_path: Path, protocol: str) -> None:
    gate = asyncio.Event()

    async def agent(text: str) -> AsyncGenerator[str]:
        yield "first"
        await gate.wait()
        for number in range(10):
            yield f" {number}"

    async with running(tmp_path, {"agent": agent}) as gateway:
        asked = Submission(agent="agent", input=RunInput(messages=(Message.of("go", "user"),)))
        receipt = await gateway.hub.submit("default", asked)
        lines = FanoutCache()
        begun = asyncio.Semaphore(0)

        async def read() -> list[bytes]:
            frames: list[bytes] = []
            async with aclosing(reading(protocol, gateway.hub, receipt, lines)) as batches:
                async for batch in batches:
                    frames += batch
                    begun.release()
            return frames

        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            readers = [group.create_task(read()) for _ in range(1000)]
            for _ in readers:
                await begun.acquire()
            gate.set()
        seen = [reader.result() for reader in readers]
    last = [frames[-10:] for frames in seen]
    assert len(last[0]) == 10
    assert {id(frame) for frames in last for frame in frames} == {id(frame) for frame in last[0]}
    assert all(frames == seen[0] for frames in seen)


def reading(protocol: str, hub: Hub, receipt: Receipt, lines: FanoutCache) -> AsyncGenerator[Sequence[Any]]:
    if protocol == "acp":
        view = EncodingContext(run_id=receipt.task_id, session_id=receipt.thread_id, agent="agent")
        return AcpReading(hub, "default", [receipt.task], view, stop_after=receipt.seq).follow(lines)
    dialect = (Codec if protocol == "a2a-1.0" else Codec03)("http://127.0.0.1", "agent")
    task = receipt.task
    return A2AReading(hub, "default", task, task.thread_id, dialect, lines).follow(receipt.run_id, None)
