"""Sandbox for code and patterns that come from authors of checks or from agents.

They run in a separate process with limits on time and memory. The process has no network, none of the benchmark's
environment variables, and a temporary folder. The sandbox contains mistakes and runaway loops. It does not stop
malicious code, which can still read what the user can read.
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
_START_TIMEOUT: Final = 30.0
"""Timeout for the start of the sandbox process, in seconds. Chosen long, because the machine may be busy."""
_EXTRA_SECONDS: Final = 5.0
"""Seconds added to the timeout of a program for the start of its process. Chosen."""
_MATCH_TIMEOUT: Final = 5.0
"""Timeout for the evaluation of one regular expression or one JSON Schema, in seconds. Chosen."""
_MATCH_MEMORY: Final = 2 * 2**30
_UNLIMITED_SECONDS: Final = 2**30
_MAX_OUTPUT: Final = 2**20
"""Maximum number of bytes that are kept of a program's stdout, and of its stderr. Chosen."""


class SandboxTimeout(Exception):
    """Error for a program or pattern that exceeded its limit of time or memory."""


@dataclass(frozen=True, slots=True)
class SandboxResult:
    passed: bool
    why: str = ""
    broken: bool = False
    """True if the check itself is invalid, so that the agent is not judged."""


@dataclass(frozen=True, slots=True)
class Printed:
    code: int
    stdout: str
    stderr: str


def safe_path(path: str) -> str | None:
    """Return the path that an agent gave to a file as a relative path that stays in its folder: without a root, a drive
    and `..`. Return None if nothing remains."""
    parts = [part for part in PurePosixPath(path.replace("\\", "/")).parts if part not in ("/", "..", ".")]
    safe_parts = [part[:200] for part in parts if "\0" not in part and not part.endswith(":")]
    return "/".join(safe_parts) or None


def _environment(folder: str) -> dict[str, str]:
    """Return the environment variables of a sandbox process, with its temporary folder as home. None of the user's
    variables, such as keys or proxies, are passed on. The command `python` is this interpreter."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.defpath))
    return {"PATH": path, "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}


@asynccontextmanager
async def _jailed_process(folder: str, bounds: Mapping[str, Any], stdout: Any, stderr: Any) -> AsyncGenerator[Process]:
    """Start the sandbox process (`jail.py`) in a folder, send it the limits `bounds`, and yield it. `stdout` and
    `stderr` are as in `subprocess.Popen`. On exit, kill it with all its child processes."""
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
        with suppress(
            ProcessLookupError
        ):  # The process has its own session, so the group contains only it and its children.
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


@contextmanager
def _workspace(files: Mapping[str, bytes]) -> Generator[str]:
    with tempfile.TemporaryDirectory(prefix="babelgate-check-", ignore_cleanup_errors=True) as folder:
        for name, data in files.items():
            if (safe := safe_path(name)) is not None:
                path = Path(folder, safe)
                with suppress(OSError):  # A file whose path needs a folder where a file exists is left out.
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(data)
        yield folder


def _read_output(file: IO[bytes]) -> str:
    """Return the first `_MAX_OUTPUT` bytes of a program's output as text. The child process limits the total size of
    the file."""
    file.seek(0)
    return file.read(_MAX_OUTPUT).decode(errors="replace")


def _too_long(seconds: float) -> str:
    return f"it did not end within {seconds:g} seconds"


async def run_check(
    source: str, name: str, run: Mapping[str, Any], files: Mapping[str, bytes], *, seconds: float, memory: int
) -> SandboxResult:
    """Run the Python source of a check: call its function `check` with `run`, the result of an attempt, in a folder
    with `files`. It may take `seconds` and use `memory` bytes.

    A check that fails or takes too long raises nothing: the returned SandboxResult has the reason.
    """
    bounds = {"memory": memory, "seconds": ceil(seconds) + 1, "source": source, "name": name, "run": dict(run)}
    with _workspace(files) as folder, tempfile.TemporaryFile() as errors:
        async with _jailed_process(folder, bounds, PIPE, errors) as process:
            assert process.stdout is not None
            try:
                async with asyncio.timeout(_START_TIMEOUT):
                    await process.stdout.readline()
                async with asyncio.timeout(seconds):
                    line = await process.stdout.readline()
                    if not line and await process.wait() == -signal.SIGXCPU:
                        raise TimeoutError
            except TimeoutError:
                return SandboxResult(False, _too_long(seconds))
        if not line:
            lines = _read_output(errors).strip().splitlines()
            return SandboxResult(False, f"it ended without a verdict{': ' + lines[-1][:500] if lines else ''}")
    answer: dict[str, Any] = json.loads(line)
    return SandboxResult(bool(answer.get("passed")), str(answer.get("why", "")), bool(answer.get("broken")))


async def run_program(arguments: Sequence[str], files: Mapping[str, bytes], *, seconds: float, memory: int) -> Printed:
    """Run `python arguments…` in a temporary folder with `files`, for at most `seconds` and with at most `memory` bytes
    of memory. Return its exit code and its output. Raises SandboxTimeout if the time is used up."""
    bounds = {"memory": memory, "seconds": ceil(seconds), "program": list(arguments)}
    with _workspace(files) as folder, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        async with _jailed_process(folder, bounds, output, errors) as process:
            assert process.stdin is not None
            process.stdin.close()
            try:
                async with asyncio.timeout(_EXTRA_SECONDS + seconds):
                    code = await process.wait()
            except TimeoutError:
                code = -signal.SIGXCPU
        if code == -signal.SIGXCPU:
            raise SandboxTimeout(_too_long(seconds))
        return Printed(code, _read_output(output), _read_output(errors))


class Matcher:
    """Evaluator for the regular expressions and JSON Schemas of task files, with a time limit.

    An evaluation can take practically forever, if a text makes a regular expression backtrack. So a sandbox process
    evaluates them one after the other. If one exceeds its limit, the process is killed and replaced.
    """

    def __init__(self, seconds: float = _MATCH_TIMEOUT) -> None:
        self._seconds = seconds
        self._turn = asyncio.Lock()
        self._process: Process | None = None
        self._stack = AsyncExitStack()
        self.isolation = ""
        """Mechanism that denies sockets to the sandbox process: `kernel` or `hook` (see `jail`)."""

    async def __aenter__(self) -> "Matcher":
        async with self._turn:
            await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def find(self, pattern: str, text: str, *, ignore_case: bool = False) -> bool:
        """Return True if a regular expression matches anywhere in the text. `ignore_case` treats upper and lower case
        as equal. Raises SandboxTimeout, ValueError (invalid pattern)."""
        answer = await self._ask({"do": "match", "pattern": pattern, "text": text, "ignore_case": ignore_case})
        return bool(answer["found"])

    async def mismatch(self, schema: Any, value: Any) -> str | None:
        """Return why a value does not conform to a JSON Schema, or None if it does. Raises SandboxTimeout, and
        ValueError if the schema is invalid."""
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
                raise SandboxTimeout(f"it took more than {self._seconds:g} seconds") from None
            except ConnectionError:
                line = b""
            finally:
                if not line:
                    await self._stop()
        if not line:
            raise SandboxTimeout("it took more memory than it may")
        answer: dict[str, Any] = json.loads(line)
        if "wrong" in answer:
            raise ValueError(answer["wrong"])
        return answer

    async def _start(self) -> Process:
        folder = self._stack.enter_context(_workspace({}))
        bounds = {"memory": _MATCH_MEMORY, "seconds": _UNLIMITED_SECONDS}
        process = await self._stack.enter_async_context(_jailed_process(folder, bounds, PIPE, DEVNULL))
        assert process.stdout is not None
        async with asyncio.timeout(_START_TIMEOUT):
            self.isolation = json.loads(await process.stdout.readline())["isolation"]
        self._process = process
        return process

    async def _stop(self) -> None:
        self._process = None
        await self._stack.aclose()
