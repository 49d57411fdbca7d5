"""Programs of agents that speak over their stdin and stdout: one process for each thread."""

import asyncio
import hashlib
import logging
import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from babelgate.adapters.kit.program import LINE_LIMIT, ProgramRules
from babelgate.canonical import FaultCode, FaultError
from babelgate.gateway.agents.processes.command import environment, with_launcher
from babelgate.gateway.agents.processes.process import EARLY_END, Child, restart_delay
from babelgate.gateway.agents.processes.workspace import Folder
from babelgate.gateway.settings.model import AgentSettings

log = logging.getLogger("babelgate.process")

_THREAD: Final = "{thread}"
"""Placeholder in `cwd` for the name of a folder of each thread."""
_EXIT: Final = 2.0
"""Seconds to wait for the end of a process that has closed stdout, or whose stdin was closed. Chosen."""


@dataclass(frozen=True, slots=True)
class ProgramSpec:
    """Command of an agent's program, with its environment and limits."""

    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = field(repr=False)
    cwd: str
    start_timeout: float
    """Maximum seconds that a start is delayed after processes that ended early."""
    memory: int | None

    @classmethod
    def of(cls, settings: AgentSettings) -> "ProgramSpec":
        env = sorted((name, secret.get_secret_value()) for name, secret in settings.env.items())
        return cls(settings.command, tuple(env), settings.cwd or ".", settings.start_timeout, settings.memory)

    def find_problem(self) -> str | None:
        """Return the reason why no process can be started, or None. It checks only that the program and its folder
        exist."""
        path = environment(self.env).get("PATH")
        folder = None if _THREAD in self.cwd else self.cwd
        if folder is not None and not Path(folder).is_dir():
            return f"cwd: there is no folder {folder}"
        name = self.command[0]
        if os.sep in name and folder is not None:
            name = str(Path(folder) / name)
        return None if shutil.which(name, path=path) else f"command: there is no program {self.command[0]}"


def rules_of(settings: AgentSettings) -> ProgramRules:
    """Return the settings of an agent that its client needs."""
    coding = settings.coding
    return ProgramRules(
        permissions=coding.permissions,
        files=coding.files,
        has_terminals=coding.terminals,
        mode=coding.mode,
        start_timeout=settings.start_timeout,
        silence=settings.timeout.read,
        idle=coding.idle,
        max_processes=coding.processes,
        agent=settings.agent,
        options=settings.options,
        secrets=tuple(each.get_secret_value() for each in settings.env.values()),
    )


class PipedProgram:
    """Implementation of `babelgate.adapters.kit.program.Program` with a child process."""

    def __init__(
        self,
        child: Child,
        reader: asyncio.StreamReader,
        output: asyncio.BaseTransport,
        writer: asyncio.StreamWriter,
        folder: Folder,
    ) -> None:
        """Create the handle of a process. `reader` reads its stdout, whose transport is `output`."""
        self.workspace = folder
        self._output = output
        self.child = child
        self._reader = reader
        self._writer = writer
        self.is_stopping = False
        """True if the gateway has begun to end the process."""

    async def receive(self) -> bytes:
        """Return the next line that is not empty, or b"" when the process has closed stdout. Raises agent_invalid for a
        line that is too long."""
        while True:
            try:
                line = (await self._reader.readuntil(b"\n")).strip()
            except (asyncio.IncompleteReadError, ConnectionError):
                return b""
            except asyncio.LimitOverrunError:
                raise FaultError(
                    FaultCode.AGENT_INVALID, f"The agent sent a message of more than {LINE_LIMIT} bytes"
                ) from None
            if line:
                return line

    async def send(self, line: bytes) -> None:
        """Write a line to stdin. Raises BrokenPipeError if it is closed."""
        if self._writer.is_closing():
            raise BrokenPipeError
        self._writer.write(line)
        await self._writer.drain()

    async def find_end(self) -> str:
        try:
            async with asyncio.timeout(_EXIT):
                return await self.child.wait()
        except TimeoutError:
            return "closed its output"

    async def stop(self) -> None:
        self.is_stopping = True
        self._writer.close()
        await asyncio.gather(self.child.stop(_EXIT), self.workspace.aclose())
        self._output.close()  # it is still open if the lines were not read to the end


class ProgramProcesses:
    """Starter of the processes of one agent (`babelgate.adapters.kit.program.ProgramHost`)."""

    def __init__(self, name: str, spec: ProgramSpec) -> None:
        self._name = name
        self._spec = spec
        self._early_ends = 0
        self._due = 0.0
        """Time of the earliest next start on the monotonic clock."""
        self._watching: set[asyncio.Task[None]] = set()

    async def start(self, owner: str, thread_id: str) -> PipedProgram:
        """Start the program for a thread. Raises agent_unreachable if it cannot be started, or if the next start is due
        too late after early ends."""
        delay = self._due - time.monotonic()
        if delay > self._spec.start_timeout:
            raise FaultError(
                FaultCode.AGENT_UNREACHABLE,
                f"The process of agent {self._name} has ended early {self._early_ends} times in a row: the next start "
                f"is in {delay:.0f} s.",
                retry_after=max(1, round(delay)),
            )
        if delay > 0:
            await asyncio.sleep(delay)
        try:
            program = await self._spawn(self._folder(owner, thread_id))
        except OSError as error:
            self._note_end(0.0)
            log.warning("process of agent=%s not started reason=%s", self._name, error)
            words = (
                f"Agent {self._name} is not available: its process could not be started. The log of the gateway has "
            )
            raise FaultError(FaultCode.AGENT_UNREACHABLE, f"{words}the reason.") from error
        log.info("process of agent=%s started process=%d thread=%s", self._name, program.child.pid, thread_id)
        task = asyncio.ensure_future(self._watch(program))
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)
        return program

    def _folder(self, owner: str, thread_id: str) -> str:
        """Return the folder of a thread, and create it if each thread has its own. Its name is a hash, because a caller
        may have chosen the id."""
        if _THREAD not in self._spec.cwd:
            return self._spec.cwd
        name = hashlib.sha256(f"{owner}\0{thread_id}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
        folder = Path(self._spec.cwd.replace(_THREAD, name))
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return str(folder)

    async def _spawn(self, folder: str) -> PipedProgram:
        """Start a process with pipes. Raises OSError."""
        spec = self._spec
        workspace = Folder(self._name, folder, dict(spec.env), spec.memory)
        # Not pipes of asyncio: `Process.wait` of Python 3.11 waits until all processes that inherit them have ended.
        stdin, to_program = os.pipe()
        from_program, stdout = os.pipe()
        try:
            child = await Child.spawn(
                self._name,
                with_launcher(spec.command),
                env=environment(spec.env),
                cwd=workspace.folder,
                memory=spec.memory,
                stdin=stdin,
                stdout=stdout,
            )
        except BaseException:
            os.close(to_program)
            os.close(from_program)
            raise
        finally:
            os.close(stdin)
            os.close(stdout)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=LINE_LIMIT)
        output, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(from_program, "rb", buffering=0)
        )
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(to_program, "wb", buffering=0)
        )
        writer = asyncio.StreamWriter(transport, protocol, None, loop)
        return PipedProgram(child, reader, output, writer, workspace)

    async def _watch(self, program: PipedProgram) -> None:
        """Wait for the end of a process. An end that the gateway has not caused delays the next start."""
        born = time.monotonic()
        with suppress(asyncio.CancelledError):
            how = await program.child.wait()
            if not program.is_stopping:
                delay = self._note_end(time.monotonic() - born)
                log.warning("process of agent=%s ended reason=%s next_start_in=%gs", self._name, how, delay)

    def _note_end(self, lived: float) -> float:
        """Count an end that the gateway has not caused, `lived` seconds after the start. Return the delay of the next
        start in seconds."""
        self._early_ends = self._early_ends + 1 if lived < EARLY_END else 0
        delay = restart_delay(self._early_ends)
        self._due = time.monotonic() + delay
        return delay


Programs = dict[ProgramSpec, ProgramProcesses]
"""Starters of programs, by command."""
