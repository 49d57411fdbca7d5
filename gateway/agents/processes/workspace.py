"""Folder of an agent's program: files that the gateway reads and writes for it, and terminals that run commands."""

import asyncio
import os
import signal
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from uuid import uuid4

from babelgate.adapters.kit.program import TerminalState
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.printable import printable
from babelgate.gateway.agents.processes.command import environment, with_launcher
from babelgate.gateway.agents.processes.process import Child

_FILE: Final = 8 * 2**20
"""Maximum size of a file that is read or written, in bytes. Chosen: the default of `limits.event`."""
_OUTPUT: Final = 2**20
"""Number of bytes of a terminal's output that are retained, and the maximum that an agent may request. Chosen."""
_TERMINALS: Final = 32
"""Maximum number of terminals of one program. Chosen. A further one replaces the oldest whose command has ended."""
_PATH: Final = 200
"""Maximum length of a path in an error, in characters. Chosen."""
_CHUNK: Final = 64 * 1024
"""Bytes of a terminal's output that are read at once. Chosen."""


class Terminal:
    """Command that runs for an agent, and the end of its output."""

    def __init__(self, limit: int) -> None:
        self.child: Child | None = None
        """Process of the command; None until it is started."""
        self._limit = limit
        self._output = bytearray()
        self._is_truncated = False

    async def read(self, agent: str, descriptor: int) -> None:
        """Read the output of the command from a descriptor until its end, and retain its last bytes."""
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
        )
        try:
            while chunk := await reader.read(_CHUNK):
                self._output += chunk
                if len(self._output) > self._limit:
                    del self._output[: len(self._output) - self._limit]
                    self._is_truncated = True
        finally:
            transport.close()

    @property
    def state(self) -> TerminalState:
        code = None if self.child is None else self.child.process.returncode
        name = None
        if code is not None and code < 0:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = f"signal {-code}"
            code = None
        # The first character may be incomplete after the truncation.
        return TerminalState(self._output.decode("utf-8", "replace"), self._is_truncated, code, name)


class Folder:
    """Implementation of `babelgate.adapters.kit.program.Workspace` for one process."""

    def __init__(self, agent: str, folder: str, env: Mapping[str, str], memory: int | None) -> None:
        """Create the workspace. `env` are the configured variables of the agent, which its commands receive, too, and
        `memory` limits the address space of each command in bytes."""
        self.folder = os.path.realpath(folder)
        self._agent = agent
        self._env = env
        self._memory = memory
        self._terminals: dict[str, Terminal] = {}

    def resolve(self, path: str) -> str:
        """Return the real path of a file or folder, without symbolic links. It need not exist. Raises forbidden if it
        is not in the folder, and invalid if it is no path."""
        try:
            real = os.path.realpath(Path(self.folder) / path)
        except ValueError as error:  # a null character
            raise FaultError(FaultCode.INVALID, "path: expected a path") from error
        if real != self.folder and not real.startswith(self.folder.rstrip(os.sep) + os.sep):
            raise FaultError(FaultCode.FORBIDDEN, f"{printable(path, _PATH)} is not in the folder of the agent")
        return real

    async def read_text(self, path: str, line: int | None, limit: int | None) -> str:
        """Return the text of a file, or some of its lines. Raises forbidden, not_found, too_large, and invalid for a
        file that is no text."""
        raw = await asyncio.to_thread(_read, self.resolve(path), path)
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            raise FaultError(FaultCode.INVALID, f"{printable(path, _PATH)} is not UTF-8") from error
        if line is None and limit is None:
            return text
        start = max(0, (line or 1) - 1)
        lines = text.splitlines(keepends=True)
        return "".join(lines[start:] if limit is None else lines[start : start + max(0, limit)])

    async def write_text(self, path: str, content: str) -> None:
        await asyncio.to_thread(_write, self.resolve(path), path, content.encode("utf-8", "replace"))

    async def start_terminal(
        self, command: Sequence[str], env: Sequence[tuple[str, str]], cwd: str | None, limit: int | None
    ) -> str:
        """Start a command, and return the id of its terminal. Raises forbidden for another folder, queue_full if too
        many commands run, and invalid if the command cannot be started."""
        where = self.folder if cwd is None else self.resolve(cwd)
        if len(self._terminals) >= _TERMINALS:
            ended = next((name for name, each in self._terminals.items() if each.state.has_ended), None)
            if ended is None:
                raise FaultError(FaultCode.QUEUE_FULL, f"More than {_TERMINALS} commands run")
            del self._terminals[ended]
        terminal_id, terminal = str(uuid4()), Terminal(_OUTPUT if limit is None else min(max(0, limit), _OUTPUT))
        self._terminals[terminal_id] = terminal
        try:
            terminal.child = await Child.spawn(
                self._agent,
                with_launcher(command),
                env={**environment(self._env.items()), **dict(env)},
                cwd=where,
                memory=self._memory,
                read=terminal.read,
            )
        except (OSError, ValueError) as error:
            del self._terminals[terminal_id]
            words = f"{printable(command[0], _PATH)} cannot be started: {type(error).__name__}"
            raise FaultError(FaultCode.INVALID, words) from error
        return terminal_id

    def find_terminal(self, terminal_id: str) -> TerminalState:
        return self._terminal(terminal_id).state

    def _terminal(self, terminal_id: str) -> Terminal:
        terminal = self._terminals.get(terminal_id)
        if terminal is None:
            raise FaultError(FaultCode.NOT_FOUND, "There is no such terminal")
        return terminal

    async def wait_for_exit(self, terminal_id: str) -> TerminalState:
        terminal = self._terminal(terminal_id)
        if terminal.child is not None:
            await terminal.child.process.wait()
            await terminal.child.until_read()
        return terminal.state

    async def kill_terminal(self, terminal_id: str) -> None:
        terminal = self._terminal(terminal_id)
        if terminal.child is not None:
            await terminal.child.stop()

    async def aclose(self) -> None:
        """End all commands, at the same time."""
        children = [each.child for each in self._terminals.values() if each.child is not None]
        await asyncio.gather(*(child.stop() for child in children))


def _read(real: str, path: str) -> bytes:
    """Return the content of the regular file at the resolved path `real`. `path` is its name in errors."""
    try:
        # A file that is replaced by a link meanwhile is not followed, and a pipe does not block.
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise FaultError(FaultCode.NOT_FOUND, f"There is no file {printable(path, _PATH)}") from error
    except OSError as error:
        raise _refusal(path, error) from error
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FaultError(FaultCode.INVALID, f"{printable(path, _PATH)} is not a file")
        raw = file.read(_FILE + 1)
    if len(raw) > _FILE:
        raise FaultError(FaultCode.TOO_LARGE, f"{printable(path, _PATH)} is larger than {_FILE} bytes")
    return raw


def _write(real: str, path: str, raw: bytes) -> None:
    if len(raw) > _FILE:
        raise FaultError(FaultCode.TOO_LARGE, f"{printable(path, _PATH)} is larger than {_FILE} bytes")
    try:
        Path(real).parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(real, flags, 0o644), "wb") as file:
            file.write(raw)
    except OSError as error:
        raise _refusal(path, error) from error


def _refusal(path: str, error: OSError) -> FaultError:
    return FaultError(FaultCode.INVALID, f"{printable(path, _PATH)}: {error.strerror or type(error).__name__}")
