"""What the gateway adds to a call of an agent behind it: an echo agent on a server without delay, called directly and
through the gateway, over the same protocol (ACP).

    .venv/bin/python -m bench.proxy [--jobs 2000] [--connections 1 16] [--rounds 3] [--httpx]

With --httpx, also through a gateway whose calls go over httpx's own transport. A round visits every target once, in
turn, so that what else the machine does hits all alike; figures are medians over the rounds, and so are ratios, which
are taken in each.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
from pathlib import Path

from bench.echo import Target, acp, free_port, measure, start

DIRECT = Target("direct", "/runs", acp)
THROUGH = Target("through", "/acp/runs", acp)

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
OURS = ["env", *(f"--unset={name}" for name in PROXIES)]
HTTPX = [*OURS, "all_proxy=http://127.0.0.1:9", "no_proxy=127.0.0.1"]
"""Where there is a proxy for anything, calls are httpx's own from end to end; for this address there is none."""

Figures = tuple[float, float, float]
"""Jobs a second, milliseconds of CPU a job, median milliseconds a call."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--connections", type=int, nargs="*", default=[1, 16])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--httpx", action="store_true", help="compare with httpx's own transport")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        python, far = sys.executable, free_port()
        uvicorn = [python, "-m", "uvicorn", "bench.upstream:app", "--port", str(far), "--log-level", "critical"]
        servers = [start(uvicorn, far, folder)]
        targets = {"direct": (DIRECT, far, servers[0].pid)}
        try:
            for name, environment in (("through", OURS), ("by httpx", HTTPX))[: 2 if options.httpx else 1]:
                near, home = free_port(), Path(folder, name)
                home.mkdir()
                serve = [*environment, python, "-m", "gateway", "serve", f"echo=http://127.0.0.1:{far}"]
                servers.append(start([*serve, "--port", str(near), "--log-level", "warning"], near, str(home)))
                targets[name] = THROUGH, near, servers[-1].pid
            print(f"{options.jobs} jobs a round, medians of {options.rounds} rounds")
            print(f"{'':12}{'connections':>12}{'jobs/s':>10}{'CPU ms/job':>12}{'median ms':>11}{'added ms':>10}")
            for connections in options.connections:
                figures: dict[str, list[Figures]] = {name: [] for name in targets}
                for number in range(options.rounds + 1):
                    jobs = options.jobs if number else max(connections, options.jobs // 8)  # the first warms up
                    for name, (target, port, pid) in targets.items():
                        found = asyncio.run(measure(target, port, pid, jobs, connections))
                        if number:
                            figures[name].append(found)
                report(connections, figures)
        finally:
            for server in reversed(servers):
                server.terminate()
                server.wait(10)


def report(connections: int, figures: dict[str, list[Figures]]) -> None:
    direct = figures["direct"]
    for name, rounds in figures.items():
        rate, cpu, latency = (statistics.median(column) for column in zip(*rounds, strict=True))
        added = statistics.median(own[2] - other[2] for own, other in zip(rounds, direct, strict=True))
        print(f"{name:12}{connections:>12}{rate:>10.0f}{cpu:>12.3f}{latency:>11.2f}{added:>10.2f}")
    if theirs := figures.get("by httpx"):
        rate, cpu, latency = (
            statistics.median(own[at] / other[at] for own, other in zip(figures["through"], theirs, strict=True))
            for at in range(3)
        )
        print(f"{'ratio':12}{connections:>12}{rate:>10.2f}{cpu:>12.2f}{latency:>11.2f}")


if __name__ == "__main__":
    main()
