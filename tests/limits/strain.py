"""A gateway in a process of its own, and what a request does to it: how long others wait, how much memory it takes."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml

from tests import loopback
from tests.gateway.command import ROOT, Served, served_in_loop

MB: Final = 2**20
BOUND: Final = 100.0
"""Seconds for one request under measurement."""
MOST_BUSY: Final = 5.0
"""Seconds for which nobody else may be answered because the gateway computes. The aim is 0.5 s on a quiet machine of
two cores; machines that run tests were seen to be ten times slower, and what this is to find takes longer still."""
MOST_WAIT: Final = 60.0
"""The same, whatever the reason: a backstop, because machines that run tests do other things, too."""
MOST_MEMORY: Final = 200 * MB
"""Beyond the request's own body."""


SLOW: Final = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]
"""Marks of the tests that measure."""


def python_agents(*names: str, module: str = "loud") -> dict[str, Any]:
    """Settings of agents of a module of this folder, and of `echo`, which the probe calls."""
    agents = {name: {"python": f"tests.limits.{module}:{name}"} for name in names}
    return {**agents, "echo": {"python": "babelgate.gateway.demo:echo"}}


@dataclass
class Strain:
    """What was noticed from outside. Filled when the measurement has ended."""

    wait: float = 0.0
    """Seconds of the slowest answer to anybody else."""
    busy: float = 0.0
    """The same, as far as the gateway itself computed meanwhile."""
    memory: int = 0
    """Bytes by which the gateway grew at the most."""
    asked: int = 0
    detail: Mapping[str, Any] | None = None

    def check(self, body: int = 0, *, memory: int = MOST_MEMORY) -> None:
        """`body` = bytes that the request itself has."""
        print(f"{self!s}, body {body / MB:.0f} MB")
        assert self.busy <= MOST_BUSY, self
        assert self.wait <= MOST_WAIT, self
        assert self.memory <= body + memory, self

    def __str__(self) -> str:
        return f"others waited {self.wait:.2f} s ({self.busy:.2f} s of computing), {self.memory / MB:.0f} MB"


class Strained:
    """A gateway to put requests to."""

    def __init__(self, process: Served, http: httpx.AsyncClient, probe: "_Probe") -> None:
        self.process = process
        self.url = process.url
        self.http = http
        """With the gateway as its base URL."""
        self.pid = process.process.pid
        self.port = _port(process.url)
        self._probe = probe

    def memory(self) -> tuple[int, int]:
        """(now, at the most) in bytes of RAM."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = dict(line.split(":", 1) for line in status.splitlines() if line.startswith("Vm"))
        return tuple(int(found[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))  # type: ignore[return-value]

    def reset_peak(self) -> int:
        """The memory now; the peak begins here (proc(5), clear_refs)."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        return self.memory()[0]

    @asynccontextmanager
    async def watched(self) -> AsyncGenerator[Strain]:
        """Measure from here to the end of the block."""
        found = Strain()
        assert await self._probe.ask("begin") == "ready\n"
        before = self.reset_peak()
        try:
            async with asyncio.timeout(BOUND):
                yield found
        finally:
            told = json.loads(await self._probe.ask("end"))
        found.memory = self.memory()[1] - before
        assert not any(each["failed"] for each in told.values()), told
        found.detail = told
        found.wait = max(each["wait"] for each in told.values())
        found.busy = max(each["busy"] for each in told.values())
        found.asked = sum(each["asked"] for each in told.values())


class _Probe:
    """`tests.limits.probe`, at the side of a gateway."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout

    async def ask(self, line: str) -> str:
        self._stdin.write(f"{line}\n".encode())
        async with asyncio.timeout(BOUND):
            return (await self._stdout.readline()).decode()


@asynccontextmanager
async def _probing(port: int, pid: int) -> AsyncGenerator[_Probe]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.limits.probe", str(port), str(pid)),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield _Probe(process)
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def strained(folder: Path, **settings: Any) -> AsyncGenerator[Strained]:
    """`settings` are those of babelgate.yaml; loopback may be fetched unless they say otherwise."""
    given: dict[str, Any] = {"network": {"allow": ["127.0.0.0/8"]}, "log_level": "warning", **settings}
    (folder / "babelgate.yaml").write_text(yaml.safe_dump(given))
    async with (
        served_in_loop(folder, "--config", "babelgate.yaml") as process,
        loopback.client(base_url=process.url, timeout=httpx.Timeout(BOUND)) as http,
        _probing(_port(process.url), process.process.pid) as probe,
    ):
        yield Strained(process, http, probe)


def _port(url: str) -> int:
    return int(url.rpartition(":")[2])
