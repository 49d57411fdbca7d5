"""JSON-RPC with a program over its stdin and stdout: requests of the gateway, and messages of the agent in order."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from babelgate.adapters.agent_client import wire as w
from babelgate.adapters.agent_client.errors import (
    AUTH_REQUIRED,
    INTERNAL,
    METHOD_NOT_FOUND,
    encode_error,
    relayed_code,
)
from babelgate.adapters.kit.client.answers import ANSWER_VALUES
from babelgate.adapters.kit.json import json_text, parse
from babelgate.adapters.kit.program import Program
from babelgate.canonical import Fault, FaultCode, FaultError
from babelgate.canonical.json import as_object, as_text
from babelgate.canonical.printable import printable
from babelgate.canonical.value import JsonObject

log = logging.getLogger("babelgate.agent_client")

_ACTIVE: Final = 32
"""Maximum number of requests of an agent that the gateway handles at the same time. Chosen."""
_UNREAD: Final = 16 * 2**20
"""Size of the messages that wait to be read, in bytes, from which the gateway reads no more lines of the program.
Chosen."""
_WORDS: Final = 500
"""Maximum length of an agent's error text in a fault, in characters. Chosen."""


class AgentError(Exception):
    """Error with which the agent answers a request."""

    def __init__(self, error: JsonObject) -> None:
        code = error.get("code")
        self.code = code if isinstance(code, int) else INTERNAL
        self.data = as_object(error.get("data"))
        details = error.get("data")
        words = as_text(error.get("message"))
        if isinstance(details, str) and details not in words:
            words = f"{words}: {details}"
        elif reason := as_text(self.data.get("details")):
            words = f"{words}: {reason}"
        self.words = printable(words or f"error {self.code}", _WORDS)
        super().__init__(self.words)

    @property
    def is_login(self) -> bool:
        """True if the agent refuses the request until its user has logged in."""
        return self.code == AUTH_REQUIRED

    def fault(self) -> FaultError:
        """Return the fault of a run that fails with this error."""
        return FaultError(relayed_code(self.data.get("code")), self.words)


@dataclass(frozen=True, slots=True)
class Incoming:
    """Message of the agent that belongs to the active turn: an update, a request to the user, or the end of the
    prompt."""

    size: int
    update: JsonObject | None = None
    request: tuple[int | str, str, JsonObject] | None = None
    """Id, method and params of a request to the user."""
    result: JsonObject | None = None
    """Result of the prompt."""
    error: AgentError | None = None
    """Error of the prompt."""
    has_ended: bool = False
    """True if the program has closed its output. No message follows."""


Handler = Callable[[str, JsonObject], Awaitable[JsonObject]]
"""Function that handles a request of the agent for a file or a terminal: (method, params) → result."""


class ProgramConnection:
    """Connection to one program. Updates, requests to the user and the result of the prompt arrive in the order in
    which the agent has sent them. All other requests of the agent are handled at once."""

    def __init__(self, program: Program, handle: Handler) -> None:
        self._program = program
        self._handle = handle
        self._numbers = 0
        self._pending: dict[int, asyncio.Future[JsonObject]] = {}
        self._prompt: int | None = None
        """Id of the active prompt; None if there is none."""
        self._inbox: deque[Incoming] = deque()
        self._size = 0
        self._arrived = asyncio.Event()
        self._read = asyncio.Event()
        self._handling: set[asyncio.Task[None]] = set()
        self._sending = asyncio.Lock()
        self._is_closed = False
        self._reading = asyncio.ensure_future(self._read_all())

    # Messages of the agent

    @property
    def is_closed(self) -> bool:
        """True if the program has closed its output."""
        return self._is_closed

    def take(self) -> list[Incoming]:
        """Return the messages that have arrived, in order. They are not returned again."""
        messages = [*self._inbox]
        self._inbox.clear()
        self._size = 0
        self._arrived.clear()
        self._read.set()
        if self._is_closed:
            messages.append(Incoming(0, has_ended=True))
        return messages

    async def wait(self) -> None:
        """Wait until a message arrives, or the program closes its output."""
        if not self._inbox and not self._is_closed:
            await self._arrived.wait()

    def _put(self, message: Incoming) -> None:
        self._inbox.append(message)
        self._size += message.size
        self._arrived.set()

    async def _read_all(self) -> None:
        try:
            while line := await self._program.receive():
                await self._read_line(line)
                while self._size > _UNREAD:
                    self._read.clear()
                    await self._read.wait()
        except FaultError as error:
            log.warning("output of an agent not readable reason=%s", error.fault.message)
        finally:
            self._is_closed = True
            self._arrived.set()
            for future in self._pending.values():
                if not future.done():
                    future.set_exception(ConnectionError())
                    future.exception()  # a request whose task is cancelled is no error

    async def _read_line(self, line: bytes) -> None:
        """Read one message. Any other line is only logged, because libraries of agents print to stdout."""
        try:
            message = w.Envelope.model_validate(await parse(line, ANSWER_VALUES))
        except (FaultError, ValidationError):
            log.info(
                "line of an agent ignored: it is no message line=%s",
                printable(line[:_WORDS].decode("utf-8", "replace"), _WORDS),
            )
            return
        if message.method is None:
            self._take_answer(message, len(line))
        elif message.is_request and message.id is not None:
            self._take_request(message.id, message.method, message.params or {}, len(line))
        elif message.method == w.UPDATE and not message.is_request:
            self._put(Incoming(len(line), update=as_object((message.params or {}).get("update"))))

    def _take_answer(self, message: w.Envelope, size: int) -> None:
        number = message.id
        if not isinstance(number, int):
            return
        error = None if message.error is None else AgentError(message.error)
        if number == self._prompt:
            self._prompt = None
            self._put(Incoming(size, result=as_object(message.result), error=error))
        elif (future := self._pending.pop(number, None)) is not None and not future.done():
            if error is None:
                future.set_result(as_object(message.result))
            else:
                future.set_exception(error)

    def _take_request(self, request_id: int | str, method: str, params: JsonObject, size: int) -> None:
        if method in (w.PERMISSION, w.ELICITATION):
            self._put(Incoming(size, request=(request_id, method, params)))
            return
        if len(self._handling) >= _ACTIVE:
            fault = Fault(code=FaultCode.QUEUE_FULL, message=f"More than {_ACTIVE} requests are active.")
            handled = self._respond(request_id, {"error": encode_error(fault)})
        else:
            handled = self._answer(request_id, method, params)
        task = asyncio.ensure_future(handled)
        self._handling.add(task)
        task.add_done_callback(self._handling.discard)

    async def _answer(self, request_id: int | str, method: str, params: JsonObject) -> None:
        try:
            reply: JsonObject = {"result": await self._handle(method, params)}
        except FaultError as error:
            code = METHOD_NOT_FOUND if error.fault.code is FaultCode.METHOD_NOT_ALLOWED else None
            reply = {"error": encode_error(error.fault, code)}
        except Exception:  # else the agent waits without a limit
            log.exception("request of an agent failed method=%s", printable(method, _WORDS))
            reply = {"error": encode_error(Fault(code=FaultCode.INTERNAL, message="The client failed."))}
        await self._respond(request_id, reply)

    # Messages of the gateway

    async def request(self, method: str, params: JsonObject) -> JsonObject:
        """Send a request, and return its result. Raises AgentError for an error, and OSError if the program ends
        first."""
        if self._is_closed:
            raise ConnectionError
        number = self._next_number()
        future = self._pending[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send({"id": number, "method": method, "params": params})
            return await future
        finally:
            self._pending.pop(number, None)

    async def prompt(self, params: JsonObject) -> None:
        """Send a prompt, without waiting for its result, which arrives as an `Incoming`. Raises OSError if the program
        has ended."""
        self._prompt = self._next_number()
        await self._send({"id": self._prompt, "method": w.PROMPT, "params": params})

    async def notify(self, method: str, params: JsonObject) -> None:
        """Send a notification. Raises OSError if the program has ended."""
        await self._send({"method": method, "params": params})

    async def respond(self, request_id: int | str, result: JsonObject) -> None:
        """Send the result of a request of the agent. A program that has ended does not receive it."""
        await self._respond(request_id, {"result": result})

    async def _respond(self, request_id: int | str, reply: JsonObject) -> None:
        with suppress(OSError):
            await self._send({"id": request_id, **reply})

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    async def _send(self, message: JsonObject) -> None:
        line = json_text({"jsonrpc": "2.0", **message}).encode()
        async with self._sending:
            await self._program.send(line + b"\n")

    async def aclose(self) -> None:
        """Stop reading, and cancel the handlers of the agent's requests."""
        tasks = [self._reading, *self._handling]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
