"""CPU time of limits: the demo agent `echo` with a single protocol, without limits, with rates, and with all limits.

    .venv/bin/python -m bench.limits [--jobs 2000] [--connections 16] [--rounds 5] [--only "OpenAI chat"]

A round measures every gateway once, in turn. The figures are medians over the rounds, as in `bench.echo`.
"""

import argparse
import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench import server, work
from bench.server import LoadFigures

RATES: Final = [
    {"per": "key", "runs": 1_000_000, "every": "1s"},
    {"per": "agent", "agent": "echo", "runs": 1_000_000, "every": "1s"},
]
LIMITS: Final = {
    "none": {},
    "two rates": {"BABELGATE_LIMITS__RATE": json.dumps(RATES)},
    "two rates, a budget, a chain": {
        "BABELGATE_LIMITS__RATE": json.dumps(RATES),
        "BABELGATE_LIMITS__CHAIN": json.dumps({"depth": 8}),
        "BABELGATE_BUDGETS": json.dumps({"month": {"per": "owner", "runs": 1_000_000_000, "every": "month"}}),
    },
}
"""Environment variables of each measured gateway, by the name of its limits."""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.limits", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=2000, help="jobs per round (2000)")
    parser.add_argument("--connections", type=int, default=16, help="concurrent connections (16)")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds (5)")
    parser.add_argument("--only", default="OpenAI chat", help="target of bench.echo, by a part of its name")
    options = parser.parse_args()
    name, job = next((name, job) for name, job in work.GATEWAY.items() if options.only in name)
    rounds: dict[str, list[LoadFigures]] = {limits: [] for limits in LIMITS}
    server.pin_client()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        gateways = {
            limits: stack.enter_context(
                server.running(server.gateway(), Path(folder, str(number)), environment=variables)
            )
            for number, (limits, variables) in enumerate(LIMITS.items())
        }
        for number in range(options.rounds + 1):
            for limits, gateway in server.in_turn(gateways.items(), number):
                count = options.jobs // (1 if number else 8)  # the first round warms up
                found = server.measure(gateway, job, count, options.connections)
                if number:
                    rounds[limits].append(found)
    print(f"{name}, {options.connections} connections, {options.jobs} jobs a round, {options.rounds} rounds")
    for limits, each in rounds.items():
        figures = server.median(each)
        print(f"{limits:30}{figures.rate:>8.0f} jobs/s{figures.cpu:>8.3f} CPU ms/job")


if __name__ == "__main__":
    main()
