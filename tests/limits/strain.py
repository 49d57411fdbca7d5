"""A gateway in a separate process, and the effect of a request on it: the delay of other callers, and the memory that
it needs.
"""

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
"""Timeout of one measured request, in seconds."""
MOST_BUSY: Final = 5.0
"""Maximum time for which the gateway may compute without answering other callers, in seconds.

The aim is 0.5 s on an idle machine with two cores. Machines that run tests were ten times slower, and the failures that
this detects take longer still.
"""
MOST_WAIT: Final = 60.0
"""Maximum delay of other callers for any reason, in seconds.

A last resort, because test machines also have other load.
"""
MOST_MEMORY: Final = 200 * MB
"""Maximum memory in addition to the request's own body, in bytes."""


SLOW: Final = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]
"""Marks of the tests that measure."""


def python_agents(*names: str, module: str = "loud") -> dict[str, Any]:
    """Return the settings of agents in a module of this folder, and of `echo`, which the probe calls."""
    agents = {name: {"python": f"tests.limits.{module}:{name}"} for name in names}
    return {**agents, "echo": {"python": "babelgate.gateway.demo:echo"}}


@dataclass
class Strain:
    """Effect of a request, measured from outside. It is set at the end of the measurement."""

    wait: float = 0.0
    """Time of the slowest answer to other callers, in seconds."""
    busy: float = 0.0
    """Part of that time in which the gateway itself computed, in seconds."""
    memory: int = 0
    """Maximum growth of the gateway's memory, in bytes."""
    requests: int = 0
    detail: Mapping[str, Any] | None = None

    def check(self, body: int = 0, *, memory: int = MOST_MEMORY) -> None:
        """Assert that the effect is within the limits. `body` is the size of the request's body, in bytes."""
        print(f"{self!s}, body {body / MB:.0f} MB")
        assert self.busy <= MOST_BUSY, self
        assert self.wait <= MOST_WAIT, self
        assert self.memory <= body + memory, self

    def __str__(self) -> str:
        return f"others waited {self.wait:.2f} s ({self.busy:.2f} s of computing), {self.memory / MB:.0f} MB"


class Strained:
    """A gateway that a test can strain."""

    def __init__(self, process: Served, http: httpx.AsyncClient, probe: "_Probe") -> None:
        self.process = process
        self.url = process.url
        self.http = http
        """Client with the gateway as its base URL."""
        self.pid = process.process.pid
        self.port = _port(process.url)
        self._probe = probe

    def memory(self) -> tuple[int, int]:
        """Return the current and the maximum memory, in bytes of RAM."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = dict(line.split(":", 1) for line in status.splitlines() if line.startswith("Vm"))
        return tuple(int(found[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))  # type: ignore[return-value]

    def reset_peak(self) -> int:
        """Start a new measurement of the maximum, and return the current memory (proc(5), clear_refs)."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        return self.memory()[0]

    @asynccontextmanager
    async def watched(self) -> AsyncGenerator[Strain]:
        """Measure until the end of the block."""
        found = Strain()
        assert await self._probe.ask("begin") == "ready\n"
        before = self.reset_peak()
        try:
            async with asyncio.timeout(BOUND):
                yield found
        finally:
            measured = json.loads(await self._probe.ask("end"))
        found.memory = self.memory()[1] - before
        assert not any(each["failed"] for each in measured.values()), measured
        found.detail = measured
        found.wait = max(each["wait"] for each in measured.values())
        found.busy = max(each["busy"] for each in measured.values())
        found.requests = sum(each["asked"] for each in measured.values())


class _Probe:
    """The program `tests.limits.probe` for one gateway."""

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
    """Start a gateway with settings of babelgate.yaml. It may fetch from loopback unless they forbid it."""
    all_settings: dict[str, Any] = {"network": {"allow": ["127.0.0.0/8"]}, "log_level": "warning", **settings}
    (folder / "babelgate.yaml").write_text(yaml.safe_dump(all_settings))
    async with (
        served_in_loop(folder, "--config", "babelgate.yaml") as process,
        loopback.client(base_url=process.url, timeout=httpx.Timeout(BOUND)) as http,
        _probing(_port(process.url), process.process.pid) as probe,
    ):
        yield Strained(process, http, probe)


def _port(url: str) -> int:
    return int(url.rpartition(":")[2])
