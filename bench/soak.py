"""Pauses and memory of a gateway with thousands of idle streams, while callers stream tokens.

An idle stream is one whose agent has sent one word and is still running. Each caller streams 200 tokens, over and over.
Another process requests `/healthz` every 50 ms.

    .venv/bin/python -m bench.soak [--idle 5000] [--callers 200] [--every 4] [--minutes 10] [--upstream]

With `--upstream`, the agents are on an A2A server behind the gateway. The gateway is pinned to one core, and the client
to the others. Pauses are CPU time, measured in the gateway's process: those of the collector, and the longest steps of
the event loop. They are the figures to compare on a machine with other load, which `/healthz` feels, too.

The exit code is 1 if a stream broke.
"""

import argparse
import asyncio
import gc
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from bench import collected, probe, server, work
from bench.client import KeepAliveConnection
from bench.idle import resident
from bench.proxy import NO_PROXY
from bench.server import ServerProcess
from bench.upstream import WAITS

_RESERVE: Final = 256
"""Number of open files of each process in addition to two per stream: its database, its log and its libraries."""
_AT_ONCE: Final = 50
"""Number of idle streams that are opened at the same time."""
_SAMPLES: Final = 10
"""Number of samples of memory and descriptors between the start and the end."""


@dataclass(slots=True)
class Streams:
    """Counts of the streams of a soak."""

    whole: int = 0
    broken: list[str] = field(default_factory=list[str])
    """Reason of each stream that broke."""
    late: int = 0
    """Number of streams that started late, because the caller's last one took too long."""


@dataclass(frozen=True, slots=True)
class Sample:
    """State of the gateway's process at one time."""

    memory: int
    """Resident memory in bytes."""
    descriptors: int

    @classmethod
    def of(cls, target: ServerProcess) -> "Sample":
        return cls(resident(target), sum(1 for _ in Path(f"/proc/{target.pid}/fd").iterdir()))


async def soak(text: str) -> AsyncGenerator[str]:
    """Repeat the words of the input, or send one word and wait."""
    if text == WAITS:
        yield "Well…"
        await asyncio.Event().wait()
    for word in text.split(" "):
        yield f"{word} "


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--idle", type=int, default=5000, help="number of idle streams (5000)")
    parser.add_argument("--callers", type=int, default=200, help="number of callers who stream tokens (200)")
    parser.add_argument("--every", type=float, default=4, metavar="S", help="seconds between a caller's streams (4)")
    parser.add_argument("--minutes", type=float, default=10, help="duration after all idle streams are open (10)")
    parser.add_argument("--upstream", action="store_true", help="agents on an A2A server, and not in the gateway")
    parser.add_argument("--python", default=server.PYTHON, help="Python of the gateway")
    options = parser.parse_args()
    raise_open_files(options.idle + options.callers)
    server.pin_client()
    gc.freeze()
    gc.disable()  # so that the client adds no pauses
    with tempfile.TemporaryDirectory() as folder, _gateway(Path(folder), options) as (target, record):
        streams = asyncio.run(_run(target, options, record))
    sys.exit(1 if streams.broken else 0)


def raise_open_files(streams: int) -> None:
    """Raise the limit of open files, which the servers inherit. Exits if the system does not allow enough for this many
    streams."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * streams + _RESERVE  # the gateway keeps half of its files for connections to agents
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise SystemExit(
            f"the limit of open files is {hard}, and {streams} streams need {wanted}: raise it with "
            f"`ulimit -Hn {wanted}` as root, or choose fewer with --idle and --callers"
        )
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


_start = partial(server.running, patience=300)


@contextmanager
def _gateway(home: Path, options: argparse.Namespace) -> Generator[tuple[ServerProcess, Path]]:
    """Start the gateway. Yield it, and the file of its pauses."""
    record = home / "pauses"
    environment = {collected.FILE: str(record)}

    def serve(agent: str) -> list[str]:
        command = server.gateway(agent, module="bench.collected")
        return [*NO_PROXY, options.python, *command[1:]]

    if not options.upstream:
        with _start(serve("soak=bench.soak:soak"), home / "gateway", environment=environment) as target:
            yield target, record
        return
    upstream = [*server.uvicorn("bench.upstream:app"), "--timeout-keep-alive", "600"]
    delay = {"BENCH_DELAY": "0"}
    with (
        _start(upstream, home / "upstream", environment=delay, pinned=False) as far,
        _start(serve(f"soak=http://127.0.0.1:{far.port}"), home / "gateway", environment=environment) as target,
    ):
        yield target, record


async def _run(target: ServerProcess, options: argparse.Namespace, record: Path) -> Streams:
    streams, ends = Streams(), asyncio.Event()
    empty = Sample.of(target)
    idle = await _open_idle(target.port, options.idle, streams)
    samples = [Sample.of(target)]
    skipped, cpu, begun = collected.count(record), target.cpu, time.monotonic()
    end = begun + options.minutes * 60
    prober = await asyncio.create_subprocess_exec(
        server.PYTHON, "-m", "bench.probe", str(target.port), str(options.minutes * 60), stdout=subprocess.PIPE
    )
    callers = [
        asyncio.ensure_future(_call(target.port, number, options, end, streams)) for number in range(options.callers)
    ]
    for number in range(_SAMPLES):
        await asyncio.sleep(max(0.0, begun + options.minutes * 60 * (number + 1) / _SAMPLES - time.monotonic()))
        samples.append(Sample.of(target))
    await asyncio.gather(*callers)
    latencies = probe.parse((await prober.communicate())[0])
    cpu, took = target.cpu - cpu, time.monotonic() - begun
    opening, pauses = collected.read(record), collected.read(record, skipped)
    ends.set()
    open_streams = sum(not task.done() for task in idle)
    for task in idle:
        task.cancel()
    await asyncio.gather(*idle, return_exceptions=True)
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"{options.idle} idle streams, {options.callers} callers, {took:.0f} s, load of the machine {load}")
    _report_streams(streams, open_streams, options.idle)
    _report_process(empty, samples, options.idle, cpu / took)
    probe.report(latencies)
    _report_steps(pauses.steps)
    _report_collections(pauses.collections)
    longest = max((each.cpu for each in opening.collections), default=0.0)
    print(f"longest run of the collector since the start of the process: {longest * 1000:.1f} ms")
    return streams


async def _open_idle(port: int, count: int, streams: Streams) -> "list[asyncio.Future[None]]":
    """Open the idle streams. Return the tasks that read them until they break."""
    tasks: list[asyncio.Future[None]] = []
    for begun in range(0, count, _AT_ONCE):
        opened = [asyncio.Event() for _ in range(begun, min(count, begun + _AT_ONCE))]
        tasks += [asyncio.ensure_future(_hold(port, each, streams)) for each in opened]
        await asyncio.gather(*(each.wait() for each in opened))
    return tasks


async def _hold(port: int, opened: asyncio.Event, streams: Streams) -> None:
    """Read an idle stream until it breaks. Set `opened` when its first word has arrived, or when it has broken."""
    request = "/a2a/soak", work.encode(work.a2a_message("SendStreamingMessage", WAITS)(1)), work.A2A
    why = "an idle stream ended"
    try:
        connection = await KeepAliveConnection.open(port)
        async for piece in connection.follow("POST", *request):
            if "Well…".encode() in piece:
                opened.set()
    except (OSError, EOFError, ValueError, SystemExit) as error:
        why = f"an idle stream broke: {error!r}"
    finally:
        opened.set()
    streams.broken.append(why)


async def _call(port: int, number: int, options: argparse.Namespace, end: float, streams: Streams) -> None:
    """Stream 200 tokens every few seconds until the end. The callers start one after the other."""
    job = work.a2a_stream("/a2a/soak")
    connection = await KeepAliveConnection.open(port)
    due = time.monotonic() + options.every * number / options.callers
    while due < end:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        try:
            await job(connection, number)
            streams.whole += 1
        except (OSError, EOFError, ValueError, SystemExit) as error:
            streams.broken.append(f"a stream of tokens broke: {error!r}")
            connection.close()
            connection = await KeepAliveConnection.open(port)
        due += options.every
        if due < time.monotonic():
            streams.late += 1
            due = time.monotonic()
    connection.close()


def _report_streams(streams: Streams, open_streams: int, idle: int) -> None:
    print(f"streams of tokens: {streams.whole} whole, {streams.late} started late")
    print(f"idle streams: {open_streams} of {idle} still open")
    print(f"broken streams: {len(streams.broken)}")
    for why in sorted({*streams.broken})[:5]:
        print(f"  {why}")


def _report_process(empty: Sample, samples: Sequence[Sample], idle: int, cpu: float) -> None:
    memory = [each.memory / 2**20 for each in samples]
    descriptors = [each.descriptors for each in samples]
    print(f"CPU: {cpu * 100:.0f} % of a core")
    print(f"memory, MiB: {memory[0]:.0f} at the start, {memory[-1]:.0f} at the end, {max(memory):.0f} at most")
    if idle:
        print(f"memory of an idle stream, KiB: {(samples[0].memory - empty.memory) / idle / 1024:.1f}")
    print(f"descriptors: {descriptors[0]} at the start, {descriptors[-1]} at the end, {max(descriptors)} at most")


def _report_steps(steps: Sequence[float]) -> None:
    longest = ", ".join(f"{each * 1000:.0f}" for each in sorted(steps, reverse=True)[:5])
    print(f"longest steps of the event loop, ms of CPU: {longest or 'none'}")


def _report_collections(collections: Sequence[collected.Collection]) -> None:
    print(f"{'collector':14}{'runs':>8}{'CPU ms':>10}{'longest':>10}{'freed':>8}")
    for generation in range(3):
        runs = [each for each in collections if each.generation == generation]
        cpu = [each.cpu * 1000 for each in runs]
        freed = sum(each.freed for each in runs)
        print(f"generation {generation}{len(runs):>10}{sum(cpu):>10.1f}{max(cpu, default=0.0):>10.2f}{freed:>8}")


if __name__ == "__main__":
    main()
