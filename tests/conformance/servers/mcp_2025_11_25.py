"""Scripted MCP 2025-11-25 server over Streamable HTTP."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping
from itertools import count
from typing import Any, Final
from uuid import uuid4

from babelgate.conformance.trigger import Trigger
from tests.conformance.servers.kit import Answer, Request, Server, Violation, options, sse
from tests.conformance.servers.mcp_catalog import CATALOG, Catalog
from tests.conformance.servers.mcp_tools import SHARED, Refused

_VERSIONS: Final = ("2025-03-26", "2025-06-18", "2025-11-25")
_NEWEST: Final = _VERSIONS[-1]

VIOLATIONS: Final = (
    *SHARED,
    *CATALOG,
    # Initialization
    Violation("the newest version is always answered", "init.older-version"),
    Violation("an old version is answered", "init.version", ("init.older-version",), is_hidden=True),
    Violation("an unpublished version is answered", "init.version", ("init.older-version", "~*")),
    Violation("unknown versions are errors", "init.unknown-version"),
    Violation("tools are not declared", "init.tools"),
    Violation("notifications are answered with 200", "init.initialized", ("init.no-body", "cancel.*")),
    Violation("notifications have a body", "init.no-body"),
    Violation("ping is unknown", "init.ping", ("session.parallel", "~*")),
    # The transport
    Violation("responses are sent twice", "http.one-response", ("~progress.over",)),
    Violation("streams stay open", "http.stream-ends", ("http.one-response", "http.event-ids", "progress.*")),
    Violation("ids of events restart", "http.event-ids"),
    Violation("GET is JSON", "http.get", ("~subscribe.*",)),
    Violation("PUT is POST", "http.method"),
    Violation("the version's header is not read", "http.version"),
    Violation("the version's header is needed", "http.no-version"),
    Violation("unknown methods are internal errors", "rpc.method"),
    # Sessions
    Violation("session ids have spaces", "session.id"),
    Violation("session ids are numbers", "session.random"),
    Violation("there is one session at a time", "session.parallel", ("~*",)),
    Violation("requests need no session", "session.missing"),
    Violation("unknown sessions are bad requests", "session.unknown", ("session.ended", "safe.session")),
    Violation("DELETE is a server error", "session.delete", ("session.ended",)),
    Violation("ended sessions can be used", "session.ended"),
    # Tools
    Violation("schemas are invalid", "tools.schema"),
    Violation("the list reverses", "tools.stable", ("~tools.pages",)),
    Violation("each page is the first", "tools.pages", ("tools.unique", "progress.*", "cancel.*", "call.files", "~*")),
    # Calls
    Violation("results have no content", "call.content", ("call.structured-text",)),
    Violation("structured content is of another type", "call.structured", ("call.structured-text",)),
    Violation("structured content is not repeated as text", "call.structured-text"),
    Violation("concurrent calls are refused", "call.concurrent", ("~call.*", "~progress.*", "~safe.*")),
    # Cancelling
    Violation("cancelled calls are answered", "cancel.unanswered"),
    Violation("unknown requests cannot be cancelled", "cancel.nothing"),
    # Subscriptions
    Violation("subscriptions are refused", "subscribe.answer", ("subscribe.end", "~subscribe.*")),
    Violation("ends of subscriptions are refused", "subscribe.end"),
    Violation("changes are not announced", "subscribe.updated"),
    Violation("ended subscriptions continue", "subscribe.ended"),
    Violation("undeclared changes of lists are announced", "subscribe.list-changed"),
    # Security
    Violation("sessions are open to all callers", "safe.session"),
    # The form of messages
    Violation("servers have no version", "form.init"),
)


class Server2025(Catalog):
    other_tools = ("fail", "files", "steps", "long", "touch", "link")
    not_found = -32002

    def __init__(self, violation: str = "") -> None:
        super().__init__(violation)
        self.sessions: dict[str, str] = {}
        """Owner of each session."""
        self._numbers = count(1)
        self._events = count(1)
        self._working: dict[Any, asyncio.Event] = {}
        self._followed: defaultdict[str, set[str]] = defaultdict(set)
        """URIs of the resources that each session follows."""
        self._streams: defaultdict[str, list[asyncio.Queue[Any]]] = defaultdict(list)
        """Notifications for each open GET request of a session."""

    def structured(self, text: str) -> tuple[Any, Any]:
        return {"text": text}, {"text": 7}

    async def route(self, request: Request) -> Answer:
        match request.method:
            case "POST":
                return await self._post(request)
            case "PUT" if self.does("PUT is POST"):
                return Answer(200, {})
            case "GET":
                return Answer(body={}) if self.does("GET is JSON") else self._listen(request)
            case "DELETE":
                return self._delete(request)
            case _:
                return Answer(405)

    def _listen(self, request: Request) -> Answer:
        try:
            self._check_headers(request)
        except Refused as error:
            return Answer(error.status, self.error_response(None, error))
        id = request.headers.get("mcp-session-id", "")
        notifications = asyncio.Queue[Any]()
        self._streams[id].append(notifications)

        async def frames() -> AsyncGenerator[bytes]:
            try:
                while True:
                    yield sse(await notifications.get(), event="message", id=str(next(self._events)))
            finally:
                self._streams[id].remove(notifications)

        return Answer(stream=frames())

    def publish(self, uri: str) -> None:
        if self.does("changes are not announced"):
            return
        notifications = [{"method": "notifications/resources/updated", "params": {"uri": uri}}]
        if self.does("undeclared changes of lists are announced"):
            notifications.insert(0, {"method": "notifications/tools/list_changed"})
        for id, streams in self._streams.items():
            for stream in streams if uri in self._followed[id] else ():
                for each in notifications:
                    stream.put_nowait({"jsonrpc": "2.0", **each})

    def _follow(self, request: Request, method: str, uri: str) -> dict[str, Any]:
        followed = self._followed[request.headers.get("mcp-session-id", "")]
        if method == "resources/subscribe":
            self.raise_if("subscriptions are refused", Refused(-32603, "not followed"))
            followed.add(uri)
        else:
            if not self.does("ended subscriptions continue"):
                followed.discard(uri)
            self.raise_if("ends of subscriptions are refused", Refused(-32603, "not ended"))
        return {}

    async def _post(self, request: Request) -> Answer:
        try:
            return await self._answer(request, self._body(request))
        except Refused as error:
            return Answer(error.status, self.error_response(None, error))

    def _body(self, request: Request) -> dict[str, Any]:
        self.check_accept(request)
        return self.parse(request, {"jsonrpc": "2.0", "id": 1, "method": "ping"})

    async def _answer(self, request: Request, body: dict[str, Any]) -> Answer:
        method, id = body["method"], body.get("id")
        if method == "initialize":
            return self._initialize(request, body)
        self._check_headers(request)
        if method == "notifications/cancelled":
            self._cancel(body["params"]["requestId"])
        if id is None:
            if self.does("notifications are answered with 200"):
                return Answer(200, {"jsonrpc": "2.0", "id": None, "result": {}})
            return Answer(202, {} if self.does("notifications have a body") else None)
        return self.answer_stream(self._frames(self._messages(request, body)))

    def _cancel(self, id: Any) -> None:
        stopped = self._working.get(id)
        if stopped is not None:
            stopped.set()
        elif self.does("unknown requests cannot be cancelled"):
            raise Refused(-32602, "no such request")

    def _check_headers(self, request: Request) -> None:
        version = request.headers.get("mcp-protocol-version")
        self.raise_if("the version's header is needed", Refused(-32600, "a version is needed"), when=version is None)
        if version is not None and version not in _VERSIONS and not self.does("the version's header is not read"):
            raise Refused(-32600, "unsupported version")
        id = request.headers.get("mcp-session-id")
        if id is None:
            if self.does("requests need no session"):
                return
            raise Refused(-32600, "Missing session ID")
        is_mine = self.sessions.get(id) == request.caller
        if id not in self.sessions or not (is_mine or self.does("sessions are open to all callers")):
            raise Refused(-32600, "Session not found", 400 if self.does("unknown sessions are bad requests") else 404)

    def _delete(self, request: Request) -> Answer:
        if self.does("DELETE is a server error"):
            return Answer(500)
        id = request.headers.get("mcp-session-id", "")
        if not self.does("ended sessions can be used"):
            self.sessions.pop(id, None)
        return Answer(204)

    def _initialize(self, request: Request, body: Mapping[str, Any]) -> Answer:
        requested = body["params"]["protocolVersion"]
        if requested not in _VERSIONS and self.does("unknown versions are errors"):
            return Answer(body=self.error_response(body["id"], Refused(-32602, "unsupported version")))
        version = requested if requested in _VERSIONS else _NEWEST
        if self.does("the newest version is always answered"):
            version = _NEWEST
        if self.does("an old version is answered"):
            version = "2025-03-26"
        if self.does("an unpublished version is answered"):
            version = "2031-01-01"
        info = {"name": "tests", "version": "1"}
        self.drop_if("servers have no version", info, "version")
        result: dict[str, Any] = {"protocolVersion": version, "serverInfo": info}
        capabilities: dict[str, Any] = {"tools": {}, **self.catalog_capabilities()}
        self.drop_if("tools are not declared", capabilities, "tools")
        result["capabilities"] = capabilities
        id = str(next(self._numbers)) if self.does("session ids are numbers") else uuid4().hex
        if self.does("session ids have spaces"):
            id = f"{id[:8]} {id[8:]}"
        if self.does("there is one session at a time"):
            self.sessions.clear()
        self.sessions[id] = request.caller
        return Answer(body=self.response(body["id"], result), headers={"Mcp-Session-Id": id})

    # Messages

    async def _frames(self, messages: AsyncGenerator[Any]) -> AsyncGenerator[bytes]:
        numbers = count(1) if self.does("ids of events restart") else self._events
        # The first event has only an id, from which a client can resume the stream.
        yield f"id: {next(numbers)}\ndata:\n\n".encode()
        async for message in messages:
            yield sse(message, event="message", id=str(next(numbers)))

    async def _messages(self, request: Request, body: Mapping[str, Any]) -> AsyncGenerator[Any]:
        method, id = body["method"], body["id"]
        params: Mapping[str, Any] = body.get("params") or {}
        try:
            match method:
                case "ping" if not self.does("ping is unknown"):
                    response = self.response(id, {})
                case "tools/list":
                    response = self.response(id, self.list_tools(params))
                case "tools/call" if params.get("name") == "long":
                    stopped = self._working[id] = asyncio.Event()
                    await stopped.wait()
                    if not self.does("cancelled calls are answered"):
                        return
                    response = self.response(id, self.result("stopped"))
                case "tools/call":
                    for notification in self.progress_messages(params):
                        yield notification
                    response = self.response(id, await self.call_tool(request, params))
                case "resources/subscribe" | "resources/unsubscribe":
                    response = self.response(id, self._follow(request, method, params["uri"]))
                case _ if (result := self.answer_catalog(method, params)) is not None:
                    response = self.response(id, result)
                case _:
                    code = -32603 if self.does("unknown methods are internal errors") else -32601
                    raise Refused(code, "Method not found")
        except Refused as error:
            response = self.error_response(id, error)
        yield response
        if method == "tools/list" and self.does("responses are sent twice"):
            yield response
        if method == "tools/call" and params.get("name") == "steps" and self.does("progress follows the response"):
            yield self.progress_message(params, 9)


SERVER: Final = Server(
    set="mcp-2025-11-25",
    make=Server2025,
    violations=VIOLATIONS,
    path="/mcp",
    options=options(
        plain=Trigger("Hello", agent="echo"),
        fail=Trigger("x", agent="fail"),
        files=Trigger("x", agent="files"),
        steps=Trigger("x", agent="steps"),
        long=Trigger("x", agent="long"),
        change=Trigger("x", agent="touch"),
        links=Trigger("x", agent="link"),
    ),
    unbroken={
        "init.answer": "no other requirement can pass without it; the dead server covers it",
        "tools.list": "no other requirement on tools can pass without it; the dead server covers it",
        "call.answer": "no other requirement on calls can pass without it; the dead server covers it",
    },
)
