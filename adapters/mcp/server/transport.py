"""Streamable HTTP: bodies are checked by the gateway's rules, and served by the SDK, which is loaded with the first.

What it takes of time and memory is most of what a gateway takes without it, and few gateways are called by MCP.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

from litestar import Request, Response

from babelgate.adapters.kit.headers import combine_lines, is_accepted
from babelgate.adapters.kit.json import most_values, parse, read_bytes, validate
from babelgate.adapters.kit.server.caller import caller, has_siblings
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.mcp import wire as w
from babelgate.adapters.mcp.codec.session_id import SESSION, is_session_of, is_stateless, make_session_id
from babelgate.adapters.mcp.errors import INVALID_REQUEST, PARSE_ERROR, encode_fault
from babelgate.adapters.mcp.server.calls import DEPARTURE, Calls
from babelgate.canonical import Fault, FaultCode, FaultError, Hub
from babelgate.canonical.value import JsonObject

if TYPE_CHECKING:
    from babelgate.adapters.mcp.server.sdk import Endpoint

AnyRequest = Request[Any, Any, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_Call = tuple[str, str, Any]
"""Owner, session, id of the request."""


_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"


class Transport(Handlers):
    def __init__(self, hub: Hub) -> None:
        self._calls = Calls(hub)
        self._hub = hub
        self._endpoint: Endpoint | None = None
        self._loading = asyncio.Lock()
        self._open: dict[_Call, Departure] = {}
        """Calls that are at work in sessions that hold nothing else."""

    async def post(self, request: AnyRequest) -> Response[Any]:
        """Raises too_large."""
        raw = await read_bytes(request)
        try:
            value = await parse(raw, most_values(request))
        except FaultError as error:
            return _refuse(error.fault, PARSE_ERROR if error.fault.code is FaultCode.INVALID else None)
        try:
            message = _check(value)
        except FaultError as error:
            return _refuse(error.fault, INVALID_REQUEST)
        owner, session_id = caller(request).owner, request.headers.get(SESSION)
        if session_id is not None and is_stateless(session_id):
            if not is_session_of(session_id, owner):
                return _refuse(
                    Fault(
                        code=FaultCode.NOT_FOUND, message="There is no such session: send initialize to open a new one."
                    ),
                    INVALID_REQUEST,
                )
            call = (owner, session_id, message.id)
            if message.method == "notifications/cancelled":
                self._cancel((owner, session_id, (message.params or {}).get("requestId")))
            return _Handed(await self._load(), raw, calls=self._open, call=call if message.method else None)
        opens = message.method == "initialize"
        asks = opens and not has_siblings(request) and _can_be_asked(message.params or {})
        given = make_session_id(owner) if opens and not asks else None
        return _Handed(await self._load(), raw, in_session=asks or session_id is not None, gives=given)

    def _cancel(self, call: "_Call") -> None:
        if isinstance(call[2], str | int) and (departure := self._open.get(call)) is not None:
            departure.happen()

    async def get(self, request: AnyRequest) -> Response[Any]:
        return await self._in_session(request)

    async def delete(self, request: AnyRequest) -> Response[Any]:
        return await self._in_session(request)

    async def _in_session(self, request: AnyRequest) -> Response[Any]:
        """Raises method_not_allowed: where there is no session, nothing is said that was not asked for."""
        session_id = request.headers.get(SESSION)
        if session_id is None or is_stateless(session_id):
            # SPEC/basic/transports, Listening for Messages from the Server
            raise FaultError(FaultCode.METHOD_NOT_ALLOWED, "Use POST.", allow=["POST"])
        return _Handed(await self._load(), b"", in_session=True)

    async def _load(self) -> "Endpoint":
        if self._endpoint is not None:
            return self._endpoint
        async with self._loading:
            endpoint = self._endpoint
            if endpoint is None:
                # It takes a second or three, in which others are served.
                sdk = await asyncio.to_thread(import_module, "babelgate.adapters.mcp.server.sdk")
                endpoint = self._endpoint = sdk.Endpoint(self._hub, self._calls)
            return endpoint


def _refuse(fault: Fault, code: int | None) -> Response[Any]:
    status, body, headers = encode_fault(fault, code)
    return json_response(body, headers, status=status)


def _check(value: Any) -> w.Envelope:
    """One message of JSON-RPC. Raises invalid."""
    if not isinstance(value, dict):
        raise FaultError(FaultCode.INVALID, "The body must be one JSON-RPC message, an object.")
    message = validate(w.Envelope, cast("JsonObject", value))
    if message.method is not None and "id" in message.model_fields_set and message.id is None:
        raise FaultError(FaultCode.INVALID, "id: It must be a string or an integer.")
    if message.method is None and (message.id is None or (message.result is None) == (message.error is None)):
        raise FaultError(FaultCode.INVALID, "The message is not a JSON-RPC request, notification or response.")
    return message


def _can_be_asked(params: Mapping[str, Any]) -> bool:
    """Whether a client says that it can be asked by a form (SPEC/client/elicitation, Capabilities), or that its model
    can. Many more have folders to name; for that alone no session is kept."""
    capabilities: Any = params.get("capabilities")
    told = cast("JsonObject", capabilities) if isinstance(capabilities, dict) else {}
    forms: Any = told.get("elicitation")
    return isinstance(told.get("sampling"), dict) or (
        isinstance(forms, dict) and ("form" in forms or "url" not in forms)
    )


class _Handed(Response[bytes]):
    """An answer that the SDK gives."""

    def __init__(
        self,
        endpoint: "Endpoint",
        raw: bytes,
        *,
        in_session: bool = False,
        gives: str | None = None,
        calls: "dict[_Call, Departure] | None" = None,
        call: "_Call | None" = None,
    ) -> None:
        """`gives`: the id of a session that holds nothing. `call`: the name under which it is in `calls` until it is
        answered."""
        super().__init__(b"")
        self._endpoint = endpoint
        self._raw = raw
        self._in_session = in_session
        self._gives = gives
        self._calls = {} if calls is None else calls
        self._call = call

    def to_asgi_response(self, *_: Any, **__: Any) -> Any:
        return self._answer

    async def _answer(self, scope: Any, receive: Receive, send: Send) -> None:
        exchange = _Exchange(self._raw, receive, send, self._gives)
        lines = combine_lines(scope["headers"])
        accept = lines.get(b"accept", b"").decode("latin-1")
        taken = [each for each in (_JSON, _EVENTS) if is_accepted(accept, each)]
        streams = _EVENTS in taken
        # Of who takes no stream the SDK would not notice that it leaves.
        watching = None if streams else asyncio.ensure_future(exchange.watch())
        state = {**scope["state"], DEPARTURE: exchange.departure}
        if self._call is not None:
            self._calls[self._call] = exchange.departure
        try:
            # mcp 1.x looks for the names of the two media types: weights, wildcards and lines are read here.
            if taken:
                lines[b"accept"] = ", ".join(taken).encode()
            headers = list(lines.items())
            await self._endpoint.serve(
                {**scope, "state": state, "headers": headers},
                exchange.receive,
                exchange.send,
                in_session=self._in_session,
                streams=streams or self._in_session,
            )
        finally:
            if watching is not None:
                watching.cancel()
            if self._call is not None and self._calls.get(self._call) is exchange.departure:
                del self._calls[self._call]


class Departure:
    """A caller who leaves, or takes its request back, before it is answered: what is to be done then. Whatever is added
    later is done at once: the stream of an answer begins before its run is submitted."""

    def __init__(self) -> None:
        self._has_happened = False
        self._left: list[Callable[[], None]] = []

    def add(self, left: Callable[[], None]) -> None:
        if self._has_happened:
            left()
        else:
            self._left.append(left)

    def happen(self) -> None:
        left, self._left, self._has_happened = self._left, [], True
        for each in left:
            each()


class _Exchange:
    """A request whose body was read, and whose caller may leave before it is answered."""

    def __init__(self, raw: bytes, receive: Receive, send: Send, gives: str | None) -> None:
        self.departure = Departure()
        self._raw: bytes | None = raw
        self._receive = receive
        self._send = send
        self._gives = gives
        self._over = False

    async def receive(self) -> Message:
        if self._raw is not None:
            raw, self._raw = self._raw, None
            return {"type": "http.request", "body": raw, "more_body": False}
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._leave()
        return message

    async def watch(self) -> None:
        """Until the caller leaves. There is nothing else to receive: the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        if not self._over:
            self._over = True
            self.departure.happen()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self._over = True
        if message["type"] == "http.response.start" and self._gives is not None and message["status"] == 200:
            message = {**message, "headers": [*message["headers"], (SESSION.encode(), self._gives.encode())]}
        await self._send(message)
