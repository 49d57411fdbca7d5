"""JSON-RPC over one WebSocket: requests that the client sends, and requests that the gateway sends to the client."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, cast
from uuid import uuid4

from litestar import WebSocket

from babelgate.adapters.agent_client import wire as w
from babelgate.adapters.agent_client.errors import (
    CANCELLED,
    INTERNAL,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    encode_error,
)
from babelgate.adapters.kit.json import most_values, parse, validate
from babelgate.adapters.kit.server.encoding import as_bytes, encode
from babelgate.adapters.kit.server.websocket import Disconnected, detect_disconnect, send_texts
from babelgate.canonical import Fault, FaultCode, FaultError
from babelgate.canonical.value import Json, JsonObject

log = logging.getLogger("babelgate.agent_client")

_ACTIVE: Final = 64
"""Maximum number of unanswered requests that a client may have on one connection. Chosen: an editor has a prompt for
each of its tabs."""
_TOO_MANY: Final = Fault(
    code=FaultCode.QUEUE_FULL, message=f"More than {_ACTIVE} requests are active on this connection."
)
_INTERNAL: Final = Fault(code=FaultCode.INTERNAL, message="The gateway failed to answer this.")

Id = int | str


class MethodNotFound(Exception):
    """Raised for a JSON-RPC method that the gateway does not have."""


class RequestFailed(Exception):
    """Raised by a handler whose request failed. `error` is the encoded error object for the JSON-RPC response."""

    def __init__(self, error: JsonObject) -> None:
        super().__init__(error.get("message"))
        self.error = error


Answer = Callable[[str, JsonObject, Id], Awaitable[JsonObject]]
Note = Callable[[str, JsonObject], Awaitable[None]]


class ClientPeer:
    """Client at the other end of a WebSocket: it sends requests and notifications, and gets those of the gateway."""

    def __init__(self, socket: WebSocket[Any, Any, Any]) -> None:
        self._socket = socket
        self._values = most_values(socket)
        self._sending = asyncio.Lock()
        self._held: list[bytes] = []
        """Encoded messages that are sent together with the next one."""
        self._active: dict[Id, asyncio.Task[None]] = {}
        """Tasks that handle the client's unanswered requests, by request id."""
        self._asked: dict[str, asyncio.Future[JsonObject | None]] = {}
        """Futures for the results of the gateway's unanswered requests to the client, by request id. The ids are
        random, so that an answer to a request of an earlier connection matches none."""

    async def serve(self, answer: Answer, note: Note) -> None:
        """Receive messages until the client disconnects. `answer` handles requests, several at the same time, and
        `note` handles notifications, one after the other."""
        async with asyncio.TaskGroup() as tasks:
            try:
                with suppress(Disconnected):
                    while (raw := await self._receive()) is not None:
                        await self._handle(raw, answer, note, tasks)
            finally:
                for task in self._active.values():
                    task.cancel()

    async def _receive(self) -> bytes | None:
        with detect_disconnect():
            message = cast("dict[str, Any]", await self._socket.receive())
        if message["type"] == "websocket.disconnect":
            return None
        raw: bytes = message.get("bytes") or (message.get("text") or "").encode()
        return raw

    async def _handle(self, raw: bytes, answer: Answer, note: Note, tasks: asyncio.TaskGroup) -> None:
        """Parse one received message and dispatch it. Answer with an error if it is not valid JSON-RPC."""
        try:
            value = await parse(raw, self._values)
        except FaultError as error:
            await self._refuse(None, error.fault, PARSE_ERROR)
            return
        try:
            if not isinstance(value, dict):
                raise FaultError(FaultCode.INVALID, "The message must be one JSON-RPC object.")
            message = validate(w.Envelope, value)
            if message.method is None and message.id is None:
                # A client reports a message that it could not read by a response without an id.
                return
        except FaultError as error:
            await self._refuse(_id_of(value), error.fault, INVALID_REQUEST)
            return
        await self._dispatch(message, answer, note, tasks)

    async def _dispatch(self, message: w.Envelope, answer: Answer, note: Note, tasks: asyncio.TaskGroup) -> None:
        method, params = message.method, message.params or {}
        if method is None:
            self._take_answer(message)
        elif not message.is_request:
            with suppress(FaultError):
                await note(method, params)
        elif message.id is None:
            fault = Fault(code=FaultCode.INVALID, message="id: It must be a string or an integer.")
            await self._refuse(None, fault, INVALID_REQUEST)
        elif message.id in self._active:
            fault = Fault(code=FaultCode.CONFLICT, message="A request with this id is active.")
            await self._refuse(message.id, fault, INVALID_REQUEST)
        elif len(self._active) == _ACTIVE:
            await self._refuse(message.id, _TOO_MANY, INTERNAL)
        else:
            self._active[message.id] = tasks.create_task(self._answer(answer, method, params, message.id))
            await asyncio.sleep(0)  # the request begins before the next message, which may cancel it

    def _take_answer(self, message: w.Envelope) -> None:
        future = self._asked.get(str(message.id))
        if future is not None and not future.done():
            result = message.result
            future.set_result(result if isinstance(result, dict) and message.error is None else None)

    async def _answer(self, answer: Answer, method: str, params: JsonObject, request_id: Id) -> None:
        """Handle one request of the client with `answer`, and send its result or its error."""
        try:
            reply: JsonObject = {"result": await answer(method, params, request_id)}
        except FaultError as error:
            reply = {"error": encode_error(error.fault)}
        except RequestFailed as error:
            reply = {"error": error.error}
        except MethodNotFound:
            words = f"Method not found: {method[:100]}"
            fault = Fault(code=FaultCode.METHOD_NOT_ALLOWED, message=words)
            reply = {"error": encode_error(fault, METHOD_NOT_FOUND)}
        except Disconnected:
            return
        except Exception:  # the counterpart of a 500 over HTTP: the connection stays open
            log.exception("a request over a WebSocket failed")
            reply = {"error": encode_error(_INTERNAL)}
        finally:
            self._active.pop(request_id, None)
        with suppress(Disconnected):
            await self._send({"jsonrpc": "2.0", "id": request_id, **reply})

    async def cancel_request(self, request_id: Json) -> None:
        """Cancel the client's active request with this id, and answer it with an error. An unknown id is ignored."""
        task = self._active.pop(request_id, None) if isinstance(request_id, int | str) else None
        if task is not None:
            task.cancel()
            fault = Fault(code=FaultCode.CONFLICT, message="The request was cancelled.")
            with suppress(Disconnected):
                await self._refuse(cast("Id", request_id), fault, CANCELLED)

    async def _refuse(self, request_id: Id | None, fault: Fault, code: int) -> None:
        await self._send({"jsonrpc": "2.0", "id": request_id, "error": encode_error(fault, code)})

    async def notify(self, method: str, params: JsonObject) -> None:
        """Send a notification to the client. Raises Disconnected."""
        await self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def hold(self, texts: Sequence[bytes]) -> None:
        """Send messages that are already encoded together with the next message, which the caller sends soon."""
        self._held += texts

    async def send_texts(self, texts: Sequence[bytes]) -> None:
        """Send messages that are already encoded. Raises Disconnected."""
        async with self._sending:
            held, self._held = self._held, []
            with detect_disconnect():
                await send_texts(self._socket, [*held, *texts])

    async def request(self, method: str, params: JsonObject) -> JsonObject | None:
        """Send a request to the client, and return its result, or None if the client answers with an error. If the
        calling task is cancelled, send the client `$/cancel_request`. Raises Disconnected."""
        request_id = str(uuid4())
        future = self._asked[request_id] = asyncio.get_running_loop().create_future()
        try:
            await self._send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
            return await future
        except asyncio.CancelledError:
            with suppress(Disconnected):
                await self.notify("$/cancel_request", {"requestId": request_id})
            raise
        finally:
            del self._asked[request_id]

    async def _send(self, message: JsonObject) -> None:
        await self.send_texts((await as_bytes(encode(message)),))

    async def close(self, code: int, why: str) -> None:
        """Close the WebSocket with a close code and a reason."""
        with suppress(Disconnected), detect_disconnect():
            await self._socket.close(code, why)


def _id_of(value: Json) -> Id | None:
    """Return the id in a message that is not valid JSON-RPC, for the error response. Return None if it has none."""
    request_id = value.get("id") if isinstance(value, dict) else None
    return request_id if isinstance(request_id, int | str) and not isinstance(request_id, bool) else None
