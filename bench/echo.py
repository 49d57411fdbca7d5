"""Overhead of the gateway: its demo agents over each protocol, with the default settings, compared with a bare Litestar
POST echo in the same run. With the extra `babelgate[grpc]`, also A2A over gRPC, compared with a bare server of grpc.aio
that answers with prepared bytes.

    .venv/bin/python -m bench.echo [--jobs 2000] [--connections 16] [--rounds 5] [--only TEXT…] [--keep]

A round measures every target once, in turn, so that other load on the machine affects all alike. The figures are
medians over the rounds. CPU is the server process's user and system time, including the erasure of the threads of
stateless runs, which this gateway erases after a second, or not at all with --keep. Server and client are pinned to
different cores.
"""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from babelgate.adapters.kit.client.rpc import is_installed
from bench import server, work
from bench.server import LoadFigures, ServerProcess
from bench.work import Job

BARE: Final = "bare Litestar"
BARE_RPC: Final = "bare grpc.aio"
STREAM_JOBS: Final = 10
"""Number of jobs that one stream of 200 tokens counts as."""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.echo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=2000, help="jobs per round (2000)")
    parser.add_argument("--connections", type=int, default=16, help="concurrent connections (16)")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds (5)")
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="TEXT", help="only targets whose name contains one of these texts"
    )
    parser.add_argument("--keep", action="store_true", help="leave out the erasure of the threads of stateless runs")
    options = parser.parse_args()
    server.pin_client()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        environment = server.KEEPING if options.keep else server.ERASING_SOON
        targets = _start(Path(folder), stack, options.only, environment)
        rounds: dict[str, list[LoadFigures]] = {name: [] for name in targets}
        for number in range(options.rounds + 1):
            for name, (target, job) in server.in_turn(targets.items(), number):
                count = options.jobs // (STREAM_JOBS if "stream" in name else 1)
                if not number:  # the first round warms up
                    count //= 8
                quiet = 0 if options.keep or name.startswith("bare") else server.QUIET
                found = server.measure(target, job, max(options.connections, count), options.connections, quiet=quiet)
                if number:
                    rounds[name].append(found)
    print(f"{options.connections} connections, {options.jobs} jobs a round, medians of {options.rounds} rounds")
    report({name: server.median(each) for name, each in rounds.items()})
    if not is_installed():
        print("A2A over gRPC is left out, because the extra babelgate[grpc] is not installed.")


def _start(
    home: Path, stack: ExitStack, only: Sequence[str], environment: Mapping[str, str]
) -> Mapping[str, tuple[ServerProcess, Job]]:
    """Start the servers until the stack is closed. Return the server and the job of each target whose name contains
    one of the texts `only`. `environment` is that of the gateway."""
    jobs = {name: job for name, job in work.GATEWAY.items() if any(text in name for text in only)}
    rpc_jobs = {name: job for name, job in work.GRPC.items() if any(text in name for text in only) and is_installed()}
    bare = stack.enter_context(server.running(server.uvicorn("bench.bare:app"), home / "bare"))
    gateway = stack.enter_context(
        server.running(server.gateway(), home / "gateway", environment=environment, serves_grpc=bool(rpc_jobs))
    )
    targets = {BARE: (bare, work.bare()), **{name: (gateway, job) for name, job in jobs.items()}}
    if rpc_jobs:
        command = [server.PYTHON, "-m", "bench.bare_rpc", "{port}"]
        bare_rpc = stack.enter_context(server.running(command, home / "bare_rpc"))
        for name, job in rpc_jobs.items():
            targets |= {name: (gateway.rpc, job), name.replace("A2A gRPC", BARE_RPC): (bare_rpc, job)}
    return targets


def report(figures: Mapping[str, LoadFigures]) -> None:
    print(f"{'':26}{'jobs/s':>8}{'CPU ms/job':>12}{'x bare':>8}{'median ms':>11}")
    bare = figures[BARE].cpu
    for name, each in figures.items():
        print(f"{name:26}{each.rate:>8.0f}{each.cpu:>12.3f}{each.cpu / bare:>8.1f}{each.latency:>11.2f}")


if __name__ == "__main__":
    main()
