"""Tests of the cache of log pages that readers share."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.canonical import Record
from babelgate.canonical.event import Custom
from babelgate.gateway.storage.page_cache import BLOCK, PageCache, RecordPage, fitting
from tests.gateway.hubs import within

PK = 7


def record(seq: int, name: str = "") -> Record:
    return Record(seq, seq, None, None, 0, Custom(name=name))


class Log:
    """A log in memory that counts its queries and can delay them."""

    def __init__(self, end: int, size: int = 10, room: int = 10_000, most: int = 2**24) -> None:
        self.end = end
        self.name = ""
        self.queries: list[tuple[int, int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.begun = asyncio.Semaphore(0)
        self.fails = False
        self._size = size
        self._room = room
        self.cache = PageCache(self._load, most)

    async def _load(self, pk: int, after: int, until: int) -> tuple[Sequence[Record], Sequence[int], bool]:
        self.queries.append((after, until))
        records = [record(seq, self.name) for seq in range(after + 1, min(until, self.end) + 1)]
        self.begun.release()
        await self.gate.wait()
        if self.fails:
            raise OSError
        most = self._room // self._size + 1
        is_cut = len(records) > most
        records = records[:most]
        return records, [self._size] * len(records), is_cut

    async def read(self, after: int = 0, until: int | None = None) -> list[int]:
        seqs: list[int] = []
        while page := (await within(self.cache.get(PK, after, until))).select(after, until, 100):
            seqs += [each.seq for each in page]
            after = seqs[-1]
        return seqs


async def test_readers_of_one_log_share_its_pages() -> None:
    log = Log(3 * BLOCK)
    for after in (0, 0, 5, BLOCK + 3):
        assert await log.read(after) == list(range(after + 1, log.end + 1))
    assert log.queries[:3] == [(0, BLOCK), (BLOCK, 2 * BLOCK), (2 * BLOCK, 3 * BLOCK)]
    assert {begin for begin, _ in log.queries[3:]} <= {log.end}


async def test_readers_waiting_for_one_page_share_one_query() -> None:
    log = Log(BLOCK)
    log.gate.clear()
    readers = [asyncio.ensure_future(log.cache.get(PK, 0)) for _ in range(50)]
    await within(log.begun.acquire())
    log.gate.set()
    pages = await within(asyncio.gather(*readers))
    assert len({id(page) for page in pages}) == 1
    assert log.queries == [(0, BLOCK)]


async def test_a_cancelled_reader_does_not_cancel_a_shared_query() -> None:
    log = Log(BLOCK)
    log.gate.clear()
    first, second = (asyncio.ensure_future(log.cache.get(PK, 0)) for _ in range(2))
    await within(log.begun.acquire())
    first.cancel()
    log.gate.set()
    assert (await within(second)).last == BLOCK


async def test_the_end_of_a_log_is_read_again() -> None:
    log = Log(10)
    assert await log.read() == list(range(1, 11))
    log.end = 20
    assert await log.read() == list(range(1, 21))


async def test_a_reader_sees_commits_after_another_readers_query_began() -> None:
    log = Log(10)
    log.gate.clear()
    early = asyncio.ensure_future(log.cache.get(PK, 0))
    await within(log.begun.acquire())
    log.end = 11
    late = asyncio.ensure_future(log.cache.get(PK, 0))
    log.gate.set()
    assert (await within(early)).last == 10
    assert (await within(late)).last == 11


async def test_a_log_that_was_rewritten_is_read_again() -> None:
    log = Log(BLOCK)
    await log.read()
    log.name = "new"
    log.cache.forget(PK)
    assert {each.event.name for each in (await log.cache.get(PK, 0)).records if isinstance(each.event, Custom)} == {
        "new"
    }


async def test_a_query_begun_before_a_rewrite_is_not_cached() -> None:
    log = Log(BLOCK)
    log.gate.clear()
    old = asyncio.ensure_future(log.cache.get(PK, 0))
    await within(log.begun.acquire())
    log.cache.forget(PK)
    log.name = "new"
    new = asyncio.ensure_future(log.cache.get(PK, 0))
    await within(log.begun.acquire())
    log.gate.set()
    await within(old)
    page = await within(new)
    assert log.cache.find(PK, 0) is page
    assert page.records[0] == record(1, "new")


async def test_a_reader_can_refuse_an_older_page() -> None:
    log = Log(BLOCK)
    page = await log.cache.get(PK, 0)
    assert log.cache.find(PK, 0, since=page.loaded_at) is page
    later = page.loaded_at + 1
    assert log.cache.find(PK, 0, since=later) is None
    assert await log.cache.get(PK, 0, since=later) is not page


async def test_a_failed_query_fails_all_waiters_and_is_retried() -> None:
    log = Log(BLOCK)
    log.fails = True
    for _ in range(2):
        with pytest.raises(OSError):
            await within(log.cache.get(PK, 0))
    assert len(log.queries) == 2


async def test_the_number_of_cached_pages_is_bounded() -> None:
    weight = (await Log(BLOCK).cache.get(PK, 0)).weight
    log = Log(10 * BLOCK, most=3 * weight)
    for number in range(10):
        await log.cache.get(PK, number * BLOCK)
    cached = [number for number in range(10) if log.cache.find(PK, number * BLOCK) is not None]
    assert cached == [7, 8, 9]


@given(
    st.integers(0, 3 * BLOCK),
    st.lists(st.tuples(st.integers(0, 3 * BLOCK), st.none() | st.integers(0, 3 * BLOCK)), max_size=5),
    st.sampled_from([100, 3000, 10**6]),
)
async def test_any_part_of_a_log_is_read_without_a_gap(
    end: int, parts: list[tuple[int, int | None]], room: int
) -> None:
    log = Log(end, room=room)
    for after, until in parts:
        assert await log.read(after, until) == list(range(after + 1, min(end, end if until is None else until) + 1))


def test_a_slice_is_bounded_by_records_and_bytes() -> None:
    page = RecordPage(10, [record(seq) for seq in range(11, 21)], [100] * 10)
    assert [each.seq for each in page.select(10, limit=3)] == [11, 12, 13]
    assert [each.seq for each in page.select(12, room=250)] == [13, 14]
    assert [each.seq for each in page.select(12, room=1)] == [13]
    assert [each.seq for each in page.select(12, 14)] == [13, 14]
    assert page.select(10) is page.records
    assert list(page.select(20)) == []
    assert fitting([], 0, 0, 10) == 0
