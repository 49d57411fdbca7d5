"""Port between the client of a protocol and a program that the gateway starts as an agent: the lines of its stdin and
stdout, and the folder in which it works. The gateway implements it with processes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

LINE_LIMIT: Final = 64 * 2**20
"""Maximum length of one line of a program, in bytes. Chosen: the default limit of a request's body."""


@dataclass(frozen=True, slots=True)
class TerminalState:
    """Output and end of a command that runs in a terminal for an agent."""

    output: str
    is_truncated: bool
    """True if the beginning of the output was discarded, because it was longer than the limit."""
    exit_code: int | None = None
    """Exit status; None while the command runs, and if a signal has ended it."""
    signal: str | None = None
    """Name of the signal that has ended the command, such as `SIGKILL`; None otherwise."""

    @property
    def has_ended(self) -> bool:
        return self.exit_code is not None or self.signal is not None


class Workspace(Protocol):
    """Folder of a running program, and what the gateway does in it for the program. No path leads out of the folder,
    neither by `..` nor by a symbolic link.

    All methods raise FaultError: `forbidden` for a path outside of the folder, `not_found`, `too_large`, `invalid`.
    """

    @property
    def folder(self) -> str:
        """Absolute path of the folder."""
        ...

    async def read_text(self, path: str, line: int | None, limit: int | None) -> str:
        """Return the text of a file, from its line number `line` (1 is the first), `limit` lines at most."""
        ...

    async def write_text(self, path: str, content: str) -> None:
        """Write a text file, and create the folders above it."""
        ...

    async def start_terminal(
        self, command: Sequence[str], env: Sequence[tuple[str, str]], cwd: str | None, limit: int | None
    ) -> str:
        """Start a command, and return the id of its terminal. The command runs in the folder `cwd`; None is the folder
        of the program. The terminal retains the last `limit` bytes of output; None is the largest limit. Raises
        queue_full if too many commands run."""
        ...

    def find_terminal(self, terminal_id: str) -> TerminalState:
        """Return the state of a terminal. Its output can also be read after the agent has released it with
        `terminal/release`. Raises not_found for a terminal that a later one has replaced."""
        ...

    async def wait_for_exit(self, terminal_id: str) -> TerminalState:
        """Wait until the command of a terminal has ended."""
        ...

    async def kill_terminal(self, terminal_id: str) -> None:
        """End the command of a terminal, and the processes that it has started."""
        ...


class Program(Protocol):
    """Running program of an agent."""

    @property
    def workspace(self) -> Workspace:
        """Folder of the program, and what the gateway does in it."""
        ...

    async def receive(self) -> bytes:
        """Return the next line of stdout without its line feed, or b"" when the program has closed stdout. Raises
        agent_invalid for a line longer than `LINE_LIMIT`."""
        ...

    async def send(self, line: bytes) -> None:
        """Write a line, with its line feed, to stdin. Raises OSError if the program has closed it."""
        ...

    async def find_end(self) -> str:
        """Return how the program has ended, such as `was killed by SIGKILL`, or `closed its output`."""
        ...

    async def stop(self) -> None:
        """End the program and its children within a bounded time: close stdin, then SIGTERM, then SIGKILL."""
        ...


class ProgramHost(Protocol):
    """Starter of the processes of one agent. After processes that ended early, the next start is delayed."""

    async def start(self, owner: str, thread_id: str) -> Program:
        """Start the program for a thread of an owner. Raises agent_unreachable if it cannot be started."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRules:
    """Settings of an agent that the gateway starts as a program."""

    permissions: Literal["ask", "allow", "reject"] = "ask"
    """Treatment of the agent's requests for permission: a question to the caller, or the same answer to all."""
    files: Literal["none", "read", "write"] = "none"
    """Access to the files of the folder that the agent has through the gateway."""
    has_terminals: bool = False
    """True if the gateway runs commands in the folder for the agent."""
    mode: str | None = None
    """Id of the mode of the agent that is set in each session. None: the mode that the agent selects."""
    start_timeout: float = 60.0
    """Seconds in which the program must open a session after its start."""
    silence: float | None = None
    """Maximum seconds between two messages of a running turn; None is no limit."""
    idle: float = 600.0
    """Seconds after which the process of a thread without an active run is ended."""
    max_processes: int = 8
    """Maximum number of processes of the agent at the same time."""
    agent: str | None = None
    """Name of the agent in the program, such as that of a tool. None if the program has one agent only."""
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    """Options of the protocol's client."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Values that must not occur in errors."""
