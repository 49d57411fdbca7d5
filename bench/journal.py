"""Speed of the journal alone, on SQLite or PostgreSQL, without HTTP, hub and agents.

    .venv/bin/python -m bench.journal sqlite:///new.db
    .venv/bin/python -m bench.journal postgresql://jane@127.0.0.1/empty

The database must be empty. The figures are those of the shortest of five rounds. `--shared` measures a PostgreSQL
database that one gateway has to itself, and one that several share, three times in turn. It also measures the time from
a commit of one gateway until another one is notified.
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from statistics import quantiles
from typing import Final

from babelgate.canonical.event import PartDelta, ThreadChanged, encode_event
from babelgate.gateway.ids import new_id
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.transaction import Transaction

_ROUNDS: Final = 5
_RUNS: Final = 32
"""Number of threads that are written at the same time."""
_EVENTS: Final = 10_000


def _create(tx: Transaction, thread_id: str) -> int:
    return tx.create_thread("o", thread_id, ThreadChanged()).pk


def _change(tx: Transaction, thread_id: str) -> None:
    tx.append(tx.need_thread("o", thread_id), ThreadChanged())


def _say(tx: Transaction, thread_id: str, events: list[tuple[PartDelta, bytes]]) -> None:
    tx.append_all(tx.need_thread("o", thread_id), events, task_id=None, run_id=None, attempt=0)


async def measure(url: str, place: str = "", *, shared: bool = False) -> None:
    journal = Journal(url, shared=shared)
    await journal.open()

    async def show(name: str, count: int, work: Callable[[], Awaitable[None]]) -> None:
        durations: list[float] = []
        for _ in range(_ROUNDS):
            begun = time.perf_counter()
            await work()
            durations.append(time.perf_counter() - begun)
        how = f"{name}, shared" if shared else name
        print(f"{how}: {min(durations) / count * 1e6:.1f} µs each, {count / min(durations):,.0f} a second")

    async def one_by_one() -> None:
        for _ in range(500):
            await journal.write(_change, f"{place}0")

    async def streams() -> None:
        delta = PartDelta(message_id=new_id(), index=0, text="some words ")
        batch = [(delta, encode_event(delta))] * 16
        for _ in range(40):
            await asyncio.gather(*(journal.write(_say, f"{place}{each}", batch) for each in range(_RUNS)))

    async def small_pages() -> None:
        for seq in range(500):
            await journal.page(pk, seq, 1)

    async def replay() -> None:
        after = 0
        while after < _EVENTS:
            after = (await journal.page(long, after))[-1].seq

    try:
        keys = [await journal.write(_create, f"{place}{each}") for each in range(_RUNS)]
        pk, long = keys[0], keys[-1]
        await show("commands, one after the other", 500, one_by_one)
        await show(f"events of {_RUNS} streams, 16 at a time", 40 * _RUNS * 16, streams)
        event = PartDelta(message_id=new_id(), index=0, text="some words ")
        await journal.write(_say, f"{place}{_RUNS - 1}", [(event, encode_event(event))] * _EVENTS)
        await show("reads of one record", 500, small_pages)
        await show(f"records of a log of {_EVENTS}", _EVENTS, replay)
    finally:
        await journal.close()


async def measure_together(url: str) -> None:
    """Measure two gateways: each on different threads, then both on one thread, and then the delay from a commit of one
    to its notification of the other."""
    nodes = [Journal(url, shared=True) for _ in range(2)]
    for node in nodes:
        await node.open()
    one, other = nodes
    delta = PartDelta(message_id=new_id(), index=0, text="some words ")
    batch = [(delta, encode_event(delta))] * 16
    try:
        keys = [await one.write(_create, f"together {n}") for n in range(_RUNS)]
        durations: list[float] = []
        for _ in range(_ROUNDS):
            begun = time.perf_counter()
            for _ in range(40):
                await asyncio.gather(*(nodes[n % 2].write(_say, f"together {n}", batch) for n in range(_RUNS)))
            durations.append(time.perf_counter() - begun)
        print(
            f"events of {_RUNS} streams, two gateways in one process: {40 * _RUNS * 16 / min(durations):,.0f} a second"
        )
        begun, races = time.perf_counter(), one.races + other.races
        await asyncio.gather(*(_write_often(node, 250) for node in nodes))
        each = (time.perf_counter() - begun) / 500
        races = one.races + other.races - races
        print(f"commands of two gateways on one thread: {each * 1e6:.1f} µs each, {races / 500:.2f} times done again")
        channel, waits, commits = other.channels.get(keys[0]), list[float](), list[float]()
        for _ in range(500):
            notification = asyncio.ensure_future(channel.more())
            begun = time.perf_counter()
            writing = one.write(_say, "together 0", batch[:1])
            writing.add_done_callback(lambda _, begun=begun: commits.append(time.perf_counter() - begun))
            await notification
            waits.append(time.perf_counter() - begun)
            await writing
        for what, times in (("acknowledged", commits), ("heard of by the other gateway", waits)):
            p50, p99 = quantiles(times, n=100)[49::49]
            print(f"a command, until it is {what}: p50 {p50 * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms")
    finally:
        for node in nodes:
            await node.close()


async def _write_often(node: Journal, count: int) -> None:
    for _ in range(count):
        await node.write(_change, "together 0")


async def compare(url: str) -> None:
    for turn in range(3):
        for shared in (False, True):
            await measure(url, f"{turn} {shared} ", shared=shared)
    await measure_together(url)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m bench.journal", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url", metavar="URL", help="URL of an empty database")
    parser.add_argument("--shared", action="store_true", help="also measure several gateways on one PostgreSQL")
    options = parser.parse_args()
    asyncio.run(compare(options.url) if options.shared else measure(options.url))
