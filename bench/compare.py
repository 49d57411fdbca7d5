"""Comparison of the gateway with the official server of each protocol: the same jobs and the same client, in one run.

Each server is one process with an echo agent, pinned to a separate core. The client has another core. The gateway has
its default settings, so it has stored a run on disk when it responds. The official servers keep everything in memory. A
round measures every kind of job on every server once, in turn, so that other load on the machine affects all alike.
"""

import argparse
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from bench import server, work
from bench.chart import draw
from bench.comparison import BARE, BARE_WORK, GATEWAY, RAW, Measured, ServerComparison, load, report, rows, save, tables
from bench.server import LoadFigures, ServerProcess
from bench.work import Job

EXAMPLE: Final = """example:
  .venv/bin/python -m bench.compare --json compare.json --svg charts
  .venv/bin/python -m bench.compare --rounds 1 --seconds 0.5 --only ACP
  .venv/bin/python -m bench.compare --read compare.json --svg charts
  .venv/bin/python -m bench.compare --page docs/performance.md --json compare.json --svg docs/performance

The official servers run in the environments of the tests, which `python -m tests.interop.peers` creates."""

PEERS: Final = Path(__file__).parent.parent / ".peers"
REFERENCE: Final = Path(__file__).parent / "reference"
MARK: Final = "<!-- bench.compare -->"
CALLS: Final = "One piece of work"
STREAMS: Final = "Stream of 200 tokens"

NOWHERE: Final = "http://127.0.0.1:9"
"""URL on which nothing listens, so that every fetch from the network fails at once."""
OFFLINE: Final = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"), NOWHERE),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
    "LANGGRAPH_CLI_NO_ANALYTICS": "1",
    "LANGGRAPH_NO_VERSION_CHECK": "true",
    "LANGSMITH_TRACING": "false",
}


@dataclass(frozen=True, slots=True)
class Reference:
    """Official server of a protocol."""

    peer: str
    """Name of the environment of the server's SDK (`tests/interop/peers.py`), which is also its folder."""
    package: str
    app: str = ""
    """Application in `bench/reference`, served by uvicorn. Empty for LangGraph, which has its own development
    server."""

    def command(self, connections: int) -> list[str]:
        python = PEERS / self.peer / "bin" / "python"
        if self.app:
            return server.uvicorn(self.app, str(python), "--app-dir", str(REFERENCE))
        dev = [str(python.parent / "langgraph"), "dev", "--no-browser", "--no-reload", "--host", "127.0.0.1"]
        return [*dev, "--port", "{port}", "--server-log-level", "ERROR", "--n-jobs-per-worker", str(connections)]


REFERENCES: Final[Mapping[str, Reference]] = {
    "a2a-sdk 1.3": Reference("a2a-1.0", "a2a-sdk", "a2a_1_0:app"),
    "a2a-sdk 0.3": Reference("a2a-0.3", "a2a-sdk", "a2a_0_3:app"),
    "acp-sdk": Reference("acp", "acp-sdk", "acp:app"),
    "agent-protocol": Reference("aief", "agent-protocol", "aief:app"),
    "langgraph dev": Reference("langgraph", "langgraph-api"),
}


@dataclass(frozen=True, slots=True)
class Work:
    table: str
    name: str
    gateway: Job
    server: str
    reference: Job


WORKS: Final = (
    Work(CALLS, "A2A 1.0 SendMessage", work.a2a_1_0(), "a2a-sdk 1.3", work.a2a_1_0("/echo")),
    Work(CALLS, "A2A 0.3 message/send", work.a2a_0_3(), "a2a-sdk 0.3", work.a2a_0_3("/echo/")),
    Work(CALLS, "ACP run", work.acp(), "acp-sdk", work.acp("/runs")),
    Work(CALLS, "AIEF task + step", work.aief(), "agent-protocol", work.aief("/ap/v1/agent/tasks")),
    Work(CALLS, "LangGraph wait", work.langgraph_wait(), "langgraph dev", work.langgraph_wait()),
    Work(CALLS, "LangGraph thread + wait", work.langgraph_thread(), "langgraph dev", work.langgraph_thread()),
    Work(STREAMS, "A2A 1.0 stream", work.a2a_stream(), "a2a-sdk 1.3", work.a2a_stream("/stream")),
    Work(STREAMS, "A2A 1.0 stream", work.a2a_stream(), RAW, work.raw_stream()),
    Work(
        STREAMS,
        "A2A 0.3 stream",
        work.a2a_stream(method="message/stream"),
        "a2a-sdk 0.3",
        work.a2a_stream("/stream/", "message/stream"),
    ),
    Work(STREAMS, "ACP stream", work.acp_stream(), "acp-sdk", work.acp_stream("/runs")),
    Work(STREAMS, "LangGraph stream", work.langgraph_stream(), "langgraph dev", work.langgraph_stream()),
)


@dataclass(slots=True)
class Target:
    server: ServerProcess
    job: Job
    jobs: int
    rounds: list[LoadFigures] = field(default_factory=list[LoadFigures])


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    comparison = load(options.read) if options.read else compare(options)
    if options.json:
        save(comparison, options.json)
    if options.svg:
        write_charts(comparison, options.svg)
    if options.page:
        write_block(options.page, MARK, report(comparison))
    print(report(comparison))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.compare",
        description=__doc__,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds (5)")
    parser.add_argument("--connections", type=int, default=16, help="concurrent connections (16)")
    parser.add_argument("--seconds", type=float, default=2, help="approximate duration of one measurement (2)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only jobs whose name contains this text")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures, the versions and the machine")
    parser.add_argument("--svg", type=Path, metavar="FOLDER", help="write a bar chart for each table")
    parser.add_argument("--page", type=Path, metavar="FILE", help=f"replace the tables after {MARK} in a page")
    parser.add_argument("--read", type=Path, metavar="FILE", help="measure nothing: show a file written by --json")
    return parser.parse_args(arguments)


def compare(options: argparse.Namespace) -> ServerComparison:
    works = [each for each in WORKS if options.only in each.name]
    comparison = ServerComparison(
        datetime.now(UTC).isoformat(timespec="seconds"), machine(), {GATEWAY: own_version()}, options.connections
    )
    server.pin_client()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        started = start(Path(folder), {each.server for each in works}, options.connections, stack, comparison)
        targets = _targets(works, started, options)
        for number in range(options.rounds):
            for (_, name, on), target in server.in_turn(targets.items(), number):
                _say(f"round {number + 1} of {options.rounds}: {name}, {on}")
                target.rounds.append(server.measure(target.server, target.job, target.jobs, options.connections))
    for (table, name, on), target in targets.items():
        comparison.measured.append(Measured(table, name, on, target.jobs, target.rounds))
    return comparison


def start(
    home: Path, wanted: set[str], connections: int, stack: ExitStack, comparison: ServerComparison
) -> Mapping[str, ServerProcess]:
    """Start the servers one after the other, and return them by name. A server that cannot start is left out, and the
    comparison records the reason."""
    found = {
        BARE: stack.enter_context(server.running(server.uvicorn("bench.bare:app"), home / "bare")),
        RAW: stack.enter_context(server.running(server.uvicorn("bench.bare:raw"), home / "raw")),
        GATEWAY: stack.enter_context(server.running(server.gateway(), home / "gateway")),
    }
    lent = _link_accelerators(home / "lent")
    for name in [each for each in REFERENCES if each in wanted]:
        reference = REFERENCES[name]
        if not (PEERS / reference.peer / "bin" / "python").is_file():
            comparison.missing[name] = f"no environment .peers/{reference.peer}"
            continue
        _say(f"start: {name}")
        folder = home / reference.peer
        if not reference.app:
            shutil.copytree(REFERENCE / "langgraph", folder)
        environment = OFFLINE | {"PYTHONPATH": str(lent) if reference.app else ""}
        try:
            found[name] = stack.enter_context(
                server.running(reference.command(connections), folder, environment=environment)
            )
        except SystemExit as error:
            comparison.missing[name] = str(error).strip()
        else:
            comparison.versions[name] = _version(reference)
    return found


def _targets(
    works: Sequence[Work], started: Mapping[str, ServerProcess], options: argparse.Namespace
) -> dict[tuple[str, str, str], Target]:
    """Return the targets by table, work and server, after a warm-up. Each has as many jobs as take about
    `options.seconds`."""
    jobs: dict[tuple[str, str, str], Job] = {(CALLS, BARE_WORK, BARE): work.bare()}
    for each in works:
        jobs[each.table, each.name, GATEWAY] = each.gateway
        jobs[each.table, each.name, each.server] = each.reference
    targets: dict[tuple[str, str, str], Target] = {}
    for (table, name, on), job in jobs.items():
        if on in started:
            _say(f"warm up: {name}, {on}")
            count = options.connections
            for share in (1 / 4, 1):  # imports and compilation slow down the first jobs
                rate = server.measure(started[on], job, count, options.connections).rate
                count = choose_jobs(rate, options.seconds * share, options.connections)
            targets[table, name, on] = Target(started[on], job, count)
    return targets


def choose_jobs(rate: float, seconds: float, connections: int) -> int:
    """Return the number of jobs: the same number for each connection, at least one."""
    return max(1, round(rate * seconds / connections)) * connections


def write_charts(comparison: ServerComparison, folder: Path) -> None:
    """Draw one chart for each table. The bare server is left out: next to its bar, all others would be too short."""
    folder.mkdir(parents=True, exist_ok=True)
    note = f"Jobs a second at {comparison.connections} connections, server on one core: longer is better"
    for name, each in tables(rows(comparison)).items():
        drawn = [row for row in each if row.server != BARE]
        if drawn:
            file = re.sub(r"\W+", "-", name.lower()) + ".svg"
            (folder / file).write_text(draw(name, note, drawn), encoding="utf-8")


def write_block(page: Path, mark: str, text: str) -> None:
    """Replace the block of code that follows the line `mark` in a page with `text`."""
    before, found, after = page.read_text(encoding="utf-8").partition(mark)
    begin, end, rest = after.partition("\n```\n\n")
    if not (found and end and begin.startswith("\n```\n")):
        raise SystemExit(f"{page}: no block of code behind {mark}")
    page.write_text(f"{before}{mark}\n```\n{text}{end}{rest}", encoding="utf-8")


def machine() -> dict[str, str | int]:
    return {
        "cores": len(server.CORES) or os.cpu_count() or 1,
        "processor": _processor(),
        "Python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
    }


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.machine()


def own_version() -> str:
    """Return the gateway's version, with the commit if this is a checkout."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=REFERENCE, capture_output=True, text=True, check=False
    )
    return f"{importlib.metadata.version('babelgate')} {done.stdout.strip()}".strip()


def _version(reference: Reference) -> str:
    """Return the versions of a reference server: of its package, of uvicorn, and of Python in its environment."""
    code = (
        "import sys; from importlib.metadata import version; print(', '.join(f'{each} {version(each)}' for each in "
        f"({reference.package!r}, 'uvicorn')), f'on Python {{sys.version.split()[0]}}')"
    )
    python = str(PEERS / reference.peer / "bin" / "python")
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def _link_accelerators(folder: Path) -> Path:
    """Fill a new folder with links to the gateway's event loop and HTTP parser (uvloop, httptools), and return the
    folder. It is for servers whose SDK does not require them: without them, the comparison would show what they
    save."""
    folder.mkdir(parents=True)
    for name in ("httptools", "uvloop"):
        spec = find_spec(name)
        if spec and spec.origin:
            (folder / name).symlink_to(Path(spec.origin).parent, target_is_directory=True)
    return folder


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
