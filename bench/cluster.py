"""Speed of several gateways on one PostgreSQL, each a separate process.

The figures are:

- the time until a run begins;
- the time until a word of a run is read on another node;
- the time to replay a long log on another node;
- the throughput of 1, 2 and 3 nodes.

    .venv/bin/python -m bench.cluster postgresql://jane@127.0.0.1/name
    .venv/bin/python -m bench.cluster postgresql://… --page docs/performance.md --json cluster.json
    .venv/bin/python -m bench.cluster --read cluster.json

All data is in a new schema, which is dropped at the end. Callers use ACP unless a table names another protocol. The
nodes, their callers and the database server share the machine's cores, and none is pinned to one. So each rate is
reported with the share of all cores that was busy. The last column is the median call with a database server whose
flushes take some milliseconds longer (`--flush`). It needs a C compiler.
"""

import argparse
import asyncio
import itertools
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import psycopg

from bench import server, slow_flush, work
from bench.client import KeepAliveConnection
from bench.cluster_figures import DISPATCH, FAN_OUT, SAME_NODE, ClusterFigures, Load, Rate, Waits, load, report, save
from bench.compare import choose_jobs, machine, own_version, write_block
from bench.database import read_costs
from bench.scale import new_schema, within
from bench.server import ServerProcess
from bench.work import Job

MARK: Final = "<!-- bench.cluster -->"
AIMS: Final[Mapping[str, float]] = {DISPATCH: 8, FAN_OUT: 10, "replay": 100, "events": 20_000}
_SSE: Final = "Accept: text/event-stream\r\n"
_TIMESTAMP: Final = re.compile(rb'"type":"message.part","part":\{[^{}]*"content":"\s*(\d+)"')
"""Pattern of the time that the agent `bench.stamp` sends in a streamed part. The final event with the whole message
does not match."""
_RUNS: Final = "runs of the echo agent, A2A"
_WORDS_PER_RUN: Final = 1000
"""Number of words of a run that has no readers."""


@contextmanager
def running(database: str, folder: Path, count: int) -> Generator[list[ServerProcess]]:
    """Start `count` gateways on the database, yield them, and stop them at the end."""
    with ExitStack() as stack:
        nodes: list[ServerProcess] = []
        for number in range(count):
            place = folder / f"node-{number}"
            place.mkdir()
            agents = {name: {"python": f"babelgate.gateway.demo:{name}"} for name in ("echo", "stream")}
            agents["stamp"] = {"python": "bench.stamp:stamp"}
            settings = {"cluster": True, "node": f"node-{number}", "blobs": str(folder / "blobs"), "agents": agents}
            (place / "babelgate.yaml").write_text(json.dumps({"database": database, **settings}), encoding="utf-8")
            nodes.append(stack.enter_context(server.running(server.gateway(), place, pinned=False, patience=180)))
        yield nodes


def measure(database: str, folder: Path, options: argparse.Namespace) -> ClusterFigures:
    before = os.getloadavg()[0]
    with running(database, folder, options.nodes) as nodes:
        figures = ClusterFigures(
            datetime.now(UTC).isoformat(timespec="seconds"),
            machine(),
            {"gateway": own_version(), "PostgreSQL": _server_of(database)},
            options.nodes,
            options.connections,
            options.events,
            before,
        )
        figures.waits.extend(asyncio.run(_waits(nodes, options)))
        _say("events a second")
        figures.loads.append(_events(database, nodes, options))
        for count in range(1, len(nodes) + 1):
            _say(f"runs a second, {count} nodes")
            figures.loads.append(_runs(database, nodes[:count], options))
    if options.flush:
        return _add_slow_flush(figures, folder / "slow", options)
    return figures


def _add_slow_flush(figures: ClusterFigures, folder: Path, options: argparse.Namespace) -> ClusterFigures:
    """Add to the figures the same runs on the bench's own database server, whose flushes are slow, and return them.
    Without a C compiler, the figures get the reason why this is not possible."""
    if not slow_flush.has_compiler():
        return replace(figures, flush=options.flush, without_flush=f"needs a C compiler ({slow_flush.COMPILER})")
    folder.mkdir()
    with slow_flush.slow_server(options.flush) as database, running(database.url, folder, options.nodes) as nodes:
        for each in figures.loads:
            if each.name == _RUNS:
                _say(f"runs a second, {each.nodes} nodes, flush {options.flush:g} ms")
                each.slow.extend(_runs(database.url, nodes[: each.nodes], options).rounds)
    return replace(figures, flush=options.flush)


def _server_of(database: str) -> str:
    with psycopg.connect(database) as connection:
        commit = connection.execute("SHOW synchronous_commit").fetchone()
        version = connection.info.parameter_status("server_version")
    return f"{version}, synchronous_commit {commit[0] if commit else 'unknown'}"


# Latencies


async def _waits(nodes: Sequence[ServerProcess], options: argparse.Namespace) -> list[Waits]:
    _say("dispatch")
    dispatched = await _dispatch(nodes, options.times)
    _say("fan-out")
    same, other = await _fan_out(nodes, options.times)
    _say(f"replay of {options.events} events")
    replayed = await _replay(nodes, options.events, options.replays)
    return [
        dispatched,
        Waits(FAN_OUT, other, AIMS[FAN_OUT]),
        Waits(SAME_NODE, same),
        *replayed,
    ]


async def _dispatch(nodes: Sequence[ServerProcess], times: int) -> Waits:
    """Measure the time from a request to the first event of its run. The requests go to all nodes in turn, and each
    stream is read to its end."""
    body = work.encode({**work.acp_run("echo"), "mode": "stream"})
    connections = [await KeepAliveConnection.open(node.port) for node in nodes]
    found, used = list[float](), 0.0
    for number in range(-10 * len(nodes), times):  # the first ones warm up
        used = used or (sum(node.cpu for node in nodes) if number >= 0 else 0)
        begun = time.perf_counter()
        took = 0.0
        async with aclosing(connections[number % len(nodes)].follow("POST", "/acp/runs", body)) as pieces:
            async for piece in pieces:
                # `run.created` confirms the request; the next one is the first event of the run.
                if not took and b"run.in-progress" in piece:
                    took = (time.perf_counter() - begun) * 1000
        if number >= 0:
            found.append(took)
    for each in connections:
        each.close()
    return Waits(DISPATCH, found, AIMS[DISPATCH], (sum(node.cpu for node in nodes) - used) / times * 1000)


async def _fan_out(nodes: Sequence[ServerProcess], times: int) -> tuple[list[float], list[float]]:
    """Return the milliseconds from a word to its readers: on the node of its run, and on another."""
    first, other = nodes[0], nodes[-1]
    starting = await KeepAliveConnection.open(first.port)
    body = work.encode({**work.acp_run("stamp", str(times)), "mode": "async"})
    run_id = json.loads(await starting.post("/acp/runs", body))["run_id"]
    same, away = await asyncio.gather(*(_measure_delays(node, run_id, times) for node in (first, other)))
    starting.close()
    return same, away


async def _measure_delays(node: ServerProcess, run_id: str, times: int) -> list[float]:
    begun, found = time.monotonic_ns(), list[float]()
    async for piece in _events_of(node, run_id):
        now = time.monotonic_ns()
        for sent in map(int, _TIMESTAMP.findall(piece)):
            if sent > begun:  # earlier words are catch-up
                found.append((now - sent) / 1e6)
    return found


async def _events_of(node: ServerProcess, run_id: str) -> AsyncGenerator[bytes]:
    connection = await KeepAliveConnection.open(node.port)
    async for piece in connection.follow("GET", f"/acp/runs/{run_id}/events", headers=_SSE):
        yield piece
    connection.close()


async def _replay(nodes: Sequence[ServerProcess], events: int, times: int) -> list[Waits]:
    """Return the measured times to read the log of a run on a node that did not execute the run: the first time, when
    that node has nothing in memory, and the times after that. `events` is the number of events in the log."""
    starting = await KeepAliveConnection.open(nodes[0].port)
    words = " ".join(f"w{number}" for number in range(events))
    body = work.encode({**work.acp_run("stream", words), "mode": "sync"})
    run_id = json.loads(await starting.post("/acp/runs", body))["run_id"]
    starting.close()
    took, used = list[float](), nodes[-1].cpu
    for _ in range(1 + times):
        begun, count = time.perf_counter(), 0
        async for piece in _events_of(nodes[-1], run_id):
            count += piece.count(b'"message.part"')
        took.append((time.perf_counter() - begun) * 1000)
        if count != events:
            raise SystemExit(f"{count} events were replayed, and not {events}")
    used = (nodes[-1].cpu - used) / (1 + times) * 1000
    name = f"a log of {events} events, read on another node"
    return [Waits(f"{name}: first", took[:1]), Waits(f"{name}: again", took[1:], AIMS["replay"], used)]


# Rates


def _events(database: str, nodes: Sequence[ServerProcess], options: argparse.Namespace) -> Load:
    """Measure long runs without readers on all nodes. `per_second` of each round is the number of events added to the
    log, and not of runs."""
    words = " ".join(f"word{number:04}" for number in range(_WORDS_PER_RUN))
    body = {**work.acp_run("stream", words), "mode": "sync"}
    found = Load("events to the log, of long runs", len(nodes), aim=AIMS["events"])
    job = work.posted("/acp/runs", lambda _: body, b'"completed"')
    for rate, counted, took in _rounds(nodes, job, options, database):
        found.rounds.append(replace(rate, per_second=counted / took))
    return found


def _runs(database: str, nodes: Sequence[ServerProcess], options: argparse.Namespace) -> Load:
    found = Load(_RUNS, len(nodes))
    found.rounds.extend(rate for rate, _, _ in _rounds(nodes, work.a2a_1_0(), options, database))
    return found


def _rounds(
    nodes: Sequence[ServerProcess], job: Job, options: argparse.Namespace, database: str
) -> Generator[tuple[Rate, int, float]]:
    """Yield the rate, the number of events added to the log, and the seconds of each round."""
    jobs = options.connections
    for share in (1 / 4, 1):  # imports and compilation slow down the first jobs
        rate, _ = asyncio.run(_share_out(nodes, job, jobs, options.connections))
        jobs = choose_jobs(rate.per_second, options.seconds * share, options.connections)
    for _ in range(options.rounds):
        before, costs = _count_events(database), read_costs(database)
        rate, took = asyncio.run(_share_out(nodes, job, jobs, options.connections))
        costs_after, done = read_costs(database), rate.per_second * took
        if costs.cpu is not None and costs_after.cpu is not None:
            rate = replace(rate, database_cpu=(costs_after.cpu - costs.cpu) / done * 1000)
        rate = replace(rate, wal=(costs_after.wal - costs.wal) / done / 1024)
        yield rate, _count_events(database) - before, took


async def _share_out(nodes: Sequence[ServerProcess], job: Job, jobs: int, connections: int) -> tuple[Rate, float]:
    """Distribute the connections over the nodes in turn, and return the rate and the seconds."""
    times: list[float] = []
    places = itertools.cycle(nodes)

    async def caller(node: ServerProcess, first: int, count: int) -> None:
        connection = await KeepAliveConnection.open(node.port)
        for number in range(first, first + count):
            begun = time.perf_counter()
            await job(connection, number)
            times.append(time.perf_counter() - begun)
        connection.close()

    each = jobs // connections
    used, ticks_before, begun = sum(node.cpu for node in nodes), _cpu_of_machine(), time.perf_counter()
    await asyncio.gather(*(caller(next(places), number * each, each) for number in range(connections)))
    took = time.perf_counter() - begun
    used = sum(node.cpu for node in nodes) - used
    busy, total = (after - before for after, before in zip(_cpu_of_machine(), ticks_before, strict=True))
    times.sort()
    median = times[len(times) // 2] * 1000
    return Rate(len(times) / took, median, used / len(times) * 1000, busy / total if total else 0.0), took


def _count_events(database: str) -> int:
    with psycopg.connect(database) as connection:
        found = connection.execute("SELECT count(*) FROM event").fetchone()
    return found[0] if found else 0


def _cpu_of_machine() -> tuple[int, int]:
    """Return the ticks in which the machine's cores were busy, and all ticks."""
    try:
        ticks = [int(each) for each in Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]]
    except OSError:
        return 0, 0
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)  # proc(5): the fourth is idle, the fifth iowait


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    if options.read:
        figures = load(options.read)
    else:
        with tempfile.TemporaryDirectory() as folder, new_schema(options.database) as schema:
            figures = measure(within(options.database, schema), Path(folder), options)
    if options.json:
        save(figures, options.json)
    if options.page:
        write_block(options.page, MARK, report(figures))
    print(report(figures))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("database", nargs="?", default="", metavar="URL", help="URL of a PostgreSQL database")
    parser.add_argument("--nodes", type=int, default=3, help="number of gateways (3)")
    parser.add_argument("--connections", type=int, default=24, help="concurrent connections (24)")
    parser.add_argument("--times", type=int, default=500, help="number of measured runs, and of measured words (500)")
    parser.add_argument("--events", type=int, default=10_000, help="events in the replayed log (10000)")
    parser.add_argument("--replays", type=int, default=10, help="number of replays (10)")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds (3)")
    parser.add_argument("--seconds", type=float, default=4, help="approximate duration of one round (4)")
    parser.add_argument(
        "--flush",
        type=float,
        default=3,
        metavar="MS",
        help="repeat the runs on a new database server with this delay of each flush; 0 disables it (3)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures, the versions and the machine")
    parser.add_argument("--page", type=Path, metavar="FILE", help=f"replace the tables after {MARK} in a page")
    parser.add_argument("--read", type=Path, metavar="FILE", help="measure nothing: show a file written by --json")
    options = parser.parse_args(arguments)
    if not (options.database or options.read):
        parser.error("give the URL of a PostgreSQL database, or --read FILE")
    return options


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
