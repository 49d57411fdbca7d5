"""Sandbox (resource limits): what a check runs of foreign code or foreign patterns, in a process of its own, with
bounds on time and memory, without network, without the environment of the bench, in a folder that is thrown away.

It keeps mistakes and runaway loops from doing harm. It is no prison for code that wants to do harm: such a program
still reads what its user may read.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

_JAIL: Final = Path(__file__).parent / "jail.py"
_START: Final = 30.0
"""Seconds that a process may take to start, on a machine that is busy."""
_SLACK: Final = 5.0
"""Seconds more for a program that does not compute but sleeps: it is counted from before its start."""
_MATCH: Final = 5.0
"""Seconds for one pattern, one schema."""
_MATCH_MEMORY: Final = 2 * 2**30
_FOR_EVER: Final = 2**30
_PRINTED: Final = 2**20
"""Bytes of what a program prints that are kept."""


class TooLong(Exception):
    """It did not end in time."""


@dataclass(frozen=True, slots=True)
class Finding:
    passed: bool
    why: str = ""
    broken: bool = False
    """The check itself is wrong: nothing is said of the agent."""


@dataclass(frozen=True, slots=True)
class Printed:
    code: int
    stdout: str
    stderr: str


def safe_path(path: str) -> str | None:
    """A path below a folder, from what an agent calls its file; None if there is none in it."""
    parts = [part for part in PurePosixPath(path.replace("\\", "/")).parts if part not in ("/", "..", ".")]
    kept = [part[:200] for part in parts if "\0" not in part and not part.endswith(":")]
    return "/".join(kept) or None


def _environment(folder: str) -> dict[str, str]:
    """No keys, no proxies, nothing of whoever runs the bench. `python` is this one."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.defpath))
    return {"PATH": path, "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}


@asynccontextmanager
async def _jailed_process(folder: str, bounds: Mapping[str, Any], stdout: Any, stderr: Any) -> AsyncGenerator[Process]:
    """Started, with its bounds told; at the end it is gone, and what it started with it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        str(_JAIL),
        cwd=folder,
        env=_environment(folder),
        stdin=PIPE,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        limit=2**20,
    )
    assert process.stdin is not None
    try:
        with suppress(ConnectionError):
            process.stdin.write(json.dumps(bounds).encode() + b"\n")
            await process.stdin.drain()
        yield process
    finally:
        with suppress(ProcessLookupError):  # its own session: nobody else is in it
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


@contextmanager
def _workspace(files: Mapping[str, bytes]) -> Generator[str]:
    with tempfile.TemporaryDirectory(prefix="babelgate-check-", ignore_cleanup_errors=True) as folder:
        for name, data in files.items():
            if (safe := safe_path(name)) is not None:
                path = Path(folder, safe)
                with suppress(OSError):  # a file where another's folder is: the first one stays
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(data)
        yield folder


def _read_output(file: IO[bytes]) -> str:
    """The beginning of what was printed; how much there may be of it is bounded by the child."""
    file.seek(0)
    return file.read(_PRINTED).decode(errors="replace")


def _too_long(seconds: float) -> str:
    return f"it did not end within {seconds:g} seconds"


async def run_check(
    source: str, name: str, run: Mapping[str, Any], files: Mapping[str, bytes], *, seconds: float, memory: int
) -> Finding:
    """The function `check` of a Python source, of what a run gave. `memory` in bytes. Raises TimeoutError."""
    bounds = {"memory": memory, "seconds": ceil(seconds) + 1, "source": source, "name": name, "run": dict(run)}
    with _workspace(files) as folder, tempfile.TemporaryFile() as errors:
        async with _jailed_process(folder, bounds, PIPE, errors) as process:
            assert process.stdout is not None
            try:
                async with asyncio.timeout(_START):
                    await process.stdout.readline()
                async with asyncio.timeout(seconds):
                    line = await process.stdout.readline()
                    if not line and await process.wait() == -signal.SIGXCPU:
                        raise TimeoutError
            except TimeoutError:
                return Finding(False, _too_long(seconds))
        if not line:
            said = _read_output(errors).strip().splitlines()
            return Finding(False, f"it ended without a verdict{': ' + said[-1][:500] if said else ''}")
    answer: dict[str, Any] = json.loads(line)
    return Finding(bool(answer.get("passed")), str(answer.get("why", "")), bool(answer.get("broken")))


async def run_program(arguments: Sequence[str], files: Mapping[str, bytes], *, seconds: float, memory: int) -> Printed:
    """`python arguments…` among the files. Raises TooLong."""
    bounds = {"memory": memory, "seconds": ceil(seconds), "program": list(arguments)}
    with _workspace(files) as folder, tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as errors:
        async with _jailed_process(folder, bounds, said, errors) as process:
            assert process.stdin is not None
            process.stdin.close()
            try:
                async with asyncio.timeout(_SLACK + seconds):
                    code = await process.wait()
            except TimeoutError:
                code = -signal.SIGXCPU
        if code == -signal.SIGXCPU:
            raise TooLong(_too_long(seconds))
        return Printed(code, _read_output(said), _read_output(errors))


class Matcher:
    """Regular expressions and JSON schemas of task files, each with a bound on its time: some take longer than the age
    of the universe on a text that is made for them. One process serves until one of them does not come back."""

    def __init__(self, seconds: float = _MATCH) -> None:
        self._seconds = seconds
        self._turn = asyncio.Lock()
        self._process: Process | None = None
        self._stack = AsyncExitStack()
        self.isolation = ""
        """`kernel` or `hook`: who refuses sockets to the process."""

    async def __aenter__(self) -> "Matcher":
        async with self._turn:
            await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def find(self, pattern: str, text: str, *, ignore_case: bool = False) -> bool:
        """Raises TooLong, and ValueError for what is no pattern."""
        answer = await self._ask({"do": "match", "pattern": pattern, "text": text, "ignore_case": ignore_case})
        return bool(answer["found"])

    async def mismatch(self, schema: Any, value: Any) -> str | None:
        """Why a value is not valid; None if it is. Raises TooLong, and ValueError for what is no schema."""
        return (await self._ask({"do": "mismatch", "schema": schema, "value": value}))["why"]

    async def _ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        async with self._turn:
            process = self._process or await self._start()
            assert process.stdin is not None and process.stdout is not None
            line = b""
            try:
                async with asyncio.timeout(self._seconds):
                    process.stdin.write(json.dumps(question).encode() + b"\n")
                    await process.stdin.drain()
                    line = await process.stdout.readline()
            except TimeoutError:
                raise TooLong(f"it took more than {self._seconds:g} seconds") from None
            except ConnectionError:
                line = b""
            finally:
                if not line:
                    await self._stop()
        if not line:
            raise TooLong("it took more memory than it may")
        answer: dict[str, Any] = json.loads(line)
        if "wrong" in answer:
            raise ValueError(answer["wrong"])
        return answer

    async def _start(self) -> Process:
        folder = self._stack.enter_context(_workspace({}))
        bounds = {"memory": _MATCH_MEMORY, "seconds": _FOR_EVER}
        process = await self._stack.enter_async_context(_jailed_process(folder, bounds, PIPE, DEVNULL))
        assert process.stdout is not None
        async with asyncio.timeout(_START):
            self.isolation = json.loads(await process.stdout.readline())["isolation"]
        self._process = process
        return process

    async def _stop(self) -> None:
        self._process = None
        await self._stack.aclose()
