"""Tests of trimming the heap after many connections have closed."""

import asyncio

from babelgate.gateway.cli.memory import Trimmer, give_back_blocks, trim
from tests.gateway.hubs import within


class Heap:
    """Heap that counts its trims, with a clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.trimmed = asyncio.Semaphore(0)
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self.trimmer = Trimmer(lambda: self.now, self._trim)

    def _trim(self) -> None:
        self.count += 1
        self._loop.call_soon_threadsafe(self.trimmed.release)

    def look(self, *connections: int) -> None:
        for number in connections:
            self.trimmer.observe(number)


async def test_the_heap_is_trimmed_after_many_connections_have_closed() -> None:
    heap = Heap()
    heap.look(0, 100, 90)
    assert heap.count == 0
    heap.look(10)
    await within(heap.trimmed.acquire())
    heap.now += 60
    heap.look(10, 5, 0)
    assert heap.count == 1


async def test_the_heap_is_not_trimmed_again_within_seconds() -> None:
    heap = Heap()
    heap.look(100, 0)
    await within(heap.trimmed.acquire())
    heap.look(100, 0)
    assert heap.count == 1
    heap.now += 60
    heap.look(0)
    await within(heap.trimmed.acquire())


def test_trimming_works_with_every_libc() -> None:
    give_back_blocks()
    trim()
