"""Client of an MCP server that the gateway starts as a program. All calls use one process at the same time, until a
server of a version up to 2025-11-25 asks a question."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from babelgate.adapters.kit.program import Program, ProgramHost, ProgramRules
from babelgate.adapters.mcp.carries import VERSION
from babelgate.adapters.mcp.client.process_connection import ProcessConnection
from babelgate.adapters.mcp.client.server_client import HANDSHAKE, ServerClient, Session, Version, with_meta
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.value import JsonObject

log = logging.getLogger("babelgate.mcp")


@dataclass(frozen=True, slots=True)
class ProcessSession(Session):
    """Use of a process by one call."""

    connection: ProcessConnection


_SHARED: "WeakKeyDictionary[ProgramHost, ProcessClient]" = WeakKeyDictionary()
"""Client of each program."""


class ProcessClient(ServerClient):
    """Client of the processes of one MCP server.

    The clients of several tools share it, and the last one that is closed ends the processes.

    Up to 2025-11-25, a question does not name the call in which it arises. So once the server has asked one, each
    further call gets a separate process.
    """

    def __init__(self, name: str, host: ProgramHost, rules: ProgramRules) -> None:
        """Create the client; `share` returns one that several tools use. The first call starts the process. `name` is
        that of an agent, for the log."""
        super().__init__()
        self._name = name
        self._host = host
        self._rules = rules
        self._version: Version = "auto"
        self._connections: list[ProcessConnection] = []
        self._starting: asyncio.Future[None] | None = None
        self._closing: set[asyncio.Future[None]] = set()
        self._has_asked = False
        self._owners = 0

    @classmethod
    def share(cls, name: str, host: ProgramHost, rules: ProgramRules) -> "ProcessClient":
        """Return the client of the other tools whose program `host` starts, if it has the same rules, or else another
        one. Each caller must close it."""
        rules = replace(rules, agent=None)
        client = _SHARED.get(host)
        if client is None or client._rules != rules or client._owners == 0:
            client = _SHARED[host] = cls(name, host, rules)
        client._owners += 1
        return client

    def set_version(self, version: str) -> None:
        self._version = VERSION if version == VERSION else HANDSHAKE

    async def is_stateless(self) -> bool:
        return (await self._connect()).is_stateless

    async def initialize(self) -> Session:
        """Return the use of a process. Raises agent_unreachable if none can be started."""
        connection = await self._connect()
        connection.users += 1
        return ProcessSession(None, connection.version, connection)

    async def close_session(self, session: Session) -> None:
        """Release a process. It is ended if another one is free."""
        connection = _connection_of(session)
        connection.users -= 1
        others = [each for each in self._alive() if each is not connection]
        is_reusable = connection.is_clean or not self._has_asked
        if connection.users == 0 and (not is_reusable or any(each.users == 0 for each in others)):
            self._discard(connection)

    async def notify(self, method: str, params: JsonObject, session: Session) -> None:
        connection, request_id = _connection_of(session), params.get("requestId")
        if method == "notifications/cancelled" and isinstance(request_id, int):
            connection.cancel(request_id)
        else:
            await connection.send({"method": method, "params": params})

    async def respond(self, request_id: object, reply: JsonObject, session: Session) -> None:
        await _connection_of(session).respond(request_id, reply)

    async def messages(
        self, method: str, params: JsonObject, session: Session | None = None, request_id: int | None = None
    ) -> AsyncGenerator[JsonObject]:
        connection = await self._connect() if session is None else _connection_of(session)
        params = with_meta(params) if connection.is_stateless else params
        request_id = self.next_id() if request_id is None else request_id
        async with aclosing(connection.exchange(request_id, method, params)) as messages:
            async for message in messages:
                yield message

    async def ask(self, method: str, params: JsonObject, session: Session | None = None) -> JsonObject:
        """Send a request and return its result, as every client does. Also raises agent_timeout if it takes longer than
        `start_timeout`."""
        try:
            async with asyncio.timeout(self._rules.start_timeout):
                return await super().ask(method, params, session)
        except TimeoutError:
            words = f"The agent's process has not answered {method} within {self._rules.start_timeout:g} s."
            raise FaultError(FaultCode.AGENT_TIMEOUT, words) from None

    async def aclose(self) -> None:
        """End all processes, at the same time, unless other tools use them."""
        self._owners -= 1
        if self._owners > 0:
            return
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait((self._starting,))
        for connection in self._connections:
            self._discard(connection)
        while self._closing:
            await asyncio.wait(self._closing)

    # Processes

    def _alive(self) -> list[ProcessConnection]:
        for each in self._connections:
            self._has_asked = self._has_asked or each.has_asked
            if not each.is_alive:
                self._discard(each)
        self._connections = [each for each in self._connections if each.is_alive]
        return self._connections

    def _can_take_call(self, connection: ProcessConnection) -> bool:
        if connection.is_stateless or not self._has_asked:
            return True
        return connection.users == 0 and connection.is_clean

    async def _connect(self) -> ProcessConnection:
        """Return a process that can take a call, and start one if necessary. Raises agent_unreachable if it cannot be
        started, or if too many run, and agent_timeout if it is not usable in time."""
        while True:
            found = next((each for each in self._alive() if self._can_take_call(each)), None)
            if found is not None:
                if found.check is None:
                    return found
                await asyncio.wait((found.check,))
                continue
            if self._starting is None:
                if len(self._connections) >= self._rules.max_processes:
                    words = f"All {self._rules.max_processes} processes of the agent are in use."
                    raise FaultError(FaultCode.AGENT_UNREACHABLE, words)
                self._starting = asyncio.ensure_future(self._start())
                self._starting.add_done_callback(self._finish_start)
            await asyncio.shield(self._starting)

    def _finish_start(self, starting: "asyncio.Future[None]") -> None:
        self._starting = None
        if not starting.cancelled():
            starting.exception()  # a start for which no call waits any longer is no error

    async def _start(self) -> None:
        program = await self._host.start("", "-")
        try:
            await self._open(program, self._version)
        except FaultError as error:
            # Some servers of earlier versions end at a request before `initialize`.
            if self._version != "auto" or error.fault.code is not FaultCode.AGENT_UNREACHABLE:
                raise
            await self._open(await self._host.start("", "-"), HANDSHAKE)
            self._version = HANDSHAKE

    async def _open(self, program: Program, version: Version) -> None:
        connection = ProcessConnection(self._name, program, self._rules, self.next_id)
        try:
            async with asyncio.timeout(self._rules.start_timeout):
                await connection.open(version)
        except BaseException as error:
            self._discard(connection)
            if isinstance(error, TimeoutError):
                words = f"The agent's process has not answered within {self._rules.start_timeout:g} s of its start."
                raise FaultError(FaultCode.AGENT_TIMEOUT, words) from None
            raise
        self._connections.append(connection)
        log.info("process of agent=%s usable version=%s", self._name, connection.version)

    def _discard(self, connection: ProcessConnection) -> None:
        """End a process in the background."""
        closing = asyncio.ensure_future(connection.aclose())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        self._connections = [each for each in self._connections if each is not connection]


def _connection_of(session: Session) -> ProcessConnection:
    assert isinstance(session, ProcessSession)
    return session.connection
