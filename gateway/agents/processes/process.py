"""Child process that can be ended within a bounded time, and the loop that starts a program again when it ends."""

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol

log = logging.getLogger("babelgate.process")

EARLY_END: Final = 10.0
"""Seconds after its start within which the end of a process counts as early. Chosen."""
_RESTART_DELAY: Final = 0.5
"""Seconds until a program is started again after an early end. The delay is doubled after each further early end.
Chosen."""
_MAX_DELAY: Final = 60.0
"""Maximum delay of a restart, in seconds. Chosen."""
_TERM_GRACE: Final = 5.0
"""Seconds between SIGTERM and SIGKILL. Chosen."""
_LAST_LINES: Final = 1.0
"""Seconds in which the last lines of an ended process are read. Chosen."""
_LINE: Final = 2000
"""Maximum length of a process's line in the log, in characters. Chosen."""


class Child:
    """Child process of an agent, in its own process group, so that its own children can be ended with it. The lines
    that it writes to stdout and stderr are in the gateway's log."""

    def __init__(self, process: asyncio.subprocess.Process, reading: Coroutine[None, None, None]) -> None:
        """Create the handle of a process. `reading` reads its output until the end."""
        self.process = process
        self.pid = process.pid
        self._reading = asyncio.ensure_future(reading)

    @classmethod
    async def spawn(
        cls,
        agent: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        descriptors: Sequence[int] = (),
        memory: int | None = None,
        stdin: int = asyncio.subprocess.DEVNULL,
        stdout: int | None = None,
        read: "Callable[[str, int], Coroutine[None, None, None]] | None" = None,
    ) -> "Child":
        """Start a process of the agent `agent`. Raises OSError if the command cannot be executed.

        `env` replaces the environment; None inherits it. The process inherits `descriptors`. `memory` limits its
        address space, in bytes; only Linux can do that. `stdin` and `stdout` are descriptors that replace an empty
        stdin, and the stdout that is read. `read` reads the output and closes its descriptor; by default its lines are
        logged.
        """
        # Not a pipe of asyncio: `Process.wait` of Python 3.11 waits until all processes that inherit it have ended.
        output, writes = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env=env,
                cwd=cwd,
                pass_fds=descriptors,
                stdin=stdin,
                stdout=writes if stdout is None else stdout,
                stderr=writes,
                start_new_session=True,
            )
        except BaseException:
            os.close(output)
            raise
        finally:
            os.close(writes)
        if memory is not None and sys.platform == "linux":
            import resource

            with suppress(ProcessLookupError):
                resource.prlimit(process.pid, resource.RLIMIT_AS, (memory, memory))
        return cls(process, (read or _log_output)(agent, output))

    @property
    def has_ended(self) -> bool:
        return self.process.returncode is not None

    async def wait(self) -> str:
        """Wait until the process has ended, and return how it ended, such as `ended with status 3` or `was killed by
        SIGSEGV`."""
        code = await self.process.wait()
        if code >= 0:
            return f"ended with status {code}"
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
        return f"was killed by signal {-code}"

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    async def until_read(self) -> None:
        """Wait until the output of an ended process is read, for a second at most. Its own children may keep the output
        open."""
        await asyncio.wait((self._reading,), timeout=_LAST_LINES)

    async def stop(self, patience: float = 0.0) -> None:
        """End the process and its own children. Wait `patience` seconds for its end, then send SIGTERM, and 5 seconds
        later SIGKILL."""
        for number, grace in ((None, patience), (signal.SIGTERM, _TERM_GRACE), (signal.SIGKILL, _TERM_GRACE)):
            if number is not None:
                self._signal(number)
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self.process.wait()), grace)
                break
        self._signal(signal.SIGKILL)  # children that the process has left behind
        await self.until_read()
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


async def _log_output(agent: str, descriptor: int) -> None:
    """Log each line that is read from a descriptor, up to 2000 characters of it, and close the descriptor at the
    end."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
    )
    try:
        while True:
            try:
                line = await reader.readuntil(b"\n")
            except asyncio.IncompleteReadError as error:
                if error.partial:
                    _log_line(agent, error.partial)
                return
            except asyncio.LimitOverrunError as error:
                line = await reader.readexactly(error.consumed)
            _log_line(agent, line)
    finally:
        transport.close()


def _log_line(agent: str, line: bytes) -> None:
    log.info("output agent=%s %s", agent, line[: 4 * _LINE].decode("utf-8", "replace").strip()[:_LINE])


def restart_delay(early_ends: int) -> float:
    """Return the seconds until a program is started again after a number of early ends in a row."""
    return min(_MAX_DELAY, _RESTART_DELAY * 2 ** (early_ends - 1)) if early_ends else 0.0


class Runnable(Protocol):
    """Running program that a `Supervisor` watches."""

    async def wait(self) -> str:
        """Wait until the program has ended, and return how it ended, such as `ended with status 3`."""
        ...

    async def stop(self) -> None:
        """End the program within a bounded time."""
        ...


class Unstartable(Exception):
    """Failure to start a program that would recur with each attempt, so no restart is tried. The message is the
    reason."""


class Supervisor:
    """Loop that starts a program, watches it, and starts it again with increasing delays.

    A program that has run for 10 seconds is started again at once. One that ends earlier, or cannot be started, is
    started again after 0.5 seconds, and then after twice the delay, up to a minute.
    """

    def __init__(self, title: str, start: Callable[[], Awaitable[Runnable]]) -> None:
        """Create the loop; `run` starts it. `title` names the program in log lines. `start` starts the program, and
        raises Unstartable for a failure that would recur."""
        self._title = title
        self._start = start
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        """Event that is set at the next change of the program's state, and then replaced by a new one."""
        self.current: Runnable | None = None
        """Program that runs now and is usable; None during a start and while a restart is due."""
        self.due: float | None = None
        """Time of the next start on the monotonic clock; None if no restart is due."""
        self.problem: str | None = None
        """Reason why the program does not run, on one line; None before the first start and while it runs."""
        self.is_given_up = False
        """True if a start raised Unstartable: the program is not started again."""

    def run(self) -> None:
        """Start the loop in the background."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._keep_running())

    async def is_ready(self, patience: float) -> bool:
        """Wait until the program runs, for `patience` seconds at most. Return False if it does not run by then. Return
        False at once if its restart is due after that time, or if it is not started again."""
        end = time.monotonic() + patience
        while self.current is None:
            remaining = end - time.monotonic()
            if self.is_given_up or remaining <= 0 or (self.due is not None and self.due > end):
                return False
            with suppress(TimeoutError):
                async with asyncio.timeout(remaining):
                    await self._changed.wait()
        return True

    async def until_attempted(self) -> None:
        """Wait until the first start has succeeded or failed."""
        while self.current is None and self.problem is None:
            await self.until_changed()

    async def until_ended(self, program: Runnable) -> None:
        """Wait until a program that has ended is no longer the current one."""
        while self.current is program:
            await self.until_changed()

    async def until_changed(self) -> None:
        """Wait until the program is started, fails to start, or ends."""
        await self._changed.wait()

    async def aclose(self) -> None:
        """End the loop and the program."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        current, self.current = self.current, None
        if current is not None:
            await current.stop()

    def _change(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _keep_running(self) -> None:
        early_ends = 0
        while True:
            born = time.monotonic()
            try:
                self.current = await self._start()
            except Unstartable as error:
                self.problem, self.is_given_up = str(error), True
                self._change()
                return
            except Exception as error:  # else the program would silently stay down
                reason = str(error) or type(error).__name__
                log.debug("%s not started", self._title, exc_info=True)
            else:
                self.problem = None
                self._change()
                reason = await self.current.wait()
                ended, self.current = self.current, None
                await ended.stop()
            lived = time.monotonic() - born
            early_ends = early_ends + 1 if lived < EARLY_END else 0
            delay = restart_delay(early_ends)
            self.problem, self.due = " ".join(reason.split())[:500], time.monotonic() + delay
            self._change()
            log.warning("%s not running reason=%s retry_in=%gs", self._title, self.problem, delay)
            await asyncio.sleep(delay)
            self.due = None
