"""What the gateway adds to a call of an agent behind it: an echo agent on a server without delay, called directly and
through the gateway, over the same protocol (ACP).

    .venv/bin/python -m bench.proxy [--jobs 2000] [--connections 1 16] [--rounds 3] [--httpx]

With --httpx, also through a gateway whose calls go over httpx's own transport. A round visits every target once, in
turn, so that what else the machine does hits all alike; figures are medians over the rounds, and so are ratios, which
are taken in each.
"""

import argparse
import statistics
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from bench import server, work
from bench.server import Figures, Server
from bench.work import Job

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
OURS = ("env", *(f"--unset={name}" for name in PROXIES))
HTTPX = (*OURS, "all_proxy=http://127.0.0.1:9", "no_proxy=127.0.0.1")
"""Where there is a proxy for anything, calls are httpx's own from end to end; for this address there is none."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--connections", type=int, nargs="*", default=[1, 16])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--httpx", action="store_true", help="compare with httpx's own transport")
    options = parser.parse_args()
    server.pin_client()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
        home = Path(folder)
        far = servers.enter_context(server.running(server.uvicorn("bench.upstream:app"), home / "upstream"))
        targets: dict[str, tuple[Server, Job]] = {"direct": (far, work.acp("/runs"))}
        for name, environment in (("through", OURS), ("by httpx", HTTPX))[: 2 if options.httpx else 1]:
            serve = [*environment, *server.gateway(f"echo=http://127.0.0.1:{far.port}")]
            targets[name] = servers.enter_context(server.running(serve, home / name)), work.acp()
        print(f"{options.jobs} jobs a round, medians of {options.rounds} rounds")
        print(f"{'':12}{'connections':>12}{'jobs/s':>10}{'CPU ms/job':>12}{'median ms':>11}{'added ms':>10}")
        for connections in options.connections:
            rounds: dict[str, list[Figures]] = {name: [] for name in targets}
            for number in range(options.rounds + 1):
                jobs = options.jobs if number else max(connections, options.jobs // 8)  # the first warms up
                for name, (target, job) in targets.items():
                    found = server.measure(target, job, jobs, connections)
                    if number:
                        rounds[name].append(found)
            report(connections, rounds)


def report(connections: int, rounds: Mapping[str, list[Figures]]) -> None:
    direct = rounds["direct"]
    for name, each in rounds.items():
        found = server.median(each)
        added = statistics.median(own.latency - other.latency for own, other in zip(each, direct, strict=True))
        line = f"{name:12}{connections:>12}{found.rate:>10.0f}{found.cpu:>12.3f}{found.latency:>11.2f}{added:>10.2f}"
        print(line, flush=True)
    if theirs := rounds.get("by httpx"):
        pairs = list(zip(rounds["through"], theirs, strict=True))
        rate = statistics.median(own.rate / other.rate for own, other in pairs)
        cpu = statistics.median(own.cpu / other.cpu for own, other in pairs)
        latency = statistics.median(own.latency / other.latency for own, other in pairs)
        print(f"{'ratio':12}{connections:>12}{rate:>10.2f}{cpu:>12.2f}{latency:>11.2f}")


if __name__ == "__main__":
    main()
