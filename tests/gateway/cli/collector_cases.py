"""Tests of the garbage collector's policy, by the objects that its runs visit, and not by time.

`test_collector` runs them in a separate process: the collector visits the objects of the whole process."""

import gc
import weakref
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

from babelgate.gateway.cli.collector import YOUNG, Collector
from bench.client import KeepAliveConnection
from bench.idle import STREAMS, think
from tests.running import running

STREAM_COUNT: Final = 200
MOST: Final = 6 * YOUNG
"""Maximum number of objects that one run may visit: five times generation 0, and the objects of one request that is
handled meanwhile."""


class Node:
    """Object in a reference cycle with itself."""

    def __init__(self) -> None:
        self.itself = self


class Memory:
    """Number of used memory blocks, which the test sets."""

    def __init__(self) -> None:
        self.blocks = 0

    def __call__(self) -> int:
        return self.blocks


@pytest.fixture(autouse=True)
def restored_collector() -> Generator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()
    gc.collect()
    gc.freeze()


@pytest.fixture
def visited() -> Generator[list[int]]:
    """Number of objects that each run of the collector visits."""
    visits: list[int] = []

    def note(phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            visits.append(sum(len(gc.get_objects(number)) for number in range(info["generation"] + 1)))

    gc.callbacks.append(note)
    yield visits
    gc.callbacks.remove(note)


async def test_idle_streams_do_not_lengthen_a_collection(tmp_path: Path, visited: list[int]) -> None:
    request = STREAMS["A2A 1.0"]
    async with running(tmp_path, {"think": think}) as gateway:
        port = int(gateway.url.rpartition(":")[2])
        collector, connections = Collector(), list[KeepAliveConnection]()
        visited.clear()
        for number in range(2 * STREAM_COUNT):  # each of the second half replaces one of the first
            if number >= STREAM_COUNT:
                connections[number - STREAM_COUNT].close()
            connections.append(await KeepAliveConnection.open(port))
            await connections[-1].read_until(*request, "Well…".encode())
            if number % 20 == 0:
                collector.tick(number, is_active=True)
        assert len(gc.get_objects()) > 2 * MOST  # which a full collection would visit
        for connection in connections:
            connection.close()
    assert len(visited) > 2 * STREAM_COUNT // 20
    assert max(visited) <= MOST


def test_old_garbage_is_collected_after_seconds_without_runs() -> None:
    collector, node = Collector(), Node()
    for second in range(10):
        collector.tick(second, is_active=True)
    garbage = weakref.ref(node)
    del node
    for second in range(10, 14):
        collector.tick(second, is_active=False)
    assert garbage() is not None  # a run may begin
    collector.tick(14, is_active=False)
    assert garbage() is None


def test_many_new_objects_are_not_visited_without_runs(visited: list[int]) -> None:
    memory = Memory()
    collector = Collector(memory)
    collector.tick(0, is_active=True)
    visited.clear()
    memory.blocks = 100_000
    for second in range(1, 100):
        collector.tick(second, is_active=False)
    assert max(visited) <= MOST


@pytest.mark.parametrize(("cycles", "most"), [(0, 6_000_000), (10_000, 6_000_000), (300_000, 500_000)])
def test_growth_collects_frozen_garbage_although_runs_are_active(cycles: int, most: int) -> None:
    node, memory = Node(), Memory()
    collector = Collector(memory)
    garbage = weakref.ref(node)
    del node
    for _ in range(cycles):
        Node()
    memory.blocks = most - 1
    for second in range(10):
        collector.tick(second, is_active=True)
    assert garbage() is not None
    memory.blocks = most
    collector.tick(10, is_active=True)
    assert garbage() is None


def test_after_all_objects_were_visited_memory_may_grow_again() -> None:
    memory = Memory()
    collector = Collector(memory)
    memory.blocks = 6_000_000
    collector.tick(0, is_active=True)
    node = Node()
    gc.freeze()
    garbage = weakref.ref(node)
    del node
    memory.blocks += 1_000_000
    collector.tick(1, is_active=True)
    assert garbage() is not None
