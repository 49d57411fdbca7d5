"""Time to the first event of a stream, from the gateway and from the official servers, one call after the other.

The gateway has stored the run by then.

    .venv/bin/python -m bench.first [--jobs 50] [--rounds 5] [--only ACP]
"""

import argparse
import asyncio
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench import server, work
from bench.client import KeepAliveConnection
from bench.compare import GATEWAY, start
from bench.comparison import ServerComparison
from bench.server import ServerProcess
from bench.work import Job

STREAMS: Final[dict[str, tuple[Job, str, Job]]] = {
    "A2A 1.0": (work.a2a_stream(), "a2a-sdk 1.3", work.a2a_stream("/stream")),
    "A2A 0.3": (
        work.a2a_stream(method="message/stream"),
        "a2a-sdk 0.3",
        work.a2a_stream("/stream/", "message/stream"),
    ),
    "ACP": (work.acp_stream(), "acp-sdk", work.acp_stream("/runs", "echo")),
}
"""Streams by protocol: the gateway's job, the official server, and the job of that server."""


async def wait_for_first(target: ServerProcess, job: Job, jobs: int) -> float:
    """Return the median time from a request to the first bytes of its stream, in milliseconds."""
    connection = await KeepAliveConnection.open(target.port)
    waited: list[float] = []
    for number in range(jobs):
        await job(connection, number)
        waited.append(connection.waited * 1000)
    connection.close()
    return statistics.median(waited)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.first", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=50, help="jobs per round (50)")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds (5)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only protocols whose name contains this text")
    options = parser.parse_args()
    streams = {name: each for name, each in STREAMS.items() if options.only in name}
    found: dict[tuple[str, str], list[float]] = {}
    server.pin_client()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        comparison = ServerComparison("", {}, {}, 1)
        started = start(Path(folder), {each[1] for each in streams.values()}, 1, stack, comparison)
        for number in range(options.rounds + 1):  # the first warms up
            for name, (gateway_job, reference, reference_job) in streams.items():
                for on, job in ((GATEWAY, gateway_job), (reference, reference_job)):
                    if on in started:
                        waited = asyncio.run(wait_for_first(started[on], job, options.jobs if number else 10))
                        if number:
                            found.setdefault((name, on), []).append(waited)
    for name, why in comparison.missing.items():
        print(f"left out: {name}, {why}")
    print("first event of a stream of 200 words, 1 connection, median ms")
    for (name, on), each in found.items():
        print(f"{name:12}{on:16}{statistics.median(each):>8.2f}")


if __name__ == "__main__":
    main()
