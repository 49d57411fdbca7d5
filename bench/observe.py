"""Cost of metrics and logs: an echo agent in the gateway's own process, called over A2A 1.0.

The gateways differ in their telemetry only. A round measures every gateway once, each time in another order, so that
other load on the machine affects all alike. The figures are medians over the rounds, and so are the ratios, which are
computed in each round.
"""

import argparse
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench import server, work
from bench.server import LoadFigures, ServerProcess
from bench.work import Job

EXAMPLE: Final = """examples:
  .venv/bin/python -m bench.observe
  .venv/bin/python -m bench.observe --rounds 25 --only metrics"""

OFF: Final = "off"
_METRICS: Final = {"BABELGATE_TELEMETRY__METRICS__LISTEN": "127.0.0.1:0"}
_TARGETS: Final[dict[str, tuple[list[str], dict[str, str]]]] = {
    OFF: (["--log-level", "warning"], {}),
    "metrics": (["--log-level", "warning"], _METRICS),
    "text log": (["--log-level", "info"], {}),
    "JSON log": (["--log-level", "info"], {"BABELGATE_LOG_FORMAT": "json"}),
    "metrics, JSON log": (["--log-level", "info"], {**_METRICS, "BABELGATE_LOG_FORMAT": "json"}),
}
"""Options of `babelgate serve` and environment variables of each measured gateway, by its name in the table."""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.observe",
        description=__doc__,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--jobs", type=int, default=2000, help="jobs per round (2000)")
    parser.add_argument("--connections", type=int, default=16, help="concurrent connections (16)")
    parser.add_argument("--rounds", type=int, default=9, help="number of rounds (9)")
    parser.add_argument(
        "--only",
        nargs="*",
        choices=[*_TARGETS],
        default=[*_TARGETS],
        metavar="NAME",
        help="gateways besides `off` (all)",
    )
    options = parser.parse_args()
    server.pin_client()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
        targets = {
            name: servers.enter_context(
                server.running([*server.gateway(), *arguments], Path(folder, name), environment=variables)
            )
            for name, (arguments, variables) in _TARGETS.items()
            if name in (OFF, *options.only)
        }
        print(f"{options.jobs} jobs a round, {options.connections} connections, medians of {options.rounds} rounds")
        for name, job, jobs in (
            ("A2A SendMessage", work.a2a_1_0(), options.jobs),
            ("A2A stream of 200 tokens", work.a2a_stream(), max(options.connections, options.jobs // 10)),
        ):
            _measure(name, targets, job, jobs, options)


def _measure(title: str, targets: dict[str, ServerProcess], job: Job, jobs: int, options: argparse.Namespace) -> None:
    rounds: dict[str, list[LoadFigures]] = {name: [] for name in targets}
    for target in targets.values():
        server.measure(target, job, max(options.connections, jobs // 4), options.connections)  # warm up
    names = [*targets]
    for number in range(options.rounds):
        for name in server.in_turn(names, number):
            rounds[name].append(server.measure(targets[name], job, jobs, options.connections))
    print(f"\n{title}\n{'':20}{'jobs/s':>10}{'CPU ms/job':>12}{'CPU ratio':>11}{'of rounds':>16}")
    for name, figures in rounds.items():
        found = server.median(figures)
        ratios = [one.cpu / other.cpu for one, other in zip(figures, rounds[OFF], strict=True)]
        print(
            f"{name:20}{found.rate:>10.0f}{found.cpu:>12.3f}{statistics.median(ratios):>11.3f}"
            f"{min(ratios):>10.2f}-{max(ratios):.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
