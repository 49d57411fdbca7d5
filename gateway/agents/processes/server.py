"""Servers of agents that the gateway starts (`command`), watches and ends."""

import asyncio
import hashlib
import logging
import os
import stat
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Final
from urllib.parse import urlsplit

from babelgate.gateway.agents.processes.command import environment, with_launcher
from babelgate.gateway.agents.processes.process import Child, Supervisor
from babelgate.gateway.settings.model import AgentSettings

if sys.platform != "win32":
    import fcntl

log = logging.getLogger("babelgate.process")

_POLL: Final = 0.05
"""Seconds before the second attempt to connect to a starting server, or to lock a server that another gateway
supervises. Each further pause is doubled, up to `_MAX_POLL`. Chosen."""
_MAX_POLL: Final = 1.0
"""Maximum pause between two such attempts, in seconds. Chosen."""


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """Command that starts an agent's server, with its environment and limits. If any field changes, the server is
    restarted."""

    command: tuple[str, ...]
    url: str
    env: tuple[tuple[str, str], ...] = field(repr=False)
    """Configured environment variables, sorted by name."""
    cwd: str | None
    start_timeout: float
    """Seconds in which the server must accept connections after a start."""
    memory: int | None
    """Maximum address space of the process, in bytes; None is no limit."""

    @classmethod
    def of(cls, settings: AgentSettings) -> "ServerSpec | None":
        """Return the specification of the server in the settings of an agent; None if the agent has no command or no
        URL."""
        if not settings.command or settings.url is None:
            return None
        env = sorted((name, secret.get_secret_value()) for name, secret in settings.env.items())
        return cls(settings.command, settings.url, tuple(env), settings.cwd, settings.start_timeout, settings.memory)


class CommandProcess:
    """Server of an agent that runs in a child process of the gateway, and accepts connections."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self.pid = child.pid

    @classmethod
    async def start(cls, name: str, spec: ServerSpec) -> "CommandProcess":
        """Start the command, and wait until its server accepts connections.

        Raises OSError if the command cannot be executed, or ends before its server accepts connections. Raises
        TimeoutError if that takes longer than `start_timeout`.
        """
        if await _has_server(spec.url):
            raise OSError(f"another program answers at {spec.url}: end it, or give the agent another port")
        env = environment(spec.env)
        child = await Child.spawn(name, with_launcher(spec.command), env=env, cwd=spec.cwd, memory=spec.memory)
        server = cls(child)
        ended = asyncio.ensure_future(child.wait())
        answering = asyncio.ensure_future(_until_answering(spec.url))
        try:
            await asyncio.wait((ended, answering), timeout=spec.start_timeout, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                raise OSError(f"{spec.command[0]} {ended.result()} before it answered at {spec.url}")
            if not answering.done():
                raise TimeoutError(f"{spec.command[0]} has not answered at {spec.url} within {spec.start_timeout:g} s")
        except BaseException:
            await server.stop()
            raise
        finally:
            answering.cancel()
            ended.cancel()
        log.info("server of agent=%s started process=%d url=%s", name, child.pid, spec.url)
        return server

    async def wait(self) -> str:
        return await self._child.wait()

    async def stop(self) -> None:
        """End the process and its children: SIGTERM, and 5 seconds later SIGKILL."""
        await self._child.stop()


class ManagedServer:
    """Server of an agent that one of the gateways of this machine supervises.

    Gateways that share a configuration, such as workers, agree by a lock on a file: the one that holds it starts the
    server. If that gateway ends, another one takes over.
    """

    def __init__(self, name: str, spec: ServerSpec) -> None:
        self.spec = spec
        self._name = name
        self._supervisor = Supervisor(f"server of agent={name}", partial(CommandProcess.start, name, spec))
        self._task: asyncio.Task[None] | None = None
        self._lock: IO[bytes] | None = None

    def run(self) -> None:
        """Begin to supervise the server in the background, as soon as no other gateway holds its lock."""
        self._task = asyncio.ensure_future(self._supervise())

    async def until_usable(self) -> None:
        """Wait until the server answers, its first start has failed, or `start_timeout` has passed."""
        if self._supervisor.current is not None:
            return
        waits = (
            asyncio.ensure_future(self._supervisor.until_attempted()),
            asyncio.ensure_future(_until_answering(self.spec.url)),
        )
        try:
            await asyncio.wait(waits, timeout=self.spec.start_timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    async def until_replaced(self, pid: int | None) -> None:
        """Wait until this gateway has started a server with another process id than `pid`."""
        while self.pid in (None, pid):
            await self._supervisor.until_changed()

    @property
    def pid(self) -> int | None:
        """Process id of the running server; None if it does not run, or another gateway has started it."""
        current = self._supervisor.current
        return current.pid if isinstance(current, CommandProcess) else None

    async def aclose(self) -> None:
        """End the supervision, and the server if this gateway has started it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._supervisor.aclose()
        if self._lock is not None:
            self._lock.close()

    async def _supervise(self) -> None:
        pause = _POLL
        while (lock := _lock_of(self.spec)) is None:
            await asyncio.sleep(pause)
            pause = min(_MAX_POLL, 2 * pause)
        self._lock = lock
        self._supervisor.run()


class ManagedServers:
    """All servers that this gateway supervises, by the names of their agents."""

    def __init__(self) -> None:
        self._servers: dict[str, ManagedServer] = {}

    async def update(self, agents: Mapping[str, AgentSettings]) -> None:
        """Start the servers of new agents, restart those whose command has changed, and leave all others alone.

        Servers of agents that are not in `agents` continue until `retain`.
        """
        for name, settings in agents.items():
            spec, current = ServerSpec.of(settings), self._servers.get(name)
            if spec is None or (current is not None and current.spec == spec):
                continue
            if current is not None:
                await current.aclose()
            self._servers[name] = ManagedServer(name, spec)
            self._servers[name].run()

    def get(self, name: str) -> ManagedServer | None:
        return self._servers.get(name)

    async def retain(self, agents: Mapping[str, AgentSettings]) -> None:
        """End the servers of agents that are not in `agents`, or have no command there."""
        for name in [name for name in self._servers if name not in agents or not agents[name].command]:
            await self._servers.pop(name).aclose()

    async def aclose(self) -> None:
        """End all servers, at the same time."""
        servers, self._servers = [*self._servers.values()], {}
        await asyncio.gather(*(each.aclose() for each in servers))


async def _until_answering(url: str) -> None:
    """Wait until the host and port of a URL accept connections."""
    pause = _POLL
    while not await _has_server(url):
        await asyncio.sleep(pause)
        pause = min(_MAX_POLL, 2 * pause)


async def _has_server(url: str) -> bool:
    """Return True if the host of a URL accepts a connection now."""
    parts = urlsplit(url)
    try:
        _, writer = await asyncio.open_connection(
            parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        )
    except OSError:
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True


def _lock_of(spec: ServerSpec) -> IO[bytes] | None:
    """Lock the file that represents a server, and return the file. Return None if another process of this user holds
    the lock.

    The lock ends when the file is closed, also by the end of the process. Its name depends on the command and the URL,
    so different users and different servers do not disturb each other. If the file cannot be used, each gateway starts
    the server, and the first one that listens succeeds.
    """
    if sys.platform == "win32":
        return None
    folder = Path(tempfile.gettempdir()) / f"babelgate-{os.getuid()}"
    digest = hashlib.sha256("\0".join((spec.url, *spec.command)).encode()).hexdigest()[:32]
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
            raise PermissionError(f"{folder} belongs to another user")
        file = (folder / f"{digest}.lock").open("wb")
    except OSError as error:
        log.warning("server not shared with other gateways url=%s reason=%s", spec.url, error)
        return tempfile.TemporaryFile()
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file
