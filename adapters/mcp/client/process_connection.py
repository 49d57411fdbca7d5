"""JSON-RPC with one process of an MCP server over its stdin and stdout. Requests run at the same time, and the ids of
the responses tell them apart."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Final

from pydantic_core import to_json

from babelgate.adapters.kit.client.answers import parse_answer
from babelgate.adapters.kit.program import Program, ProgramRules
from babelgate.adapters.mcp.carries import VERSION
from babelgate.adapters.mcp.client.server_client import (
    HANDSHAKE,
    INITIALIZE,
    RpcError,
    Version,
    agreed_version,
    as_message,
    has_stateless_version,
    result_of,
    with_meta,
)
from babelgate.adapters.mcp.errors import METHOD_NOT_FOUND
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.json import as_object
from babelgate.canonical.printable import printable
from babelgate.canonical.value import JsonObject

log = logging.getLogger("babelgate.mcp")

_UNREAD: Final = 16 * 2**20
"""Size of the unread messages of one request, in bytes, from which the client reads no more lines. Chosen."""
_READING: Final = 10.0
"""Seconds in which the messages of such a request must be read. Otherwise the request fails. Chosen."""
_WRITING: Final = 30.0
"""Seconds in which the process must read a message of the client. Chosen."""
_PROBE: Final = 5.0
"""Seconds to wait for the response to `server/discover` before the client tries `initialize`. Chosen."""
_PONG: Final = 10.0
"""Seconds in which the process must answer a ping after a call was cancelled. Otherwise it is ended. Chosen."""
_NO_MESSAGES: Final = 1000
"""Maximum number of successive lines that are no messages. Chosen: libraries print to stdout."""
_REPLIES: Final = 100
"""Maximum number of requests of the server whose responses are being written. Chosen."""
_WORDS: Final = 200
"""Maximum length of a line in the log, in characters. Chosen."""
_UNASSIGNED: Final = -32603
"""Code of the error that answers a question which belongs to no call: an internal error."""


class _Exchange:
    """Request of the client, and the messages of the server that belong to it and are not read yet."""

    def __init__(self, method: str, token: object) -> None:
        self.is_call = method == "tools/call"
        self.token = token
        """Progress token of the request; None if it has none."""
        self.messages: deque[tuple[JsonObject, int]] = deque()
        self.size = 0
        self.arrived = asyncio.Event()
        self.room = asyncio.Event()
        self.question_ids: set[object] = set()
        """Ids of the questions of the server that wait for an answer."""
        self.fault: FaultError | None = None

    def put(self, message: JsonObject, size: int) -> None:
        self.messages.append((message, size))
        self.size += size
        self.arrived.set()

    def take(self) -> JsonObject:
        message, size = self.messages.popleft()
        self.size -= size
        if self.size <= _UNREAD:
            self.room.set()
        return message


class ProcessConnection:
    """Connection to one process. A failed connection ends its process, and all its requests fail with the reason."""

    def __init__(self, name: str, program: Program, rules: ProgramRules, next_id: Callable[[], int]) -> None:
        """Create the connection to a process that has just been started; `open` makes it usable. `name` is that of an
        agent, for the log, and `next_id` returns an id for a request."""
        self._name = name
        self._program = program
        self._rules = rules
        self._next_id = next_id
        self._exchanges: dict[int, _Exchange] = {}
        self._sending = asyncio.Lock()
        self._tasks: set[asyncio.Future[Any]] = set()
        self._stopping: asyncio.Future[None] | None = None
        self._fault: FaultError | None = None
        self.version = ""
        """Version of the protocol; empty until the connection is open."""
        self.users = 0
        """Number of sessions that use the process."""
        self.has_asked = False
        """True if the server has sent a question during a call."""
        self.check: asyncio.Future[None] | None = None
        """Running check that the process still answers; None if none runs."""
        self._lost_calls: set[int] = set()
        """Ids of calls whose reader left before the response, so that the tool may still run."""
        self._reading = asyncio.ensure_future(self._read_all())

    @property
    def is_alive(self) -> bool:
        return self._fault is None

    @property
    def is_clean(self) -> bool:
        """True if no tool runs for a call that no reader waits for."""
        return not self._lost_calls

    @property
    def is_stateless(self) -> bool:
        """True if the server speaks 2026-07-28."""
        return self.version == VERSION

    async def open(self, version: Version) -> None:
        """Make the connection usable: determine the version, and initialize it. With `auto`, the client sends
        `server/discover`. A server of an earlier version answers with an error, or ignores it.

        Raises agent_invalid for an unknown version, and the fault of a failed connection.
        """
        is_silent = False
        if version != HANDSHAKE:
            try:
                async with asyncio.timeout(None if version == VERSION else _PROBE):
                    if await self._discover():
                        return
            except TimeoutError:
                is_silent = True
            except RpcError:
                if version == VERSION:
                    raise
        try:
            self.version = agreed_version(await self.ask("initialize", INITIALIZE))
        except RpcError:
            if is_silent and await self._discover():  # it had not started yet
                return
            raise
        await self.send({"method": "notifications/initialized", "params": {}})

    async def _discover(self) -> bool:
        """Ask the server for its versions. If it speaks 2026-07-28, select that, and return True."""
        if has_stateless_version(await self.ask("server/discover", with_meta({}))):
            self.version = VERSION
        return self.is_stateless

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Send a request, and return its result. Raises RpcError, agent_invalid, and the fault of a failed
        connection."""
        messages = [message async for message in self.exchange(self._next_id(), method, params)]
        return result_of(messages[-1])

    async def exchange(self, request_id: int, method: str, params: JsonObject) -> AsyncGenerator[JsonObject]:
        """Send a request, and yield the server's messages until its response. A call of 2026-07-28 whose reader leaves
        before the response is cancelled on the server.

        Raises agent_timeout after too long a silence, and the fault of a failed connection.
        """
        exchange = _Exchange(method, as_object(params.get("_meta")).get("progressToken"))
        self._exchanges[request_id] = exchange
        try:
            await self.send({"id": request_id, "method": method, "params": params})
            while True:
                message = await self._next(exchange)
                if "method" not in message:
                    del self._exchanges[request_id]
                yield message
                if "method" not in message:
                    return
        finally:
            exchange.room.set()
            if self._exchanges.pop(request_id, None) is not None and exchange.is_call:
                self._lost_calls.add(request_id)
                if self.is_stateless:
                    self.cancel(request_id)

    async def _next(self, exchange: _Exchange) -> JsonObject:
        while not exchange.messages:
            fault = exchange.fault or self._fault
            if fault is not None:
                raise FaultError.of(fault.fault)
            exchange.arrived.clear()
            # A server that waits for an answer is silent.
            patience = None if exchange.question_ids else self._rules.silence
            try:
                async with asyncio.timeout(patience):
                    await exchange.arrived.wait()
            except TimeoutError:
                words = f"The agent's process has been silent for {patience:g} s."
                raise FaultError(FaultCode.AGENT_TIMEOUT, words) from None
        return exchange.take()

    async def send(self, message: JsonObject) -> None:
        """Write a message. If the process does not read it in time, the connection fails. Raises the fault of a failed
        connection."""
        try:
            async with asyncio.timeout(_WRITING), self._sending:
                if self._fault is None:
                    await self._program.send(to_json({"jsonrpc": "2.0", **message}) + b"\n")
        except TimeoutError:
            self.fail(FaultError(FaultCode.AGENT_TIMEOUT, "The agent's process reads no messages."))
        except OSError:
            await asyncio.wait((self._reading,))  # which finds how the process has ended
        if self._fault is not None:
            raise FaultError.of(self._fault.fault)

    async def respond(self, request_id: object, reply: JsonObject) -> None:
        """Send the response to a request of the server."""
        for exchange in self._exchanges.values():
            exchange.question_ids.discard(request_id)
        await self.send({"id": request_id, **reply})

    def cancel(self, request_id: int) -> None:
        """Cancel a request on the server in the background, and check that the process still answers."""
        self.check = check = self._track(self._cancel(request_id))

        def finish(_: object) -> None:
            if self.check is check:
                self.check = None

        check.add_done_callback(finish)

    async def _cancel(self, request_id: int) -> None:
        """Cancel a request on the server (SPEC/basic/utilities/cancellation). Afterwards a process that answers no ping
        is ended, because its tool blocks all other calls. Errors are ignored."""
        try:
            await self.send({"method": "notifications/cancelled", "params": {"requestId": request_id}})
            async with asyncio.timeout(_PONG):
                await (self.ask("server/discover", with_meta({})) if self.is_stateless else self.ask("ping", {}))
        except TimeoutError:
            words = "The agent's process did not answer a ping after a call was cancelled."
            self.fail(FaultError(FaultCode.AGENT_TIMEOUT, words))
        except FaultError:
            return

    def _track(self, work: Coroutine[Any, Any, None]) -> "asyncio.Future[None]":
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Messages of the server

    async def _read_all(self) -> None:
        wrong = 0
        try:
            while line := await self._program.receive():
                wrong = 0 if await self._read_line(line) else wrong + 1
                if wrong > _NO_MESSAGES:
                    words = "The agent's process writes lines to stdout that are no messages of MCP."
                    raise FaultError(FaultCode.AGENT_INVALID, words)
                await asyncio.sleep(0)  # else a process that writes without a pause stops the gateway
        except FaultError as error:
            self.fail(error)
        except Exception:
            log.exception("messages of agent=%s not read", self._name)
            self.fail(FaultError(FaultCode.INTERNAL, "The gateway failed to read the messages of the agent."))
        else:
            how = await self._program.find_end()
            code, when = (
                (FaultCode.AGENT_FAILED, "during the run")
                if self.version
                else (FaultCode.AGENT_UNREACHABLE, "before it was usable")
            )
            self.fail(FaultError(code, f"The agent's process {how} {when}."))

    async def _read_line(self, line: bytes) -> bool:
        """Read one line. Return False if it is no message: then it is only logged."""
        try:
            message = as_message(await parse_answer(line))
        except FaultError:
            log.info(
                "line of agent=%s ignored: it is no message line=%s",
                self._name,
                printable(line[: 4 * _WORDS].decode("utf-8", "replace"), _WORDS),
            )
            return False
        method, request_id = message.get("method"), message.get("id")
        exchange: _Exchange | None = None
        if method is None:
            if isinstance(request_id, int):
                exchange = self._exchanges.get(request_id)
                self._lost_calls.discard(request_id)
        elif request_id is not None:
            exchange = self._take_request(method, request_id)
        elif method == "notifications/progress":
            token = as_object(message.get("params")).get("progressToken")
            exchange = next((e for e in self._exchanges.values() if e.token is not None and e.token == token), None)
        if exchange is not None:
            await self._put(exchange, message, len(line))
        return True

    async def _put(self, exchange: _Exchange, message: JsonObject, size: int) -> None:
        """Queue a message of an exchange. If too many are unread, wait for their reader, for a limited time."""
        if exchange.fault is not None:
            return
        exchange.put(message, size)
        if exchange.size <= _UNREAD:
            return
        exchange.room.clear()
        try:
            async with asyncio.timeout(_READING):
                await exchange.room.wait()
        except TimeoutError:
            words = f"The agent's process sent more than {_UNREAD} bytes of messages that could not be read in time."
            exchange.fault = FaultError(FaultCode.AGENT_INVALID, words)
            exchange.messages.clear()
            exchange.arrived.set()

    def _take_request(self, method: str, request_id: object) -> _Exchange | None:
        """Return the call to which a question of the server belongs. Any other request is answered, and so is a
        question that cannot be assigned to a call, because the message names none."""
        if method == "elicitation/create" and not self.is_stateless:
            self.has_asked = True
            calls = [each for each in self._exchanges.values() if each.is_call]
            if len(calls) == 1 and self.is_clean:
                calls[0].question_ids.add(request_id)
                return calls[0]
            log.warning(
                "question of agent=%s refused: it names none of %d calls",
                self._name,
                len(calls) + len(self._lost_calls),
            )
            words = "The question names none of the active calls. Call the tool again."
            reply: JsonObject = {"error": {"code": _UNASSIGNED, "message": words}}
        elif method == "ping":
            reply = {"result": {}}
        else:
            reply = {"error": {"code": METHOD_NOT_FOUND, "message": "Method not found"}}
        if len(self._tasks) < _REPLIES:  # a server that does not read its responses gets no more of them
            self._track(self._reply(request_id, reply))
        return None

    async def _reply(self, request_id: object, reply: JsonObject) -> None:
        try:
            await self.send({"id": request_id, **reply})
        except FaultError as error:
            log.debug("response to agent=%s not sent reason=%s", self._name, error)

    # End

    def fail(self, fault: FaultError) -> None:
        """End the process, and let all requests fail with the fault. Only the first fault counts."""
        if self._fault is not None:
            return
        self._fault = fault
        log.info("connection to agent=%s ended reason=%s", self._name, fault.fault.message)
        for exchange in self._exchanges.values():
            exchange.arrived.set()
            exchange.room.set()
        self._stopping = asyncio.ensure_future(self._program.stop())

    async def aclose(self) -> None:
        """End the process, and wait for its end."""
        self.fail(FaultError(FaultCode.AGENT_UNREACHABLE, "The agent's process is being ended."))
        if self._stopping is not None:
            await asyncio.wait((self._stopping,))
        tasks = [self._reading, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
