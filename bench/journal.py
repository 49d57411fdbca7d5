"""What the journal takes by itself, in SQLite or in PostgreSQL, without HTTP, hub and agents.

    .venv/bin/python -m bench.journal sqlite:///new.db
    .venv/bin/python -m bench.journal postgresql://jane@127.0.0.1/empty

The database is to be empty. Shown is the shortest of five rounds.
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from canonical.event import PartDelta, ThreadChanged, encode_event
from gateway.ids import new_id
from gateway.storage.journal import Journal
from gateway.storage.transaction import Transaction

_ROUNDS: Final = 5
_RUNS: Final = 32
"""Threads on which something is said at the same time."""
_EVENTS: Final = 10_000


def _change(tx: Transaction) -> None:
    tx.append(tx.need_thread("o", "0"), ThreadChanged())


def _say(tx: Transaction, thread_id: str, said: list[tuple[PartDelta, bytes]]) -> None:
    tx.append_all(tx.need_thread("o", thread_id), said, task_id=None, run_id=None, attempt=0)


async def measure(url: str) -> None:
    journal = Journal(url)
    await journal.open()

    async def show(name: str, count: int, work: Callable[[], Awaitable[None]]) -> None:
        took: list[float] = []
        for _ in range(_ROUNDS):
            begun = time.perf_counter()
            await work()
            took.append(time.perf_counter() - begun)
        print(f"{name}: {min(took) / count * 1e6:.1f} µs each, {count / min(took):,.0f} a second")

    async def one_by_one() -> None:
        for _ in range(500):
            await journal.write(_change)

    async def streams() -> None:
        said = PartDelta(message_id=new_id(), index=0, text="some words ")
        batch = [(said, encode_event(said))] * 16
        for _ in range(40):
            await asyncio.gather(*(journal.write(_say, str(each), batch) for each in range(_RUNS)))

    async def small_pages() -> None:
        for seq in range(500):
            await journal.page(pk, seq, 1)

    async def replay() -> None:
        after = 0
        while after < _EVENTS:
            after = (await journal.page(long, after))[-1].seq

    try:
        made = [
            await journal.write(lambda tx, each=each: tx.create_thread("o", str(each), ThreadChanged()).pk)
            for each in range(_RUNS)
        ]
        pk, long = made[0], made[-1]
        await show("commands, one after the other", 500, one_by_one)
        await show(f"events of {_RUNS} streams, 16 at a time", 40 * _RUNS * 16, streams)
        event = PartDelta(message_id=new_id(), index=0, text="some words ")
        await journal.write(_say, str(_RUNS - 1), [(event, encode_event(event))] * _EVENTS)
        await show("reads of one record", 500, small_pages)
        await show(f"records of a log of {_EVENTS}", _EVENTS, replay)
    finally:
        await journal.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    asyncio.run(measure(parser.parse_args().url))
