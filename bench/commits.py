"""Comparison of several commits of the gateway: the same jobs in one run.

    .venv/bin/python -m bench.commits COMMIT... [--jobs 1200] [--rounds 5] [--only TEXT…]

The code of each commit is extracted from git and run by this interpreter, so all commits use the same packages and
client. A round measures every kind of job on every commit once, in turn. The figures are medians of the server's CPU
time per job, in multiples of a bare Litestar's in the same round. A job that a commit does not support is left out.
"""

import argparse
import io
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench import server, work
from bench.echo import BARE, STREAM_JOBS
from bench.server import ServerProcess
from bench.work import Job

_PROJECT: Final = Path(__file__).parent.parent
WORKS: Final[Mapping[str, Job]] = {
    name: work.GATEWAY[name]
    for name in (
        "A2A 1.0",
        "A2A 0.3",
        "ACP",
        "AIEF task + step",
        "LangGraph wait",
        "OpenAI chat",
        "Anthropic",
        "Agent Client Protocol",
        "Agent Client prompt",
        "MCP",
        "MCP, stored",
        "A2A stream",
        "LangGraph stream",
        "Agent Client Prot. stream",
        "MCP stream",
        "MCP stream, stored",
    )
}


def take_out(commit: str, folder: Path) -> Path:
    """Extract the code of a commit, and return its folder."""
    archive = subprocess.run(["git", "archive", commit], cwd=_PROJECT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.commits", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commits", nargs="+", metavar="COMMIT", help="commit to measure")
    parser.add_argument("--jobs", type=int, default=1200, help="jobs per round; a stream counts as ten (1200)")
    parser.add_argument("--connections", type=int, default=16, help="concurrent connections (16)")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds (5)")
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="TEXT", help="only jobs whose name contains one of these texts"
    )
    options = parser.parse_args()
    works = {name: job for name, job in WORKS.items() if any(text in name for text in options.only)}
    server.pin_client()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        home = Path(folder)
        bare = stack.enter_context(server.running(server.uvicorn("bench.bare:app"), home / "bare"))
        gateways: dict[str, ServerProcess] = {}
        for commit in options.commits:
            source = take_out(commit, home / "source" / commit)
            # Commits without the folder have the command in the package `gateway`.
            module = "babelgate" if (source / "babelgate").is_dir() else "gateway"
            environment = {"PYTHONPATH": str(source), **server.ERASING_SOON}
            gateways[commit] = stack.enter_context(
                server.running(server.gateway(module=module), home / commit, environment=environment)
            )
        report(works, compare(bare, gateways, works, options))


def compare(
    bare: ServerProcess, gateways: Mapping[str, ServerProcess], works: Mapping[str, Job], options: argparse.Namespace
) -> Mapping[tuple[str, str], Sequence[float]]:
    """Return the CPU time per job of each round, in multiples of a bare Litestar's, by commit and work."""
    found: dict[tuple[str, str], list[float]] = {}
    unknown: set[tuple[str, str]] = set()
    for number in range(options.rounds + 1):
        print(f"round {number} of {options.rounds}", file=sys.stderr, flush=True)
        floor = server.measure(bare, work.bare(), options.jobs, options.connections).cpu
        for name, job in works.items():
            count = options.jobs // (STREAM_JOBS if "stream" in name else 1)
            for commit, gateway in server.in_turn(gateways.items(), number):
                if (commit, name) in unknown:
                    continue
                try:
                    figures = server.measure(
                        gateway, job, max(options.connections, count), options.connections, quiet=server.QUIET
                    )
                except SystemExit as error:
                    print(f"{commit}, {error}", file=sys.stderr)
                    unknown.add((commit, name))
                    continue
                if number:  # the first round warms up
                    found.setdefault((commit, name), []).append(figures.cpu / floor)
    return found


def report(works: Mapping[str, Job], found: Mapping[tuple[str, str], Sequence[float]]) -> None:
    print(f"{'CPU, x ' + BARE:24}" + "".join(f"{name:>18}" for name in works))
    for commit in dict.fromkeys(commit for commit, _ in found):
        times = [found.get((commit, name)) for name in works]
        print(f"{commit:24}" + "".join(f"{statistics.median(each):>18.1f}" if each else f"{'-':>18}" for each in times))


if __name__ == "__main__":
    main()
