"""Memory of an idle stream: the agent has sent one word and is still running.

The figures are memory of the gateway's process per stream. For comparison, the official A2A server and ASGI without a
framework are measured, too.

    .venv/bin/python -m bench.idle [--streams 1000] [--only A2A]
"""

import argparse
import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Final

from bench import server, work
from bench.client import KeepAliveConnection
from bench.compare import PEERS, REFERENCES
from bench.comparison import RAW
from bench.server import ServerProcess

Request = tuple[str, bytes, str]
"""Request that opens a stream: its path, its body, and its header lines, each ended by CR LF."""

STREAMS: Mapping[str, Request] = {
    "A2A 1.0": ("/a2a/think", work.encode(work.a2a_message("SendStreamingMessage")(1)), work.A2A),
    "ACP": ("/acp/runs", work.encode({**work.acp_run("think"), "mode": "stream"}), ""),
    "LangGraph": ("/runs/stream", work.encode({**work.langgraph_run("think"), "stream_mode": ["messages-tuple"]}), ""),
}


SILENCE: Final = 12.0
"""Seconds of silence between the first streams and the others: the gateway drops the newest records of a thread after
10 seconds."""


async def think(text: str) -> AsyncGenerator[str]:
    yield "Well…"
    await asyncio.Event().wait()


async def open_streams(port: int, request: Request, count: int) -> list[KeepAliveConnection]:
    """Open `count` streams, and wait until each has received the word that its agent sends."""
    connections: list[KeepAliveConnection] = []

    async def open_one() -> None:
        connection = await KeepAliveConnection.open(port)
        connections.append(connection)
        await connection.read_until(*request, "Well…".encode())

    for begun in range(0, count, 50):
        await asyncio.gather(*(open_one() for _ in range(begun, min(count, begun + 50))))
    return connections


def resident(target: ServerProcess) -> int:
    """Return the resident memory of a server in bytes."""
    return int(Path(f"/proc/{target.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def targets() -> Mapping[str, tuple[Sequence[str], Mapping[str, str], Request]]:
    """Return the command, its environment and the request of each target, by name."""
    gateway = server.gateway("think=bench.idle:think")
    found: dict[str, tuple[Sequence[str], Mapping[str, str], Request]] = {
        name: (gateway, {}, request) for name, request in STREAMS.items()
    }
    sdk, (_, body, headers) = REFERENCES["a2a-sdk 1.3"], STREAMS["A2A 1.0"]
    if (PEERS / sdk.peer / "bin" / "python").is_file():
        found["a2a-sdk 1.3"] = sdk.command(0), {"PYTHONPATH": ""}, ("/think", body, headers)
    found[RAW] = server.uvicorn("bench.bare:raw"), {}, ("/think", body, headers)
    return found


async def measure(target: ServerProcess, request: Request, count: int) -> tuple[float, float]:
    """Return the bytes per stream of the first `count` streams, and of as many more: they use memory again that the
    first ones have released in `SILENCE`.

    Other streams have been opened and closed before, so memory that stays allocated after them is not counted."""
    for connection in await open_streams(target.port, request, 100):
        connection.close()
    before = resident(target)
    connections = await open_streams(target.port, request, count)
    between = resident(target)
    await asyncio.sleep(SILENCE)  # another process, which reports nothing
    connections += await open_streams(target.port, request, count)
    after = resident(target)
    for connection in connections:
        connection.close()
    return (between - before) / count, (after - between) / count


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.idle", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=1000, help="number of streams (1000)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only protocols whose name contains this text")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, (command, environment, request) in targets().items():
            if options.only not in name:
                continue
            with server.running(command, Path(folder, name), environment=environment) as target:
                first, more = asyncio.run(measure(target, request, options.streams))
            print(f"{name:12}{first / 1024:>8.1f} KiB a stream{more / 1024:>8.1f} KiB each of as many more", flush=True)


if __name__ == "__main__":
    main()
