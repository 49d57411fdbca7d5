"""Measured servers: each is a separate process, pinned to one core if the machine has two."""

import asyncio
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from bench.client import KeepAliveConnection
from bench.work import Job

T = TypeVar("T")

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
PYTHON = sys.executable
_PROJECT = Path(__file__).parent.parent
_COMPILED = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir(), "babelgate-bench"))}
"""Environment that caches compiled sources, as in an installed package. Compiling would take half of a start."""

ERASING_SOON: Final[Mapping[str, str]] = {"BABELGATE_LIMITS__EPHEMERAL_TTL": "1"}
"""Environment in which a gateway erases the thread of a stateless run after a second instead of a minute."""
KEEPING: Final[Mapping[str, str]] = {"BABELGATE_LIMITS__EPHEMERAL_TTL": "86400"}
"""Environment in which a gateway erases no thread of a stateless run during a measurement."""
QUIET: Final = 1.5
"""Seconds without work after which a gateway with `ERASING_SOON` has erased the threads of all stateless runs."""
_TICKS: Final = 0.02
"""CPU time in seconds that an idle server may take in this time: two ticks of the kernel's clock. Chosen."""


@dataclass(frozen=True, slots=True)
class ServerProcess:
    port: int
    pid: int
    rpc_port: int | None = None
    """Port of the process's gRPC server."""

    @property
    def rpc(self) -> "ServerProcess":
        """Target for jobs of gRPC: the same process on the port of its gRPC server."""
        assert self.rpc_port is not None
        return ServerProcess(self.rpc_port, self.pid)

    @property
    def cpu(self) -> float:
        """Seconds of user and system time of the process, its threads and its children."""
        return sum(map(cpu_seconds, (self.pid, *descendants(self.pid))))


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """Speed of a server under one kind of job: of one round, or the medians of several."""

    rate: float
    """Jobs per second."""
    cpu: float
    """CPU time of the server per job, in milliseconds."""
    latency: float
    """Median duration of a job, in milliseconds."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def gateway(*arguments: str, module: str = "babelgate") -> list[str]:
    return [PYTHON, "-m", module, "serve", *arguments, "--log-level", "warning", "--port", "{port}"]


def uvicorn(app: str, python: str = PYTHON, *arguments: str) -> list[str]:
    return [python, "-m", "uvicorn", app, *arguments, "--log-level", "critical", "--no-access-log", "--port", "{port}"]


@contextmanager
def running(
    command: Sequence[str],
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
    patience: float = 180,
    pinned: bool = True,
    serves_grpc: bool = False,
) -> Generator[ServerProcess]:
    """Start a server and yield it as soon as it accepts connections. `{port}` in the command becomes its port.

    - `pinned` pins it to the first core.
    - `serves_grpc` makes a gateway listen for gRPC, too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port, rpc_port = free_port(), free_port() if serves_grpc else None
    rpc_environment = {} if rpc_port is None else {"BABELGATE_GRPC__LISTEN": f"127.0.0.1:{rpc_port}"}
    with Path(folder, "stderr").open("wb") as errors:
        process = subprocess.Popen(
            [part.replace("{port}", str(port)) for part in command],
            cwd=folder,
            env={**os.environ, **_COMPILED, "PYTHONPATH": str(_PROJECT), **rpc_environment, **(environment or {})},
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
    try:
        for each in (port, rpc_port):
            if each is not None:
                _await_port(process, each, patience, folder)
        if pinned and len(CORES) > 1:
            _pin(process.pid, CORES[:1])
        yield ServerProcess(port, process.pid, rpc_port)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def pin_client() -> None:
    """Pin the client to the cores that have no server."""
    if len(CORES) > 1:
        os.sched_setaffinity(0, CORES[1:])


def measure(server: ServerProcess, job: Job, jobs: int, connections: int, *, quiet: float = 0) -> LoadFigures:
    """Measure a server under some jobs. With `quiet`, the CPU time includes what the server does afterwards, such as
    erasing, until it has not worked for so many seconds. Otherwise this work would count for the next job."""
    used, begun = server.cpu, time.perf_counter()
    times = asyncio.run(_run(server.port, job, jobs // connections, connections))
    took = time.perf_counter() - begun
    if quiet:
        _await_quiet(server, quiet)
    used = server.cpu - used
    return LoadFigures(len(times) / took, used / len(times) * 1000, statistics.median(times) * 1000)


def _await_quiet(server: ServerProcess, seconds: float) -> None:
    used = -_TICKS
    while (now := server.cpu) - used > _TICKS:
        used = now
        time.sleep(seconds)  # noqa: TID251  # another process, which reports nothing


def in_turn(targets: Iterable[T], number: int) -> list[T]:
    """Return the targets in their order, and in every other round reversed.

    A machine that slows down within a round favors the first target. Measured: the same gateway took 9.5 times a bare
    Litestar as the first of five, and 11.6 times as the last of six, 2026-11."""
    ordered = list(targets)
    return ordered[::-1] if number % 2 else ordered


def median(rounds: Sequence[LoadFigures]) -> LoadFigures:
    return LoadFigures(
        statistics.median(each.rate for each in rounds),
        statistics.median(each.cpu for each in rounds),
        statistics.median(each.latency for each in rounds),
    )


async def _run(port: int, job: Job, each: int, connections: int) -> list[float]:
    times: list[float] = []

    async def caller(first: int) -> None:
        connection = await KeepAliveConnection.open(port)
        for number in range(first, first + each):
            begun = time.perf_counter()
            await job(connection, number)
            times.append(time.perf_counter() - begun)
        connection.close()

    await asyncio.gather(*(caller(number * each) for number in range(connections)))
    return times


def _await_port(process: "subprocess.Popen[bytes]", port: int, patience: float, folder: Path) -> None:
    end = time.monotonic() + patience
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
    errors = Path(folder, "stderr").read_text(errors="replace")[-2000:]
    raise SystemExit(f"did not start: {process.args}\n{errors}")


def _pin(pid: int, cores: Sequence[int]) -> None:
    """Pin a process with its current threads and children. New ones inherit the cores."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)
    for child in descendants(pid):
        _pin(child, cores)


def descendants(pid: int) -> list[int]:
    """Return the children of a process, their children, and so on. A process that ends meanwhile has none."""
    found: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (thread / "children").read_text().split()):
                found += [child, *descendants(child)]
    return found


def cpu_seconds(pid: int, *, ended: bool = False) -> float:
    """Return the user and system time of a process in seconds. `ended` adds that of its ended children.

    Source: proc(5), fields 14 to 17 of `/proc/PID/stat`.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if ended else 13])) / os.sysconf("SC_CLK_TCK")
