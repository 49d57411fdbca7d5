"""Time to the first page of a long thread, in each protocol that lists the contents of a thread.

    .venv/bin/python -m bench.pages [--events 50000] [--times 20]

One thread of the echo agent is filled over A2A, run after run. A new gateway is started on this database for each list,
and first returns the same list of a short thread. Then the list of the long thread is requested on one connection:
`first` reads the thread from the database, and later times use what the gateway keeps in memory. If a protocol has no
pages, the complete list is measured.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from bench import server, work
from bench.client import KeepAliveConnection
from bench.server import ServerProcess

AIM: Final = 50.0
"""Target for the first page, in milliseconds."""
EVENTS_OF_RUN: Final = 10
"""Number of events in the log of one run of the echo agent."""

Ask = Callable[[KeepAliveConnection, str], Awaitable[bytes]]
"""Function that requests one list: (connection, thread id) → response body."""


@dataclass(frozen=True, slots=True)
class PageRow:
    first: float
    """Duration of the first request of the long list, which reads the thread from the database, in milliseconds."""
    median: float
    most: float
    cpu: float
    """CPU time of the server for each request after the first, in milliseconds."""
    size: int
    """Size of the response, in bytes."""


def _list_path(path: str) -> Ask:
    return lambda connection, thread: connection.get(path.replace("{thread}", thread))


async def _list_tasks(connection: KeepAliveConnection, thread: str) -> bytes:
    params = {"contextId": thread, "pageSize": 50}
    request = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": params}
    return await connection.post("/a2a/echo", work.encode(request), work.A2A)


async def _list_items(connection: KeepAliveConnection, thread: str) -> bytes:
    return await connection.get(f"/v1/conversations/conv_{UUID(thread).hex}/items")


LISTS: Final[Mapping[str, Ask]] = {
    "A2A tasks, 50": _list_tasks,
    "ACP session, whole": _list_path("/acp/session/{thread}"),
    "AIEF steps, 10": _list_path("/agent/echo/ap/v1/agent/tasks/{thread}/steps"),
    "LangGraph runs, 10": _list_path("/threads/{thread}/runs"),
    "LangGraph history, 10": _list_path("/threads/{thread}/history"),
    "OpenAI items, 20": _list_items,
}


async def fill(port: int, runs: int) -> str:
    """Create a thread with `runs` runs on the gateway at `port`, and return its id."""
    connection = await KeepAliveConnection.open(port)
    thread = ""
    for number in range(runs):
        body: Any = work.a2a_message("SendMessage")(number)
        if thread:
            body["params"]["message"]["contextId"] = thread
        answer = json.loads(await connection.post("/a2a/echo", work.encode(body), work.A2A))
        thread = thread or answer["result"]["task"]["metadata"]["babelgate"]["threadId"]
    connection.close()
    return thread


async def measure(gateway: ServerProcess, ask: Ask, thread: str, short: str, times: int) -> PageRow:
    connection = await KeepAliveConnection.open(gateway.port)
    await ask(connection, short)
    begun = time.perf_counter()
    answer = await ask(connection, thread)
    first = (time.perf_counter() - begun) * 1000
    durations: list[float] = []
    used = gateway.cpu
    for _ in range(times):
        begun = time.perf_counter()
        await ask(connection, thread)
        durations.append((time.perf_counter() - begun) * 1000)
    used = (gateway.cpu - used) / times * 1000
    connection.close()
    return PageRow(first, statistics.median(durations), max(durations), used, len(answer))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.pages", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=50_000, help="events in the long thread (50000)")
    parser.add_argument("--times", type=int, default=20, help="requests of each list (20)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only lists whose name contains this text")
    options = parser.parse_args()
    runs = max(1, options.events // EVENTS_OF_RUN)
    server.pin_client()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with server.running(server.gateway(), home) as gateway:
            thread, short = asyncio.run(fill(gateway.port, runs)), asyncio.run(fill(gateway.port, 1))
        print(f"a thread of {runs * EVENTS_OF_RUN} events in {runs} runs; times in ms, aim of the first {AIM:.0f}")
        print(f"{'':24}{'first':>9}{'median':>9}{'most':>9}{'CPU':>9}{'KB':>9}")
        for name, ask in LISTS.items():
            if options.only not in name:
                continue
            with server.running(server.gateway(), home) as gateway:
                row = asyncio.run(measure(gateway, ask, thread, short, options.times))
            times = f"{row.first:>9.1f}{row.median:>9.1f}{row.most:>9.1f}{row.cpu:>9.1f}"
            print(f"{name:24}{times}{row.size / 1000:>9.0f}{'' if row.first <= AIM else '  above the aim'}", flush=True)


if __name__ == "__main__":
    main()
