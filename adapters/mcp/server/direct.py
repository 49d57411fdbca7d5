"""Transport of requests without a stored session: those of 2026-07-28, and those of older versions whose client the
gateway cannot ask.

The SDK would create a session manager, two runners and two connections for each such request, and leave reference
cycles. Measured, 2026-11: a call took 1.5 times the CPU that it takes here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import cache
from typing import Any, Final, NamedTuple, get_args

import mcp_types as types
from litestar import Response
from mcp_types.methods import SERVER_RESULTS, SPEC_CLIENT_METHODS, validate_client_request
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from babelgate.adapters.kit.headers import combine_lines, is_accepted
from babelgate.adapters.kit.server.encoding import LargeJson, as_bytes, encode
from babelgate.adapters.kit.server.heartbeat import Monitor
from babelgate.adapters.kit.server.sse import DISCONNECT_KEY, HEARTBEAT, frame, frame_of
from babelgate.adapters.mcp import wire as w
from babelgate.adapters.mcp.codec.session_id import SESSION
from babelgate.adapters.mcp.errors import INTERNAL, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR
from babelgate.adapters.mcp.server.authorization import Challenge
from babelgate.adapters.mcp.server.calls import ToolCalls
from babelgate.adapters.mcp.server.disconnect import Disconnect
from babelgate.adapters.mcp.server.envelope import VERSION_HEADER, check_envelope, check_param_headers, check_version
from babelgate.adapters.mcp.server.exchange import MethodError, caller_of, is_modern
from babelgate.adapters.mcp.server.methods import SERVER_INFO, methods
from babelgate.adapters.mcp.server.resources import Resources
from babelgate.canonical import Fault, Hub
from babelgate.canonical.json import as_object
from babelgate.canonical.value import JsonObject

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

log = logging.getLogger("babelgate.mcp")

_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
_PING: Final = 15.0
"""Seconds between the heartbeats of a silent stream. Chosen: as the SDK does."""
_STATUS: Final[Mapping[int, int]] = {
    **dict.fromkeys((PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS), 400),
    **dict.fromkeys(
        (types.HEADER_MISMATCH, types.MISSING_REQUIRED_CLIENT_CAPABILITY, types.UNSUPPORTED_PROTOCOL_VERSION), 400
    ),
    METHOD_NOT_FOUND: 404,
}
"""HTTP status of a response of 2026-07-28, by the code of its error (NEXT/basic/transports). Others have 200."""
_STREAM_HEADERS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
)
_SERVER_INFO_KEY: Final = "io.modelcontextprotocol/serverInfo"
_ONE_MESSAGE: Final = "Body must be a single JSON-RPC request or notification object"


class _Opening(NamedTuple):
    """A message, and what the route handler knows about it: the arguments of `DirectServer.response`."""

    message: w.Envelope
    new_session: str | None
    challenge: Challenge | None
    on_open: Callable[[Disconnect], Callable[[], None]] | None


class DirectServer:
    """Server of all requests without a stored session."""

    def __init__(self, hub: Hub, calls: ToolCalls) -> None:
        self._calls = calls
        self._methods = methods(calls, Resources(hub, calls))

    def has_handshake(self, version: str | None) -> bool:
        """Return True if the version that a request names in its header is one with a handshake. None: it names none,
        and so its version has one."""
        return version is None or version in HANDSHAKE_PROTOCOL_VERSIONS

    def response(
        self,
        message: w.Envelope,
        *,
        new_session: str | None = None,
        challenge: Challenge | None = None,
        on_open: Callable[[Disconnect], Callable[[], None]] | None = None,
    ) -> Response[Any]:
        """Return the response to a message.

        - `new_session`: id of the session that the response opens, or None.
        - `challenge`: replaces the response if the token needs more scopes.
        - `on_open`: function that registers the callbacks of the call, and returns the function that removes them.
        """
        return _DirectResponse(self, _Opening(message, new_session, challenge, on_open))

    async def serve(self, exchange: "DirectExchange") -> None:
        """Check one message, call its method, and send the response."""
        if not exchange.headers.get("content-type", "").lower().startswith(_JSON):
            await exchange.reject(400, b"Invalid Content-Type header", None)
        elif self.has_handshake(exchange.headers.get(VERSION_HEADER)):
            await self._serve_handshake(exchange)
        else:
            await self._serve_modern(exchange)

    async def _serve_handshake(self, exchange: "DirectExchange") -> None:
        """Serve a message of a version with a handshake. The response to a request is a stream, if the client accepts
        one, and its status is always 200."""
        if not exchange.accepts_json:
            wanted = f"both {_JSON} and {_EVENTS}" if exchange.accepts_events else _JSON
            error = {"code": INVALID_REQUEST, "message": f"Not Acceptable: Client must accept {wanted}"}
            await exchange.send_json(406, {"jsonrpc": "2.0", "id": None, "error": error})
        elif exchange.is_request:
            exchange.version = exchange.headers.get(VERSION_HEADER, types.DEFAULT_NEGOTIATED_VERSION)
            if exchange.accepts_events:
                await exchange.open_stream()
            await exchange.answer(await self._respond(exchange))
        else:
            await exchange.reject(202, b"", _JSON.encode())

    async def _serve_modern(self, exchange: "DirectExchange") -> None:
        """Serve a message of 2026-07-28. The response to a request is JSON, unless a notification precedes it."""
        message = exchange.message
        needs_stream = message.method == "subscriptions/listen" and exchange.is_request
        if not exchange.accepts_json or (needs_stream and not exchange.accepts_events):
            await exchange.reject(406, b"", None)
            return
        try:
            if message.method is None:
                raise MethodError(INVALID_REQUEST, _ONE_MESSAGE)
            if message.id is None:
                check_version(exchange.headers.get(VERSION_HEADER))
                await exchange.reject(202, b"", None)
                return
            meta = check_envelope(message.method, message.params, exchange.headers)
            exchange.declare(meta)
            self._check_param_headers(exchange)
        except MethodError as error:
            reply_id = None if message.method is None else message.id
            body = {"jsonrpc": "2.0", "id": reply_id, "error": _encode_error(error)}
            await exchange.send_json(_STATUS[error.code], body)
            return
        reply = await self._respond(exchange)
        await exchange.answer(reply, _STATUS.get(reply["error"]["code"], 200) if "error" in reply else 200)

    def _check_param_headers(self, exchange: "DirectExchange") -> None:
        """Raise MethodError if the headers of a tool call do not match the arguments that its tool declares for
        them."""
        name, arguments = exchange.params.get("name"), exchange.params.get("arguments")
        if exchange.message.method != "tools/call" or not isinstance(name, str):
            return
        tool = self._calls.agents(caller_of(exchange)).get(name)
        if tool is None or tool.takes_messages or tool.role != "tool":
            return
        if arguments is None or isinstance(arguments, dict):  # the schema of the method refuses others
            check_param_headers(tool.input_schema, as_object(arguments), exchange.headers)

    async def _respond(self, exchange: "DirectExchange") -> JsonObject:
        """Call the method of a request, and return the JSON-RPC response."""
        reply: JsonObject = {"jsonrpc": "2.0", "id": exchange.request_id}
        try:
            reply["result"] = await self._call(exchange)
        except MethodError as error:
            reply["error"] = _encode_error(error)
        except Exception:
            log.exception("request failed")
            reply["error"] = {"code": INTERNAL, "message": "The gateway failed to answer this."}
        return reply

    async def _call(self, exchange: "DirectExchange") -> JsonObject:
        """Validate the parameters of a request, call its method, and return the result in the form of its version.
        Raises MethodError."""
        name, params, version = exchange.message.method or "", exchange.message.params, exchange.version
        is_standard = name in SPEC_CLIENT_METHODS
        method = self._methods.get(name)
        try:
            if is_standard:
                validate_client_request(name, version, params)
            if method is None:
                raise KeyError(name)
            values = method.params.model_validate({} if params is None else params, by_name=False)
        except KeyError:  # in this version
            raise MethodError(METHOD_NOT_FOUND, "Method not found", name) from None
        except ValidationError:
            raise MethodError(INVALID_PARAMS, "Invalid request parameters", "") from None
        result = await method.handler(exchange, values)
        kind = result.get("resultType")
        # The result `task` is that of an extension.
        if is_standard and not (is_modern(exchange) and kind not in (None, "complete", "input_required")):
            adapter = _result_adapter(name, version, kind == "input_required")
            checked = adapter.validate_python(result, by_name=False)
            result = adapter.dump_python(checked, by_alias=True, mode="json", exclude_none=True)
        if is_modern(exchange):
            meta: JsonObject = {**as_object(result.get("_meta")), _SERVER_INFO_KEY: SERVER_INFO}
            result = {"resultType": "complete", **result, "_meta": meta}
        return result


@cache
def _result_adapter(method: str, version: str, is_question: bool) -> TypeAdapter[Any]:
    """Return the model of a method's result in a version. It drops members that the version does not have.

    A union of the result and `InputRequiredResult` would take four times as long as either of them.
    """
    row: Any = SERVER_RESULTS[method, version]
    arms: list[Any] = [arm for arm in get_args(row) if (arm.__name__ == "InputRequiredResult") is is_question]
    adapter: TypeAdapter[Any] = TypeAdapter(arms[0] if arms else row)
    return adapter


def _encode_error(error: MethodError) -> JsonObject:
    data = {} if error.data is None else {"data": error.data}
    return {"code": error.code, "message": str(error), **data}


class DirectExchange:
    """Implementation of `RequestExchange` for a POST request without a stored session."""

    def __init__(self, opening: _Opening, scope: Mapping[str, Any], send: Send) -> None:
        lines = combine_lines(scope["headers"]).items()
        self.message = opening.message
        self.scope = scope
        self.version = ""
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in lines}
        """Headers by lower-case name."""
        accept = self.headers.get("accept", "")
        self.accepts_json = is_accepted(accept, _JSON)
        self.accepts_events = is_accepted(accept, _EVENTS)
        self.disconnect = Disconnect()
        self.capabilities: types.ClientCapabilities | None = None
        self._send = send
        self._new_session = opening.new_session
        self._challenge = opening.challenge
        self._fault: Fault | None = None
        self._has_begun = False
        """True if the response has begun as a stream."""
        self._is_answered = False
        """True if the last message of the response is being sent."""
        self._task = asyncio.current_task()
        self._monitor = Monitor(_PING, self._beat, self.stop)
        self._beating: asyncio.Task[None] | None = None
        self._is_cut = False
        """True if the client has disconnected, or was disconnected because it received nothing for too long."""

    @property
    def is_request(self) -> bool:
        """True if the message is a request, which needs a response."""
        return self.message.method is not None and self.message.id is not None

    @property
    def request_id(self) -> str | int:
        return self.message.id if self.message.id is not None else ""

    @property
    def params(self) -> JsonObject:
        return self.message.params or {}

    @property
    def can_be_asked(self) -> bool:
        return False

    def header(self, name: str) -> str | None:
        return self.headers.get(name)

    def declare(self, meta: JsonObject) -> None:
        """Read the version and the client's capabilities in the envelope of a request. Capabilities that are not valid
        count as none; the schema of the method refuses them."""
        self.version = meta[types.PROTOCOL_VERSION_META_KEY]
        try:
            declared = meta[types.CLIENT_CAPABILITIES_META_KEY]
            self.capabilities = types.ClientCapabilities.model_validate(declared, by_name=False)
        except ValidationError:
            self.capabilities = None

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        self.disconnect.add(callback)

    def challenge(self, fault: Fault) -> None:
        self._fault = fault

    async def ask(self, method: str, params: JsonObject) -> JsonObject | None:
        return None

    # The response

    async def open_stream(self) -> None:
        """Begin the response as a stream before its first message, unless it may be replaced by a challenge."""
        if self._challenge is None:
            await self._begin()

    async def notify(self, method: str, params: JsonObject) -> None:
        if self.accepts_events:
            data = await as_bytes(encode({"jsonrpc": "2.0", "method": method, "params": params}))
            await self._begin()
            await self._write(frame(data, event="message"))

    async def answer(self, reply: JsonObject, status: int = 200) -> None:
        """Send the response to the request: the last event of the stream, or JSON with a status."""
        self._is_answered = True
        if self._fault is not None and self._challenge is not None and not self._has_begun:
            for each in self._challenge.encode(self._fault):
                await self._send(each)
        elif self._has_begun or (self.accepts_events and not is_modern(self)):
            await self._begin()
            last = frame_of(encode(reply), event="message")
            if isinstance(last, bytes):
                await self._write(last, is_last=True)
            else:
                async for piece in last.pieces():
                    await self._write(piece)
                await self._write(b"", is_last=True)
        else:
            await self.send_json(status, reply)

    async def reject(self, status: int, body: bytes, content_type: bytes | None) -> None:
        """Send a response that is not JSON-RPC. `content_type` is None for no header."""
        headers = [(b"content-length", b"%d" % len(body))]
        headers += [] if content_type is None else [(b"content-type", content_type)]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def send_json(self, status: int, value: JsonObject) -> None:
        """Send a JSON response."""
        data = encode(value)
        headers = [(b"content-type", _JSON.encode())]
        if not isinstance(data, LargeJson):
            headers.append((b"content-length", b"%d" % len(data)))
        if self._new_session is not None and status == 200:
            headers.append((SESSION.encode(), self._new_session.encode()))
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        if isinstance(data, LargeJson):
            async for piece in data.pieces():
                await self._write(piece)
            data = b""
        await self._write(data, is_last=True)

    async def _begin(self) -> None:
        """Begin the response as a stream, unless it has begun."""
        if not self._has_begun:
            self._has_begun = True
            headers = [*_STREAM_HEADERS]
            if self._new_session is not None:
                headers.append((SESSION.encode(), self._new_session.encode()))
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _write(self, data: bytes, *, is_last: bool = False) -> None:
        """Send bytes of the body."""
        self._monitor.begin_send()
        if self._beating is not None:  # it may not have sent the begin of the stream yet
            await asyncio.wait((self._beating,))
            self._beating = None
        await self._send({"type": "http.response.body", "body": data, "more_body": not is_last})
        self._monitor.end_send()

    # The connection

    def open(self) -> None:
        """Begin to watch the response, if it may be a stream."""
        if self.accepts_events:
            self._monitor.open()

    def close(self) -> None:
        """End the watch, and drop the references that form circles, which only the garbage collector would free."""
        self._monitor.close()
        if self._beating is not None:
            self._beating.cancel()
        self._task = None

    def stop(self) -> None:
        """End the request, because its client has disconnected or accepts nothing."""
        if self._task is not None and not self._is_cut:
            self._is_cut = True
            if not self._is_answered:
                self.disconnect.fire()
            self._task.cancel()

    def is_stopped(self, task: "asyncio.Task[Any] | None") -> bool:
        """Return True if a cancellation of the task is only that of `stop`."""
        return self._is_cut and task is not None and not task.uncancel()

    def _beat(self) -> None:
        if not self._is_answered:
            self._beating = asyncio.get_running_loop().create_task(self._send_heartbeat())

    async def _send_heartbeat(self) -> None:
        self._monitor.begin_send()
        await self._begin()
        await self._send({"type": "http.response.body", "body": HEARTBEAT, "more_body": True})
        self._monitor.end_send()


class _DirectResponse(Response[bytes]):
    """Response to one message that has no stored session."""

    def __init__(self, server: DirectServer, opening: _Opening) -> None:
        super().__init__(b"")
        self._server = server
        self._opening = opening

    def to_asgi_response(self, *_: Any, **__: Any) -> Any:
        return self._respond

    async def _respond(self, scope: Any, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        exchange = DirectExchange(self._opening, scope, send)
        forget = None if self._opening.on_open is None else self._opening.on_open(exchange.disconnect)
        register = scope.get(DISCONNECT_KEY)
        leaving: asyncio.Task[None] | None = None
        if register is None or not register(exchange.stop):
            leaving = asyncio.get_running_loop().create_task(_await_disconnect(receive, exchange.stop))
        exchange.open()
        try:
            await self._server.serve(exchange)
        except asyncio.CancelledError:
            # Returning without the end of the body makes the server cut the connection.
            if not exchange.is_stopped(task):
                raise
        finally:
            exchange.close()
            if leaving is not None:
                leaving.cancel()
            if forget is not None:
                forget()


async def _await_disconnect(receive: Receive, stop: Callable[[], None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    stop()
