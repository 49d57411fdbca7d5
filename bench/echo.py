"""The cost of the gateway itself: the echo agent over each protocol, on the durable default, beside a bare Litestar
POST echo in the same run.

    .venv/bin/python -m bench.echo [--jobs 4000] [--connections 16] [--rounds 3]

Each server is a process of its own. A round visits every target once, in turn, so that what else the machine does
hits all alike; the figures are medians over the rounds. CPU is the server process's own user and system time.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

BARE = "bench.bare:app"


@dataclass(frozen=True)
class Target:
    name: str
    path: str
    body: Callable[[int], bytes]
    headers: str = ""
    expect: bytes = b"completed"
    bare: bool = False


def a2a(number: int) -> bytes:
    message = {"messageId": str(number), "role": "ROLE_USER", "parts": [{"text": "Hello"}]}
    return json.dumps(
        {"jsonrpc": "2.0", "id": number, "method": "SendMessage", "params": {"message": message}}
    ).encode()


def acp(number: int) -> bytes:
    return json.dumps({"agent_name": "echo", "input": [{"role": "user", "parts": [{"content": "Hello"}]}]}).encode()


TARGETS = (
    Target("bare Litestar", "/", acp, expect=b"input", bare=True),
    Target("A2A 1.0", "/a2a/echo", a2a, "A2A-Version: 1.0\r\n", b"TASK_STATE_COMPLETED"),
    Target("ACP", "/acp/runs", acp),
)


async def connection(host: str, port: int, target: Target, jobs: int, times: list[float]) -> None:
    """One keep-alive connection, one call after the other. Written on bare sockets: a client library would cost more
    than what is measured, and on the same cores."""
    reader, writer = await asyncio.open_connection(host, port)
    for number in range(jobs):
        body = target.body(number)
        head = f"POST {target.path} HTTP/1.1\r\nHost: {host}\r\n{target.headers}Content-Length: {len(body)}\r\n\r\n"
        begun = time.perf_counter()
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1]) for line in answer.split(b"\r\n") if line.lower().startswith(b"content-length")
        )
        content = await reader.readexactly(length)
        times.append(time.perf_counter() - begun)
        if not answer.startswith(b"HTTP/1.1 20") or target.expect not in content:
            raise SystemExit(f"{target.name}: {answer.decode()}{content.decode()}")
    writer.close()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(target: Target, port: int, pid: int, jobs: int, connections: int) -> tuple[float, float, float]:
    """Jobs a second, milliseconds of CPU a job, median milliseconds a call."""
    times: list[float] = []
    used, begun = cpu_seconds(pid), time.perf_counter()
    each = jobs // connections
    await asyncio.gather(*(connection("127.0.0.1", port, target, each, times) for _ in range(connections)))
    done = each * connections
    took, used = time.perf_counter() - begun, cpu_seconds(pid) - used
    return done / took, used / done * 1000, statistics.median(times) * 1000


def start(command: list[str], port: int, folder: str) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    server = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            asyncio.run(_probe(port))
            return server
        except OSError:
            if server.poll() is not None:
                break
    raise SystemExit(f"did not start: {' '.join(command)}")


async def _probe(port: int) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, default=4000)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bare_port, port = free_port(), free_port()
        python = sys.executable
        bare = start(
            [python, "-m", "uvicorn", BARE, "--port", str(bare_port), "--log-level", "critical"], bare_port, folder
        )
        gateway = start([python, "-m", "gateway", "serve", "--port", str(port), "--log-level", "warning"], port, folder)
        figures: dict[str, list[tuple[float, float, float]]] = {target.name: [] for target in TARGETS}
        try:
            for number in range(options.rounds + 1):
                for target in TARGETS:
                    where, pid = (bare_port, bare.pid) if target.bare else (port, gateway.pid)
                    jobs = options.jobs if number else max(options.connections, options.jobs // 8)  # the first warms up
                    found = asyncio.run(measure(target, where, pid, jobs, options.connections))
                    if number:
                        figures[target.name].append(found)
        finally:
            for server in (bare, gateway):
                server.terminate()
                server.wait(10)
    print(f"{options.connections} connections, {options.jobs} jobs a round, medians of {options.rounds} rounds")
    print(f"{'':16}{'jobs/s':>10}{'CPU ms/job':>12}{'median ms':>11}")
    for name, rounds in figures.items():
        rate, cpu, latency = (statistics.median(column) for column in zip(*rounds, strict=True))
        print(f"{name:16}{rate:>10.0f}{cpu:>12.3f}{latency:>11.2f}")


if __name__ == "__main__":
    main()
