"""What the gateway adds to a call of an agent behind it: an echo agent on a server without delay, called directly and
through the gateway, over the same protocol (ACP).

    .venv/bin/python -m bench.proxy [--jobs 2000] [--connections 16] [--rounds 3]
"""

import argparse
import asyncio
import statistics
import sys
import tempfile

from bench.echo import Target, acp, free_port, measure, start

DIRECT = Target("direct", "/runs", acp)
THROUGH = Target("through", "/acp/runs", acp)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--connections", type=int, nargs="*", default=[1, 16])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        python, far, near = sys.executable, free_port(), free_port()
        uvicorn = [python, "-m", "uvicorn", "bench.upstream:app", "--port", str(far), "--log-level", "critical"]
        upstream = start(uvicorn, far, folder)
        target = f"echo=http://127.0.0.1:{far}"
        serve = [python, "-m", "gateway", "serve", target, "--port", str(near), "--log-level", "warning"]
        gateway = start(serve, near, folder)
        print(f"{options.jobs} jobs a round, medians of {options.rounds} rounds")
        print(f"{'':8}{'connections':>12}{'jobs/s':>10}{'CPU ms/job':>12}{'median ms':>11}")
        try:
            for connections in options.connections:
                figures: dict[str, list[tuple[float, float, float]]] = {"direct": [], "through": []}
                for number in range(options.rounds + 1):
                    for each, port, pid in ((DIRECT, far, upstream.pid), (THROUGH, near, gateway.pid)):
                        jobs = options.jobs if number else max(connections, options.jobs // 8)  # the first warms up
                        found = asyncio.run(measure(each, port, pid, jobs, connections))
                        if number:
                            figures[each.name].append(found)
                for name, rounds in figures.items():
                    rate, cpu, latency = (statistics.median(column) for column in zip(*rounds, strict=True))
                    print(f"{name:8}{connections:>12}{rate:>10.0f}{cpu:>12.3f}{latency:>11.2f}")
        finally:
            for server in (gateway, upstream):
                server.terminate()
                server.wait(10)


if __name__ == "__main__":
    main()
