"""A scripted server of MCP 2026-07-28: tools by streamable HTTP, and no sessions."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final, cast

from babelgate.conformance.trigger import Trigger
from tests.conformance.servers.kit import Answer, Request, Server, Violation, options, sse
from tests.conformance.servers.mcp_tools import OPEN, SHARED, Refused, Tools

_VERSION: Final = "2026-07-28"
_OF_MCP: Final = "io.modelcontextprotocol/"

VIOLATIONS: Final = (
    *SHARED,
    # What a server says of itself
    Violation("it supports an older version", "discover.version"),
    Violation("tools are not declared", "discover.tools"),
    # What a request says of itself
    Violation("_meta is not needed", "meta.missing", ("~rpc.error-id",)),
    Violation("capabilities are not needed", "meta.capabilities"),
    Violation("clients name themselves", "meta.client"),
    Violation("the version of _meta is not read", "meta.version"),
    Violation("every version is supported", "version.unsupported", ("version.data", "~rpc.error-id")),
    Violation("versions are refused without data", "version.data"),
    Violation("the method's header is not compared", "header.method"),
    Violation("the method's header is not needed", "header.no-method", ("~rpc.error-id",)),
    Violation("the name's header is not compared", "header.name"),
    Violation("the name's header is not needed", "header.no-name"),
    # The transport
    Violation("responses are sent twice", "http.one-response"),
    Violation("streams stay open", "http.stream-ends", ("http.one-response", "progress.*")),
    Violation("GET is a stream", "http.verbs"),
    Violation("unknown methods are internal errors", "rpc.method", ("rpc.removed",)),
    Violation("unknown methods are 200", "rpc.method-status"),
    Violation("ping is answered", "rpc.removed"),
    Violation("errors have no id", "rpc.error-id"),
    # Results
    Violation("results have no type", "result.type", ("~question.answer",)),
    Violation("the list cannot be kept", "result.cache"),
    Violation("the server is not named", "result.server"),
    # Tools
    Violation("schemas are none", "tools.schema", ("~call.structured",)),
    Violation("the list turns round", "tools.stable", ("~*",)),
    Violation("each page is the first", "tools.pages", ("tools.unique", "~*")),
    # Calls
    Violation("results have no content", "call.content"),
    Violation("structured content is of another type", "call.structured"),
    Violation("calls at once are refused", "call.concurrent", ("~*",)),
    # Questions
    Violation("questions are answers", "question.result", ("question.*", "form.input"), is_hidden=True),
    Violation("questions ask nothing", "question.result", ("question.*", "~form.*")),
    Violation("questions are of the model", "question.form", ("~question.answer",)),
    Violation("forms hold forms", "question.form"),
    Violation("answers are not read", "question.answer"),
    Violation("answers that are missing are made up", "question.missing"),
    Violation("everybody is asked by forms", "question.undeclared"),
    Violation("the state is not sealed", "question.changed", ("question.owner",)),
    Violation("the state is everybody's", "question.owner"),
    # The form of messages
    Violation("capabilities are a list", "form.discover", ("discover.tools",)),
    Violation("requests of input have no method", "form.input", ("question.form", "~question.*")),
)


class Server2026(Tools):
    output = {"type": "array", "items": {"type": "string"}}
    others = ("fail", "files", "steps", "ask")

    def structured(self, text: str) -> tuple[Any, Any]:
        return [text], 7

    async def handle(self, request: Request) -> Answer:
        if request.headers.get("origin") and not self.does("every origin is welcome"):
            return Answer(403, "Invalid Origin")
        if request.method != "POST":
            if request.method == "GET" and self.does("GET is a stream"):
                return Answer(200, "", {"content-type": "text/event-stream"})
            return Answer(405, headers={"Allow": "POST"})
        body: dict[str, Any] = {}
        try:
            body = self.parsed(request, _MADE_UP)
            self._check(request, body)
            return await self._answered(request, body)
        except Refused as error:
            id = None if self.does("errors have no id") else body.get("id")
            return Answer(error.status, self.failed(id, error))

    def _check(self, request: Request, body: Mapping[str, Any]) -> None:
        """What goes with the request."""
        accepts = request.headers.get("accept", "")
        if "event-stream" not in accepts and not self.does("Accept is not read"):
            raise Refused(-32600, "Not Acceptable", 406)
        params: Mapping[str, Any] = body.get("params") or {}
        version = request.headers.get("mcp-protocol-version")
        if version != _VERSION and not self.does("every version is supported"):
            data = {"supported": [_VERSION], "requested": version}
            told = None if self.does("versions are refused without data") else data
            raise Refused(-32022, "Unsupported protocol version", data=told)
        self._check_meta(params.get("_meta"), version)
        method = request.headers.get("mcp-method")
        is_left_out = method is None and self.does("the method's header is not needed")
        is_passed = method is not None and self.does("the method's header is not compared")
        if method != body["method"] and params.get("_meta") is not _ANY and not (is_left_out or is_passed):
            raise Refused(-32020, "Mcp-Method")
        self._check_name(request, body)

    def _check_meta(self, meta: Any, version: str | None) -> None:
        found = cast("dict[str, Any]", meta) if isinstance(meta, dict) else None
        if found is None:
            if self.does("_meta is not needed"):
                return
            raise Refused(-32602, "_meta is needed")
        if f"{_OF_MCP}clientCapabilities" not in found and not self.does("capabilities are not needed"):
            raise Refused(-32602, "clientCapabilities are needed")
        if f"{_OF_MCP}clientInfo" not in found and self.does("clients name themselves"):
            raise Refused(-32602, "clientInfo is needed")
        is_same = found.get(f"{_OF_MCP}protocolVersion") == version
        if not is_same and found is not _ANY and not self.does("the version of _meta is not read"):
            raise Refused(-32020, "MCP-Protocol-Version")

    def _check_name(self, request: Request, body: Mapping[str, Any]) -> None:
        if body["method"] != "tools/call":
            return
        given = request.headers.get("mcp-name")
        name = body["params"].get("name")
        if given == name or not isinstance(name, str):
            return
        if given is None and self.does("the name's header is not needed"):
            return
        if given is not None and self.does("the name's header is not compared"):
            return
        raise Refused(-32020, "Mcp-Name")

    async def _answered(self, request: Request, body: Mapping[str, Any]) -> Answer:
        method, id = body["method"], body.get("id")
        params: Mapping[str, Any] = body.get("params") or {}
        match method:
            case "server/discover":
                result = self._discovered()
            case "tools/list":
                result = self.listed(params)
            case "tools/call":
                result = await self.called(request, params)
            case "ping" if self.does("ping is answered"):
                result = {}
            case _:
                code = -32603 if self.does("unknown methods are internal errors") else -32601
                raise Refused(code, "Method not found", 200 if self.does("unknown methods are 200") else 404)
        return self._sent(params, method, self.done(id, result))

    def _discovered(self) -> dict[str, Any]:
        versions = ["2025-11-25" if self.does("it supports an older version") else _VERSION]
        capabilities: Any = {} if self.does("tools are not declared") else {"tools": {}}
        if self.does("capabilities are a list"):
            capabilities = ["tools"]
        return {"supportedVersions": versions, "capabilities": capabilities, "ttlMs": 0, "cacheScope": "private"}

    # Messages

    def done(self, id: Any, result: Mapping[str, Any]) -> dict[str, Any]:
        told: dict[str, Any] = {"resultType": "complete", **result}
        self.drop_if("results have no type", told, "resultType", when=told["resultType"] == "complete")
        if not self.does("the server is not named"):
            told["_meta"] = {f"{_OF_MCP}serverInfo": {"name": "tests", "version": "1"}}
        return super().done(id, told)

    def _sent(self, params: Mapping[str, Any], method: str, response: dict[str, Any]) -> Answer:
        kind = "text/plain" if self.does("answers are text") else "text/event-stream"

        async def stream() -> AsyncGenerator[bytes]:
            for each in self.progress(params):
                yield sse(each, event="message")
            yield sse(response, event="message")
            if method == "tools/list" and self.does("responses are sent twice"):
                yield sse(response, event="message")
            if params.get("name") == "steps" and self.does("progress follows the response"):
                yield sse(self.notified(params, 9), event="message")
            if self.does("streams stay open"):
                await asyncio.sleep(OPEN)

        return Answer(headers={"content-type": kind}, stream=stream())

    # Tools

    def listed(self, params: Mapping[str, Any]) -> dict[str, Any]:
        kept = {} if self.does("the list cannot be kept") else {"ttlMs": 0, "cacheScope": "private"}
        return {**super().listed(params), **kept}

    async def run(self, request: Request, params: Mapping[str, Any], name: str, text: str) -> dict[str, Any]:
        return self._asked(request, params) if name == "ask" else await super().run(request, params, name, text)

    # Questions

    def _asked(self, request: Request, params: Mapping[str, Any]) -> dict[str, Any]:
        meta: Mapping[str, Any] = params["_meta"]
        seal = f"sealed for {request.headers.get('x-api-key', '')}"
        state, responses = params.get("requestState"), params.get("inputResponses")
        if self.does("questions are answers"):
            return self.result("What is your name?")
        if state is not None and state != seal and not self.does("the state is not sealed"):
            is_mine = isinstance(state, str) and state.startswith("sealed for ") and "-caller" in state
            if not (is_mine and self.does("the state is everybody's")):
                raise Refused(-32602, "requestState")
        if responses and not self.does("answers are not read"):
            return self.result("Hello")
        if responses is not None and not responses and self.does("answers that are missing are made up"):
            return self.result("Hello")
        takes_forms = "elicitation" in meta[f"{_OF_MCP}clientCapabilities"]
        if not takes_forms and not self.does("everybody is asked by forms"):
            raise Refused(-32021, "elicitation", data={"requiredCapabilities": {"elicitation": {}}})
        field: Any = {"type": "object", "properties": {}} if self.does("forms hold forms") else {"type": "string"}
        schema = {"type": "object", "properties": {"name": field}}
        asked: dict[str, Any] = {
            "method": "elicitation/create",
            "params": {"mode": "form", "message": "What is your name?", "requestedSchema": schema},
        }
        if self.does("questions are of the model"):
            asked = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}
        self.drop_if("requests of input have no method", asked, "method")
        if self.does("questions ask nothing"):
            return {"resultType": "input_required"}
        return {"resultType": "input_required", "inputRequests": {"q": asked}, "requestState": seal}


_ANY: Final[dict[str, Any]] = {f"{_OF_MCP}clientCapabilities": {}}
"""Of a request that was made up."""
_MADE_UP: Final = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": _ANY}}

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
    ),
    unbroken={
        "discover.answer": "a server that fails it lets nobody in: the dead server shows that",
        "tools.list": "a server that fails it keeps nothing of its tools: the dead server shows that",
        "call.answer": "a server that fails it keeps nothing of its calls: the dead server shows that",
    },
)
