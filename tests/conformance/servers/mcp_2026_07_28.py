"""Scripted MCP 2026-07-28 server over Streamable HTTP, without sessions."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final, cast

from babelgate.conformance.trigger import Trigger
from tests.conformance.servers.kit import Answer, Request, Server, Violation, options, sse
from tests.conformance.servers.mcp_catalog import CATALOG, Catalog
from tests.conformance.servers.mcp_tools import SHARED, Refused

_VERSION: Final = "2026-07-28"
_PREFIX: Final = "io.modelcontextprotocol/"

VIOLATIONS: Final = (
    *SHARED,
    *CATALOG,
    # Discovery
    Violation("it supports an older version", "discover.version"),
    Violation("tools are not declared", "discover.tools"),
    # Metadata and headers of requests
    Violation("_meta is not needed", "meta.missing", ("~rpc.error-id",)),
    Violation("capabilities are not needed", "meta.capabilities"),
    Violation("clientInfo is required", "meta.client"),
    Violation("the version of _meta is not read", "meta.version"),
    Violation("every version is supported", "version.unsupported", ("version.data", "~rpc.error-id")),
    Violation("versions are refused without data", "version.data"),
    Violation("the method's header is not compared", "header.method"),
    Violation("the method's header is not needed", "header.no-method", ("~rpc.error-id",)),
    Violation("the name's header is not compared", "header.name"),
    Violation("the name's header is not needed", "header.no-name"),
    Violation("the URI's header is not read", "header.uri"),
    Violation("the prompt's header is not read", "header.prompt"),
    # The transport
    Violation("responses are sent twice", "http.one-response"),
    Violation("streams stay open", "http.stream-ends", ("http.one-response", "progress.*")),
    Violation("GET is a stream", "http.verbs"),
    Violation("unknown methods are internal errors", "rpc.method", ("rpc.removed", "listen.former")),
    Violation("unknown methods are 200", "rpc.method-status"),
    Violation("ping is answered", "rpc.removed"),
    Violation("errors have no id", "rpc.error-id"),
    # Results
    Violation("results have no type", "result.type", ("~question.answer",)),
    Violation("the list has no cache lifetime", "result.cache"),
    Violation("the server is not named", "result.server"),
    # Tools
    Violation("schemas are invalid", "tools.schema", ("~call.structured",)),
    Violation("the list reverses", "tools.stable", ("~*",)),
    Violation("each page is the first", "tools.pages", ("tools.unique", "~*")),
    # Calls
    Violation("results have no content", "call.content"),
    Violation("structured content is of another type", "call.structured"),
    Violation("concurrent calls are refused", "call.concurrent", ("~*",)),
    # Questions
    Violation("questions are answers", "question.result", ("question.*", "form.input"), is_hidden=True),
    Violation("questions are empty", "question.result", ("question.*", "~form.*")),
    Violation("questions are of the model", "question.form", ("~question.answer",)),
    Violation("forms hold forms", "question.form"),
    Violation("answers are not read", "question.answer"),
    Violation("missing answers are invented", "question.missing"),
    Violation("callers without forms get a form", "question.undeclared"),
    Violation("the state is not sealed", "question.changed", ("question.owner",)),
    Violation("the state is open to all callers", "question.owner"),
    # Resources and subscriptions
    Violation("resources have no cache lifetime", "resources.cache"),
    Violation("prompts have no cache lifetime", "prompts.cache"),
    Violation("another notification is first", "listen.acknowledged", ("listen.subset", "~listen.requested")),
    Violation("everything is acknowledged", "listen.subset"),
    Violation("acknowledgments name no subscription", "listen.id"),
    Violation("updates name no subscription", "listen.update-id"),
    Violation("changes are not announced", "listen.updated"),
    Violation("all changes are announced", "listen.requested"),
    Violation("former subscriptions are answered", "listen.former"),
    # The form of messages
    Violation("capabilities are a list", "form.discover", ("discover.tools", "~*.declared")),
    Violation("requests of input have no method", "form.input", ("question.form", "~question.*")),
)


class Server2026(Catalog):
    output_schema = {"type": "array", "items": {"type": "string"}}
    other_tools = ("fail", "files", "steps", "ask", "touch", "link")
    not_found = -32602

    def __init__(self, violation: str = "") -> None:
        super().__init__(violation)
        self._listeners: list[tuple[Any, list[str], asyncio.Queue[Any]]] = []
        """Id, URIs and notifications of each open request of `subscriptions/listen`."""

    def structured(self, text: str) -> tuple[Any, Any]:
        return [text], 7

    async def route(self, request: Request) -> Answer:
        if request.method != "POST":
            if request.method == "GET" and self.does("GET is a stream"):
                return Answer(200, "", {"content-type": "text/event-stream"})
            return Answer(405, headers={"Allow": "POST"})
        body: dict[str, Any] = {}
        try:
            body = self.parse(request, _SUBSTITUTE)
            self._check(request, body)
            return await self._answer(request, body)
        except Refused as error:
            id = None if self.does("errors have no id") else body.get("id")
            return Answer(error.status, self.error_response(id, error))

    def _check(self, request: Request, body: Mapping[str, Any]) -> None:
        """Check the headers and metadata of a request."""
        self.check_accept(request)
        params: Mapping[str, Any] = body.get("params") or {}
        version = request.headers.get("mcp-protocol-version")
        if version != _VERSION and not self.does("every version is supported"):
            data = {"supported": [_VERSION], "requested": version}
            error_data = None if self.does("versions are refused without data") else data
            raise Refused(-32022, "Unsupported protocol version", data=error_data)
        self._check_meta(params.get("_meta"), version)
        method = request.headers.get("mcp-method")
        is_left_out = method is None and self.does("the method's header is not needed")
        is_passed = method is not None and self.does("the method's header is not compared")
        if method != body["method"] and params.get("_meta") is not _ANY_META and not (is_left_out or is_passed):
            raise Refused(-32020, "Mcp-Method")
        self._check_name(request, body)

    def _check_meta(self, meta: Any, version: str | None) -> None:
        found = cast("dict[str, Any]", meta) if isinstance(meta, dict) else None
        if found is None:
            if self.does("_meta is not needed"):
                return
            raise Refused(-32602, "_meta is needed")
        if f"{_PREFIX}clientCapabilities" not in found and not self.does("capabilities are not needed"):
            raise Refused(-32602, "clientCapabilities are needed")
        if f"{_PREFIX}clientInfo" not in found and self.does("clientInfo is required"):
            raise Refused(-32602, "clientInfo is needed")
        is_same = found.get(f"{_PREFIX}protocolVersion") == version
        if not is_same and found is not _ANY_META and not self.does("the version of _meta is not read"):
            raise Refused(-32020, "MCP-Protocol-Version")

    def _check_name(self, request: Request, body: Mapping[str, Any]) -> None:
        header = request.headers.get("mcp-name")
        match body["method"]:
            case "tools/call":
                name = body["params"].get("name")
            case "resources/read" if not self.does("the URI's header is not read"):
                name = body["params"].get("uri")
            case "prompts/get" if not self.does("the prompt's header is not read"):
                name = body["params"].get("name")
            case _:
                return
        if header == name or not isinstance(name, str):
            return
        is_call = body["method"] == "tools/call"
        if header is None and is_call and self.does("the name's header is not needed"):
            return
        if header is not None and is_call and self.does("the name's header is not compared"):
            return
        raise Refused(-32020, "Mcp-Name")

    async def _answer(self, request: Request, body: Mapping[str, Any]) -> Answer:
        method, id = body["method"], body.get("id")
        params: Mapping[str, Any] = body.get("params") or {}
        match method:
            case "server/discover":
                result = self._discover()
            case "tools/list":
                result = self.list_tools(params)
            case "tools/call":
                result = await self.call_tool(request, params)
            case "ping" if self.does("ping is answered"):
                result = {}
            case "subscriptions/listen":
                return self.answer_stream(self._listen(id, params["notifications"]))
            case "resources/subscribe" | "resources/unsubscribe" if self.does("former subscriptions are answered"):
                result = {}
            case _ if (found := self.answer_catalog(method, params)) is not None:
                result = {**found, **self._cache(method)}
            case _:
                code = -32603 if self.does("unknown methods are internal errors") else -32601
                raise Refused(code, "Method not found", 200 if self.does("unknown methods are 200") else 404)
        return self.answer_stream(self._frames(params, method, self.response(id, result)))

    def _discover(self) -> dict[str, Any]:
        versions = ["2025-11-25" if self.does("it supports an older version") else _VERSION]
        capabilities: Any = {"tools": {}, **self.catalog_capabilities()}
        self.drop_if("tools are not declared", capabilities, "tools")
        if self.does("capabilities are a list"):
            capabilities = ["tools"]
        return {"supportedVersions": versions, "capabilities": capabilities, "ttlMs": 0, "cacheScope": "private"}

    def _cache(self, method: str) -> dict[str, Any]:
        name = method.partition("/")[0]
        if method == "prompts/get" or name == "completion" or self.does(f"{name} have no cache lifetime"):
            return {}
        return {"ttlMs": 0, "cacheScope": "private"}

    # Subscriptions

    async def _listen(self, id: Any, filter: Mapping[str, Any]) -> AsyncGenerator[bytes]:
        notifications = asyncio.Queue[Any]()
        listener = (id, list(filter.get("resourceSubscriptions", [])), notifications)
        self._listeners.append(listener)
        try:
            accepted = (
                dict(filter) if self.does("everything is acknowledged") else {"resourceSubscriptions": listener[1]}
            )
            first = self._notification(id, "subscriptions/acknowledged", notifications=accepted)
            self.drop_if("acknowledgments name no subscription", first["params"], "_meta")
            if self.does("another notification is first"):
                yield sse(self._notification(id, "message", level="info", data="Hello"), event="message")
            yield sse(first, event="message")
            while True:
                yield sse(await notifications.get(), event="message")
        finally:
            self._listeners.remove(listener)

    def publish(self, uri: str) -> None:
        if self.does("changes are not announced"):
            return
        for id, uris, notifications in self._listeners:
            if uri in uris or self.does("all changes are announced"):
                update = self._notification(id, "resources/updated", uri=uri)
                self.drop_if("updates name no subscription", update["params"], "_meta")
                notifications.put_nowait(update)

    def _notification(self, id: Any, name: str, **params: Any) -> dict[str, Any]:
        meta = {f"{_PREFIX}subscriptionId": id}
        return {"jsonrpc": "2.0", "method": f"notifications/{name}", "params": {"_meta": meta, **params}}

    # Messages

    def response(self, id: Any, result: Mapping[str, Any]) -> dict[str, Any]:
        content: dict[str, Any] = {"resultType": "complete", **result}
        self.drop_if("results have no type", content, "resultType", when=content["resultType"] == "complete")
        if not self.does("the server is not named"):
            content["_meta"] = {f"{_PREFIX}serverInfo": {"name": "tests", "version": "1"}}
        return super().response(id, content)

    async def _frames(self, params: Mapping[str, Any], method: str, response: dict[str, Any]) -> AsyncGenerator[bytes]:
        for each in self.progress_messages(params):
            yield sse(each, event="message")
        yield sse(response, event="message")
        if method == "tools/list" and self.does("responses are sent twice"):
            yield sse(response, event="message")
        if params.get("name") == "steps" and self.does("progress follows the response"):
            yield sse(self.progress_message(params, 9), event="message")

    # Tools

    def list_tools(self, params: Mapping[str, Any]) -> dict[str, Any]:
        cache = {} if self.does("the list has no cache lifetime") else {"ttlMs": 0, "cacheScope": "private"}
        return {**super().list_tools(params), **cache}

    async def run(self, request: Request, params: Mapping[str, Any], name: str, text: str) -> dict[str, Any]:
        return self._ask(request, params) if name == "ask" else await super().run(request, params, name, text)

    # Questions

    def _ask(self, request: Request, params: Mapping[str, Any]) -> dict[str, Any]:
        meta: Mapping[str, Any] = params["_meta"]
        seal = f"sealed for {request.caller}"
        state, responses = params.get("requestState"), params.get("inputResponses")
        if self.does("questions are answers"):
            return self.result("What is your name?")
        if state is not None and state != seal and not self.does("the state is not sealed"):
            is_mine = isinstance(state, str) and state.startswith("sealed for ") and "-caller" in state
            if not (is_mine and self.does("the state is open to all callers")):
                raise Refused(-32602, "requestState")
        if responses and not self.does("answers are not read"):
            return self.result("Hello")
        if responses is not None and not responses and self.does("missing answers are invented"):
            return self.result("Hello")
        takes_forms = "elicitation" in meta[f"{_PREFIX}clientCapabilities"]
        if not takes_forms and not self.does("callers without forms get a form"):
            raise Refused(-32021, "elicitation", data={"requiredCapabilities": {"elicitation": {}}})
        field: Any = {"type": "object", "properties": {}} if self.does("forms hold forms") else {"type": "string"}
        schema = {"type": "object", "properties": {"name": field}}
        question: dict[str, Any] = {
            "method": "elicitation/create",
            "params": {"mode": "form", "message": "What is your name?", "requestedSchema": schema},
        }
        if self.does("questions are of the model"):
            question = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}
        self.drop_if("requests of input have no method", question, "method")
        if self.does("questions are empty"):
            return {"resultType": "input_required"}
        return {"resultType": "input_required", "inputRequests": {"q": question}, "requestState": seal}


_ANY_META: Final[dict[str, Any]] = {f"{_PREFIX}clientCapabilities": {}}
"""Metadata of the substitute request, which passes every check."""
_SUBSTITUTE: Final = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": _ANY_META}}

SERVER: Final = Server(
    set="mcp-2026-07-28",
    make=Server2026,
    violations=VIOLATIONS,
    path="/mcp",
    options=options(
        plain=Trigger("Hello", agent="echo"),
        fail=Trigger("x", agent="fail"),
        files=Trigger("x", agent="files"),
        steps=Trigger("x", agent="steps"),
        question=Trigger("x", agent="ask", answer="Ada"),
        change=Trigger("x", agent="touch"),
        links=Trigger("x", agent="link"),
    ),
    unbroken={
        "discover.answer": "no other requirement can pass without it; the dead server covers it",
        "tools.list": "no other requirement on tools can pass without it; the dead server covers it",
        "call.answer": "no other requirement on calls can pass without it; the dead server covers it",
    },
)
