"""Client for a judged MCP server: one with a URL, which has a session for each client that has sent `initialize`, or a
command, whose process is the session."""

import itertools
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from babelgate.conformance.probe import Context, NotSpoken, Opened, ProbeOptions
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import Exchange, as_object, dig
from babelgate.conformance.wire.http import EventSource, Wire
from babelgate.conformance.wire.links import PROCESS
from babelgate.conformance.wire.process import ProcessPeer

VERSION: Final = "2025-11-25"
HELLO: Final[Mapping[str, Any]] = {
    "protocolVersion": VERSION,
    "capabilities": {},
    "clientInfo": {"name": "babelgate-check", "version": "1"},
}
_ACCEPT: Final = "application/json, text/event-stream"
CATALOG_RESULTS: Final[Mapping[str, str]] = {
    "completion/complete": "CompleteResult",
    "prompts/get": "GetPromptResult",
    "prompts/list": "ListPromptsResult",
    "resources/list": "ListResourcesResult",
    "resources/read": "ReadResourceResult",
    "resources/templates/list": "ListResourceTemplatesResult",
}
"""Schemas of the results of all methods for resources, prompts and completion, which both versions have."""
_RESULTS: Final[Mapping[str, str]] = {
    "initialize": "InitializeResult",
    "ping": "EmptyResult",
    "resources/subscribe": "EmptyResult",
    "resources/unsubscribe": "EmptyResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
    **CATALOG_RESULTS,
}
_CATALOG: Final = ("completions", "prompts", "resources")
"""Optional capabilities of a server that requirements depend on."""


@dataclass(frozen=True, slots=True)
class McpReply:
    """Messages in the response to one request: notifications, and the JSON-RPC response if there is one. `id` is the id
    of the request."""

    exchange: Exchange
    messages: Sequence[Any]
    id: Any

    @property
    def response(self) -> Any:
        return next((each for each in self.messages if _is_response(each)), None)

    @property
    def result(self) -> Any:
        return dig(self.response, "result")

    @property
    def error(self) -> Any:
        return dig(self.response, "error")

    @property
    def code(self) -> Any:
        return dig(self.response, "error", "code")

    @property
    def is_refused(self) -> bool:
        """True if the response is an error, by HTTP with the status 400."""
        return self.error is not None and (self.exchange.status == 400 or self.exchange.url.startswith(PROCESS))

    def notifications(self, method: str) -> list[Any]:
        return [each for each in self.messages if dig(each, "method") == method]


class McpSession:
    IDLE: ClassVar = "ping"
    """Method that every server of the protocol version answers and that has no effect."""
    RECEIVES: ClassVar[Mapping[int, str]] = {200: "JsonRpcMessage"}
    MARK: ClassVar[str | None] = ""
    """Data of events that contain no message: the first event of a stream may only have an id (SPEC/basic/transports,
    Sending Messages to the Server). None if there are no such events."""

    def __init__(
        self,
        wire: Wire,
        url: str,
        id: str | None,
        version: str,
        ids: "itertools.count[int]",
        process: ProcessPeer | None = None,
    ) -> None:
        self.wire = wire
        self.process = process
        """Process that is called over stdio; None for a server with a URL."""
        self.url = url
        self.id = id
        """Id of the session; None if the server has assigned none."""
        self.version = version
        self.ids = ids

    @property
    def headers(self) -> dict[str, str]:
        headers = {"Accept": _ACCEPT, "MCP-Protocol-Version": self.version}
        return headers if self.id is None else {**headers, "Mcp-Session-Id": self.id}

    async def ask(self, method: str, params: Any = None, *, is_valid: bool = True, **options: Any) -> McpReply:
        """Send a request and return the messages up to its response. With `is_valid=False`, the request is
        intentionally invalid, and is not validated. Raises Unanswered if no complete response arrives in time."""
        body = request(options.pop("id", None) or next(self.ids), method, params)
        return await self.post(body, schema=f"{method}.request".replace("/", ".") if is_valid else None, **options)

    async def notify(self, method: str, params: Any = None) -> Exchange:
        body = {"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})}
        return (await self.post(body, schema="notification.request")).exchange

    async def post(self, body: Any, *, schema: str | None = None, reads_all: bool = False, **options: Any) -> McpReply:
        async with self.posted(body, schema=schema, **options) as stream:
            exchange = stream.exchange
            while (frame := await stream.next()) is not None:
                if not reads_all and _is_response(frame.json_or_none):
                    break
        if reads_all and self.process is not None:
            await self.ask(self.IDLE)  # Its response comes after everything that the process has written before.
        reply = McpReply(exchange, messages_of(exchange), dig(body, "id"))
        name = self.schema_of(str(dig(body, "method")), reply.result)
        if name is not None and schema is not None and reply.result is not None:
            self.wire.hold(exchange, name, reply.result)
        return reply

    def schema_of(self, method: str, result: Any) -> str | None:
        """Return the name of the schema for the result of a method, or None if there is no schema for it."""
        return _RESULTS.get(method)

    @asynccontextmanager
    async def posted(
        self,
        body: Any,
        *,
        schema: str | None,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        is_anonymous: bool = False,
    ) -> AsyncGenerator[EventSource]:
        if self.process is not None:
            yield await self.process.post(body, sends=schema)
            return
        request_headers = {**self.headers, "Content-Type": "application/json", **(headers or {})}
        async with self.wire.stream(
            "POST",
            self.url,
            sends=schema,
            receives=self.RECEIVES,
            events="JsonRpcMessage",
            mark=self.MARK,
            body=body,
            content=content,
            headers={name: value for name, value in request_headers.items() if value},
            is_anonymous=is_anonymous,
        ) as stream:
            yield stream

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[EventSource]:
        """Open the stream of the notifications that belong to no request. Raises Failed if the server offers none."""
        if self.process is not None:
            yield self.process.listen()
            return
        headers = {**self.headers, "Accept": "text/event-stream"}
        async with self.wire.stream(
            "GET", self.url, sends=None, receives=None, events="JsonRpcMessage", headers=headers, mark=self.MARK
        ) as stream:
            exchange = stream.exchange
            check(exchange.is_stream, "a stream for notifications", [exchange.status, exchange.media_type], exchange)
            yield stream

    async def fresh(self, version: str) -> "McpSession":
        """Return a session that has not sent `initialize`. Over stdio it has a new process. Raises Unanswered."""
        process = None if self.process is None else await self.process.restart()
        return McpSession(self.wire, self.url, None, version, self.ids, process)

    def check_accepted(self, exchange: Exchange) -> None:
        """Check that the server accepts a notification: by HTTP with the status 202. Raises Failed."""
        if self.process is None:
            check(exchange.status == 202, "the status 202", exchange.status, exchange)


class McpTarget(McpSession):
    """Judged MCP server, with the session that most probes use. `hello` is its reply to `initialize`."""

    def __init__(
        self, wire: Wire, url: str, hello: McpReply, ids: "itertools.count[int]", process: ProcessPeer | None = None
    ) -> None:
        version = dig(hello.result, "protocolVersion")
        session_id = hello.exchange.header("mcp-session-id")
        super().__init__(wire, url, session_id, version if isinstance(version, str) else VERSION, ids, process)
        self.hello = hello

    def has_capability(self, *path: str) -> bool:
        """Return True if the server declares a capability: an object, or a member of one that is true."""
        value = dig(self.hello.result, "capabilities", *path)
        return value is True or as_object(value) is not None

    async def enter(
        self, capabilities: Mapping[str, Any] | None = None, **options: Any
    ) -> "tuple[McpTarget, McpReply]":
        """Open another session by `initialize`, and return it with the reply. `capabilities` are those of the client.
        Raises Failed if there is no result."""
        fresh = await self.fresh(VERSION)
        params = {**HELLO, "capabilities": dict(capabilities or {})}
        hello = await fresh.ask("initialize", params, headers={"MCP-Protocol-Version": ""}, **options)
        session = McpTarget(self.wire, self.url, hello, self.ids, fresh.process)
        check(hello.result is not None, "initialize is answered with a result", hello.response, hello.exchange)
        await session.notify("notifications/initialized")
        return session, hello


Ctx = Context[McpTarget]


async def open_server(wire: Wire, url: str, options: ProbeOptions, is_requested: bool) -> Opened[McpTarget]:
    """Find an MCP server at its endpoint by `initialize`, as `ProbeSuite.open` requires. If `is_requested`, the user
    named the protocol, so the server is judged even if it does not seem to speak it. Otherwise raises NotSpoken."""
    ids = itertools.count(1)
    process = await start_process(wire, url)
    fresh = McpSession(wire, url, None, VERSION, ids, process)
    hello = await fresh.ask("initialize", dict(HELLO), headers={"MCP-Protocol-Version": ""})
    if not is_requested and not isinstance(dig(hello.result, "protocolVersion"), str):
        raise NotSpoken(f"initialize is not answered with a protocolVersion ({hello.exchange})")
    server = McpTarget(wire, url, hello, ids, process)
    if hello.result is not None:
        await server.notify("notifications/initialized")
    capabilities = capabilities_of(server, options)
    if server.id is not None:
        capabilities.add("session")
    because = f"{hello.exchange} answers initialize with the protocolVersion {server.version}"
    return Opened(server, url, because, frozenset(capabilities))


def capabilities_of(server: McpTarget, options: ProbeOptions) -> set[str]:
    """Return the capabilities on which requirements of both versions depend."""
    capabilities = {name for name in _CATALOG if server.has_capability(name)}
    if server.process is not None:
        return capabilities | {"process"}
    return capabilities | {"http"} | ({"second-caller"} if options.other_headers else set[str]())


async def start_process(wire: Wire, url: str) -> ProcessPeer | None:
    """Start the command of a `stdio:` address. Return None for a URL. Raises Unanswered if the command cannot be
    executed."""
    return await ProcessPeer.start(wire, url, "JsonRpcMessage") if url.startswith(PROCESS) else None


def request(id: Any, method: str, params: Any = None) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": id, "method": method}
    return body if params is None else {**body, "params": params}


def messages_of(exchange: Exchange) -> list[Any]:
    if exchange.is_stream:
        return [frame.json_or_none for frame in exchange.frames if frame.data]
    return [exchange.json] if exchange.content else []


def _is_response(message: Any) -> bool:
    found = as_object(message) or {}
    return "result" in found or "error" in found
