"""Streamable HTTP transport: checks each request by the gateway's own rules, and passes it to the gateway's own server,
or to the SDK if it belongs to a session that the SDK stores.

Both are loaded with the first request that needs them, because few gateways are called by MCP. Measured, 2026-11: the
models of MCP take 0.4 s and 11 MB, and the SDK 0.4 s and 9 MB more.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

from litestar import Response

from babelgate.adapters.kit.headers import combine_lines, is_accepted
from babelgate.adapters.kit.json import most_values, parse, read_bytes, validate
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import caller, has_siblings, note_operation
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.tracing import find_tracer
from babelgate.adapters.kit.tracing import TracedOperation
from babelgate.adapters.mcp import wire as w
from babelgate.adapters.mcp.codec.session_id import SESSION, is_session_of, is_stateless, make_session_id
from babelgate.adapters.mcp.errors import INVALID_REQUEST, PARSE_ERROR, encode_fault
from babelgate.adapters.mcp.server.authorization import Challenge
from babelgate.adapters.mcp.server.calls import CHALLENGE, DISCONNECT, ToolCalls
from babelgate.adapters.mcp.server.disconnect import Disconnect
from babelgate.canonical import Fault, FaultCode, FaultError, Hub
from babelgate.canonical.value import JsonObject

if TYPE_CHECKING:
    from babelgate.adapters.mcp.server.direct import DirectServer
    from babelgate.adapters.mcp.server.sdk import Endpoint

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_Call = tuple[str, str, Any]
"""Key of an active call: the caller's subject, the session id and the request id."""


_ID_LENGTH: Final = 200
"""Maximum length of a request id or a tool name in a span, in characters. Chosen."""
_VERSION: Final = "mcp-protocol-version"
_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
_METHODS: Final = frozenset(
    {
        "completion/complete",
        "initialize",
        "logging/setLevel",
        "notifications/cancelled",
        "notifications/initialized",
        "ping",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/subscribe",
        "resources/templates/list",
        "resources/unsubscribe",
        "server/discover",
        "subscriptions/listen",
        "tasks/cancel",
        "tasks/get",
        "tasks/update",
        "tools/call",
        "tools/list",
    }
)
"""Methods whose names logs and metrics record. Other names are not recorded, because callers could choose them
freely."""


class TransportHandlers(Handlers):
    """Route handlers of the MCP endpoint."""

    def __init__(self, hub: Hub) -> None:
        self._calls = ToolCalls(hub)
        self._hub = hub
        self._server: DirectServer | None = None
        self._endpoint: Endpoint | None = None
        self._loading = asyncio.Lock()
        self._open: dict[_Call, Disconnect] = {}
        """Callbacks of the active calls in stateless sessions, so that a notification can cancel a call."""

    async def post(self, request: AnyRequest) -> Response[Any]:
        """Serve one JSON-RPC message: a request, a notification or a response. Raises too_large for a body that exceeds
        the limits; other faults are JSON-RPC errors."""
        raw = await read_bytes(request)
        try:
            value = await parse(raw, most_values(request))
        except FaultError as error:
            return _refuse(error.fault, PARSE_ERROR if error.fault.code is FaultCode.INVALID else None)
        try:
            message = _check(value)
        except FaultError as error:
            return _refuse(error.fault, INVALID_REQUEST)
        if message.method in _METHODS:
            note_operation(request, message.method)
            _trace(request, message.method, value)
        # The scopes of an API key are in the configuration: only a token can get more.
        challenge = Challenge(request, message.id) if caller(request).principal.issuer and message.method else None
        subject, session_id = caller(request).principal.subject, request.headers.get(SESSION)
        server = await self._load()
        if session_id is not None and is_stateless(session_id):
            if not is_session_of(session_id, subject):
                return _refuse(
                    Fault(
                        code=FaultCode.NOT_FOUND, message="There is no such session: send initialize to open a new one."
                    ),
                    INVALID_REQUEST,
                )
            if message.method == "notifications/cancelled":
                self._cancel((subject, session_id, (message.params or {}).get("requestId")))
            on_open = partial(self._register, (subject, session_id, message.id)) if message.method else None
            return server.response(message, challenge=challenge, on_open=on_open)
        opens = message.method == "initialize"
        needs_session = opens and not has_siblings(request) and _can_be_asked(message.params or {})
        if (needs_session or session_id is not None) and server.has_handshake(request.headers.get(_VERSION)):
            return _SessionResponse(await self._load_sdk(), raw, challenge)
        new_session = None
        if opens and not needs_session:
            new_session = make_session_id(subject, has_pages=_has_pages(message.params or {}))
        return server.response(message, challenge=challenge, new_session=new_session)

    def _register(self, call: "_Call", disconnect: Disconnect) -> Callable[[], None]:
        """Store the callbacks of an active call. Return the function that removes them."""
        self._open[call] = disconnect

        def forget() -> None:
            if self._open.get(call) is disconnect:
                del self._open[call]

        return forget

    def _cancel(self, call: "_Call") -> None:
        """Cancel the call with a key, if it is active."""
        if isinstance(call[2], str | int) and (disconnect := self._open.get(call)) is not None:
            disconnect.fire()

    async def get(self, request: AnyRequest) -> Response[Any]:
        return await self._in_session(request)

    async def delete(self, request: AnyRequest) -> Response[Any]:
        return await self._in_session(request)

    async def _in_session(self, request: AnyRequest) -> Response[Any]:
        """Serve a GET or DELETE request of a session that the SDK stores. Raises method_not_allowed for any other
        request, because only stored sessions have a stream of messages from the gateway."""
        session_id = request.headers.get(SESSION)
        if session_id is None or is_stateless(session_id):
            # SPEC/basic/transports, Listening for Messages from the Server
            raise FaultError(FaultCode.METHOD_NOT_ALLOWED, "Use POST.", allow=["POST"])
        return _SessionResponse(await self._load_sdk(), b"")

    async def _load(self) -> "DirectServer":
        """Return the server of requests without a stored session. Import its models first, in a thread, if that was not
        done."""
        if self._server is not None:
            return self._server
        async with self._loading:
            server = self._server
            if server is None:
                # Importing the models of MCP takes up to a second, during which other requests are served.
                direct = await asyncio.to_thread(import_module, "babelgate.adapters.mcp.server.direct")
                server = self._server = direct.DirectServer(self._hub, self._calls)
            return server

    async def _load_sdk(self) -> "Endpoint":
        """Return the SDK's part of the endpoint. Import the SDK first, in a thread, if that was not done."""
        if self._endpoint is not None:
            return self._endpoint
        async with self._loading:
            endpoint = self._endpoint
            if endpoint is None:
                sdk = await asyncio.to_thread(import_module, "babelgate.adapters.mcp.server.sdk")
                endpoint = self._endpoint = sdk.Endpoint(self._hub, self._calls)
            return endpoint


def _refuse(fault: Fault, code: int | None) -> Response[Any]:
    status, body, headers = encode_fault(fault, code)
    return json_response(body, headers, status=status)


def _check(value: Any) -> w.Envelope:
    """Return the parsed body as one JSON-RPC message. Raises invalid for any other value, such as a batch."""
    if not isinstance(value, dict):
        raise FaultError(FaultCode.INVALID, "The body must be one JSON-RPC message, an object.")
    message = validate(w.Envelope, cast("JsonObject", value))
    if message.method is not None and "id" in message.model_fields_set and message.id is None:
        raise FaultError(FaultCode.INVALID, "id: It must be a string or an integer.")
    if message.method is None and (message.id is None or (message.result is None) == (message.error is None)):
        raise FaultError(FaultCode.INVALID, "The message is not a JSON-RPC request, notification or response.")
    return message


def _trace(request: AnyRequest, method: str, message: Any) -> None:
    """Start the span of a method (semantic conventions, docs/gen-ai/mcp.md), if the request is traced.

    The caller's context is in `_meta` (SEP-414).
    """
    tracer = find_tracer(request)
    if tracer is None:
        return
    params: JsonObject = message.get("params") or {}
    attributes = {"mcp.method.name": method, "jsonrpc.request.id": str(message.get("id", ""))[:_ID_LENGTH]}
    session_id, version, tool = request.headers.get(SESSION), request.headers.get(_VERSION), params.get("name")
    attributes |= {"mcp.session.id": session_id} if session_id is not None else {}
    attributes |= {"mcp.protocol.version": version} if version is not None else {}
    name = method
    if method == "tools/call" and isinstance(tool, str):
        name = f"{method} {tool[:_ID_LENGTH]}"
        attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool[:_ID_LENGTH]}
    meta: Any = params.get("_meta")
    context = cast("JsonObject", meta) if isinstance(meta, dict) else {}
    tracer.start_operation(TracedOperation(name, attributes), context)


def _can_be_asked(params: Mapping[str, Any]) -> bool:
    """Return True if a client supports forms (SPEC/client/elicitation, Capabilities) or sampling. Many more clients
    support only roots; these get no session."""
    declared = _object(params.get("capabilities"))
    forms = declared.get("elicitation")
    return isinstance(declared.get("sampling"), dict) or (
        isinstance(forms, dict) and ("form" in forms or "url" not in forms)
    )


def _has_pages(params: Mapping[str, Any]) -> bool:
    """Return True if a client can open web pages for its user (SPEC/client/elicitation, Capabilities)."""
    return isinstance(_object(_object(params.get("capabilities")).get("elicitation")).get("url"), dict)


def _object(value: object) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, dict) else {}


class _SessionResponse(Response[bytes]):
    """Response that the SDK produces for a request of a stored session."""

    def __init__(self, endpoint: "Endpoint", raw: bytes, challenge: Challenge | None = None) -> None:
        """Create the response to a request with the body `raw`. `challenge` replaces it if the token needs more
        scopes."""
        super().__init__(b"")
        self._endpoint = endpoint
        self._raw = raw
        self._challenge = challenge

    def to_asgi_response(self, *_: Any, **__: Any) -> Any:
        return self._answer

    async def _answer(self, scope: Any, receive: Receive, send: Send) -> None:
        channels = _Channels(self._raw, receive, send, self._challenge)
        lines = combine_lines(scope["headers"])
        accept = lines.get(b"accept", b"").decode("latin-1")
        accepted = [each for each in (_JSON, _EVENTS) if is_accepted(accept, each)]
        # The SDK searches for the names of both media types, so weights, wildcards and repeated lines are resolved
        # here.
        if accepted:
            lines[b"accept"] = ", ".join(accepted).encode()
        state = {**scope["state"], DISCONNECT: channels.disconnect, CHALLENGE: channels.refuse}
        headers = list(lines.items())
        await self._endpoint.serve({**scope, "state": state, "headers": headers}, channels.receive, channels.send)


class _Channels:
    """ASGI channels for the SDK: replay a body that was already read, and watch for a disconnect of the caller.

    With a challenge, the start of the response is held back until its first bytes. The SDK starts a stream before it
    calls the method, and only the method detects missing scopes.
    """

    def __init__(self, raw: bytes, receive: Receive, send: Send, challenge: Challenge | None) -> None:
        self.disconnect = Disconnect()
        self._raw: bytes | None = raw
        self._receive = receive
        self._send = send
        self._challenge = challenge
        self._start: Message | None = None
        self._fault: Fault | None = None
        self._is_refused = False
        self._over = False

    async def receive(self) -> Message:
        """Return the body as the first message, and then the messages of the connection."""
        if self._raw is not None:
            raw, self._raw = self._raw, None
            return {"type": "http.request", "body": raw, "more_body": False}
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._disconnect()
        return message

    def _disconnect(self) -> None:
        if not self._over:
            self._over = True
            self.disconnect.fire()

    def refuse(self, fault: Fault) -> None:
        """Replace the response by a challenge with this fault, unless the response has begun or the caller cannot get
        more scopes."""
        self._fault = fault

    async def send(self, message: Message) -> None:
        """Send a message of the SDK to the caller."""
        if self._is_refused:
            return
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self._over = True
        if message["type"] == "http.response.start":
            if self._challenge is not None:
                self._start = message
                return
        elif self._start is not None:
            start, self._start = self._start, None
            if self._fault is not None and self._challenge is not None:
                self._is_refused = self._over = True
                for each in self._challenge.encode(self._fault):
                    await self._send(each)
                return
            await self._send(start)
        await self._send(message)
