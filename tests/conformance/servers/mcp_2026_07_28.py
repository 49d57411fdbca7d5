"""A scripted server of MCP 2026-07-28: tools by streamable HTTP, and no sessions."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final, cast

from babelgate.conformance.probe import Options
from babelgate.conformance.trigger import Trigger, Triggers
from tests.conformance.servers.kit import Answer, Request, ScriptedServer, Server, Violation, sse

_VERSION: Final = "2026-07-28"
_OF_MCP: Final = "io.modelcontextprotocol/"
_OPEN: Final = 8.0
"""Seconds that a stream stays open which should not."""
_TRACE: Final = 'Traceback (most recent call last):\n  File "/srv/app.py", line 1'

VIOLATIONS: Final = (
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
    Violation("answers are text", "http.media-type", ("~*",)),
    Violation("ids are text", "http.same-id", ("call.concurrent",)),
    Violation("responses are sent twice", "http.one-response"),
    Violation("streams stay open", "http.stream-ends", ("http.one-response", "progress.*")),
    Violation("every origin is welcome", "http.origin"),
    Violation("Accept is not read", "http.accept"),
    Violation("GET is a stream", "http.verbs"),
    Violation("broken JSON is a 500", "rpc.parse"),
    Violation("broken JSON is an invalid request", "rpc.parse-code"),
    Violation("batches are answered", "rpc.batch"),
    Violation("unknown methods are internal errors", "rpc.method", ("rpc.removed",)),
    Violation("unknown methods are 200", "rpc.method-status"),
    Violation("ping is answered", "rpc.removed"),
    Violation("errors have no id", "rpc.error-id"),
    Violation("anything is a request", "rpc.invalid"),
    # Results
    Violation("results have no type", "result.type", ("~question.answer",)),
    Violation("the list cannot be kept", "result.cache"),
    Violation("the server is not named", "result.server"),
    # Tools
    Violation("tools are listed twice", "tools.unique"),
    Violation("names have spaces", "tools.names"),
    Violation("schemas are none", "tools.schema", ("~call.structured",)),
    Violation("the list turns round", "tools.stable", ("~*",)),
    Violation("each page is the first", "tools.pages", ("tools.unique", "~*")),
    Violation("unknown cursors are the first", "tools.cursor"),
    # Calls
    Violation("results have no content", "call.content"),
    Violation("results are errors", "call.success", ("call.concurrent",)),
    Violation("structured content is of another type", "call.structured"),
    Violation("calls at once are refused", "call.concurrent", ("~*",)),
    Violation("unknown tools do nothing", "call.unknown", ("call.unknown-code",)),
    Violation("unknown tools are results", "call.unknown-code"),
    Violation("calls need no name", "call.no-name", ("~safe.errors",)),
    Violation("arguments are not checked", "call.checked", ("call.arguments",)),
    Violation("wrong arguments are protocol errors", "call.arguments"),
    Violation("failures are no errors", "call.failure"),
    Violation("failures say nothing", "call.failure-text"),
    # Questions
    Violation("questions are answers", "question.result", ("question.*", "form.input")),
    Violation("questions are of the model", "question.form", ("~question.answer",)),
    Violation("forms hold forms", "question.form"),
    Violation("answers are not read", "question.answer"),
    Violation("answers that are missing are made up", "question.missing"),
    Violation("everybody is asked by forms", "question.undeclared"),
    Violation("the state is not sealed", "question.changed", ("question.owner",)),
    Violation("the state is everybody's", "question.owner"),
    # Progress
    Violation("progress has a token of its own", "progress.token"),
    Violation("progress goes back", "progress.grows"),
    Violation("progress follows the response", "progress.over", ("progress.asked",)),
    Violation("progress is told to all", "progress.asked"),
    # What must not be shown
    Violation("errors show a stack trace", "safe.errors"),
    Violation("failures show a stack trace", "safe.failure"),
    Violation("deep JSON is a server error", "safe.deep"),
    # The form of messages
    Violation("messages name no version", "form.rpc"),
    Violation("errors are text", "form.error", ("~*",)),
    Violation("capabilities are a list", "form.discover", ("discover.tools",)),
    Violation("the last page has a null cursor", "form.tools"),
    Violation("titles are numbers", "form.tool"),
    Violation("schemas have no type", "form.schema"),
    Violation("isError is text", "form.result"),
    Violation("content is plain", "form.content", ("call.failure-text", "call.arguments")),
    Violation("requests of input have no method", "form.input", ("question.form", "~question.*")),
)


class _Error(Exception):
    def __init__(self, code: int, words: str, status: int = 400, data: Any = None) -> None:
        super().__init__(words)
        self.code = code
        self.status = status
        self.data = data


class Tools(ScriptedServer):
    def __init__(self, violation: str = "") -> None:
        super().__init__(violation)
        self._busy = 0
        self._lists = 0

    async def handle(self, request: Request) -> Answer:
        if request.headers.get("origin") and not self.does("every origin is welcome"):
            return Answer(403, "Invalid Origin")
        if request.method != "POST":
            if request.method == "GET" and self.does("GET is a stream"):
                return Answer(200, "", {"content-type": "text/event-stream"})
            return Answer(405, headers={"Allow": "POST"})
        body: dict[str, Any] = {}
        try:
            body = self._body(request)
            self._check(request, body)
            return await self._answered(request, body)
        except _Error as error:
            id = None if self.does("errors have no id") else body.get("id")
            return Answer(error.status, self._failed(id, error))

    def _body(self, request: Request) -> dict[str, Any]:
        if request.body.count(b"[") > 500 and self.does("deep JSON is a server error"):
            raise _Error(-32603, "recursion", 500)
        try:
            body = request.json
        except ValueError:
            code = -32600 if self.does("broken JSON is an invalid request") else -32700
            words = _TRACE if self.does("errors show a stack trace") else "Parse error"
            raise _Error(code, words, 500 if self.does("broken JSON is a 500") else 400) from None
        if isinstance(body, list) and self.does("batches are answered"):
            return {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": _ANY}}
        if not isinstance(body, dict):
            raise _Error(-32600, "one message")
        found = cast("dict[str, Any]", body)
        if found.get("jsonrpc") != "2.0" or not isinstance(found.get("method"), str):
            if self.does("anything is a request"):
                return {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": _ANY}}
            raise _Error(-32600, "Invalid Request")
        return found

    def _check(self, request: Request, body: Mapping[str, Any]) -> None:
        """What goes with the request."""
        accepts = request.headers.get("accept", "")
        if "event-stream" not in accepts and not self.does("Accept is not read"):
            raise _Error(-32600, "Not Acceptable", 406)
        params: Mapping[str, Any] = body.get("params") or {}
        version = request.headers.get("mcp-protocol-version")
        if version != _VERSION and not self.does("every version is supported"):
            data = {"supported": [_VERSION], "requested": version}
            told = None if self.does("versions are refused without data") else data
            raise _Error(-32022, "Unsupported protocol version", data=told)
        self._check_meta(params.get("_meta"), version)
        method = request.headers.get("mcp-method")
        is_left_out = method is None and self.does("the method's header is not needed")
        is_passed = method is not None and self.does("the method's header is not compared")
        if method != body["method"] and params.get("_meta") is not _ANY and not (is_left_out or is_passed):
            raise _Error(-32020, "Mcp-Method")
        self._check_name(request, body)

    def _check_meta(self, meta: Any, version: str | None) -> None:
        found = cast("dict[str, Any]", meta) if isinstance(meta, dict) else None
        if found is None:
            if self.does("_meta is not needed"):
                return
            raise _Error(-32602, "_meta is needed")
        if f"{_OF_MCP}clientCapabilities" not in found and not self.does("capabilities are not needed"):
            raise _Error(-32602, "clientCapabilities are needed")
        if f"{_OF_MCP}clientInfo" not in found and self.does("clients name themselves"):
            raise _Error(-32602, "clientInfo is needed")
        is_same = found.get(f"{_OF_MCP}protocolVersion") == version
        if not is_same and found is not _ANY and not self.does("the version of _meta is not read"):
            raise _Error(-32020, "MCP-Protocol-Version")

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
        raise _Error(-32020, "Mcp-Name")

    async def _answered(self, request: Request, body: Mapping[str, Any]) -> Answer:
        method, id = body["method"], body.get("id")
        params: Mapping[str, Any] = body.get("params") or {}
        match method:
            case "server/discover":
                result = self._discovered()
            case "tools/list":
                result = self._listed(params)
            case "tools/call":
                result = await self._called(request, params)
            case "ping" if self.does("ping is answered"):
                result = {}
            case _:
                code = -32603 if self.does("unknown methods are internal errors") else -32601
                raise _Error(code, "Method not found", 200 if self.does("unknown methods are 200") else 404)
        return self._sent(params, method, self._done(id, result))

    def _discovered(self) -> dict[str, Any]:
        versions = ["2025-11-25" if self.does("it supports an older version") else _VERSION]
        capabilities: Any = {} if self.does("tools are not declared") else {"tools": {}}
        if self.does("capabilities are a list"):
            capabilities = ["tools"]
        return {"supportedVersions": versions, "capabilities": capabilities, "ttlMs": 0, "cacheScope": "private"}

    # Messages

    def _done(self, id: Any, result: Mapping[str, Any]) -> dict[str, Any]:
        told: dict[str, Any] = {"resultType": "complete", **result}
        if told["resultType"] == "complete" and self.does("results have no type"):
            del told["resultType"]
        if not self.does("the server is not named"):
            told["_meta"] = {f"{_OF_MCP}serverInfo": {"name": "tests", "version": "1"}}
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": str(id) if self.does("ids are text") else id}
        if self.does("messages name no version"):
            del message["jsonrpc"]
        return {**message, "result": told}

    def _failed(self, id: Any, error: _Error) -> dict[str, Any]:
        told: Any = {"code": error.code, "message": str(error)}
        if error.data is not None:
            told["data"] = error.data
        return {"jsonrpc": "2.0", "id": id, "error": str(error) if self.does("errors are text") else told}

    def _sent(self, params: Mapping[str, Any], method: str, response: dict[str, Any]) -> Answer:
        kind = "text/plain" if self.does("answers are text") else "text/event-stream"

        async def stream() -> AsyncGenerator[bytes]:
            if params.get("name") == "steps" and "arguments" in params:
                for each in self._progress(params):
                    yield sse(each, event="message")
            yield sse(response, event="message")
            if method == "tools/list" and self.does("responses are sent twice"):
                yield sse(response, event="message")
            if params.get("name") == "steps" and self.does("progress follows the response"):
                yield sse(self._notified(params, 9), event="message")
            if self.does("streams stay open"):
                await asyncio.sleep(_OPEN)

        return Answer(headers={"content-type": kind}, stream=stream())

    # Tools

    def _tools(self) -> list[dict[str, Any]]:
        text: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        if self.does("schemas are none"):
            text["properties"]["text"] = {"type": "words"}
        if self.does("schemas have no type"):
            del text["type"]
        echo: dict[str, Any] = {
            "name": "echo",
            "title": "Echo",
            "inputSchema": text,
            "outputSchema": {"type": "array", "items": {"type": "string"}},
        }
        if self.does("titles are numbers"):
            echo["title"] = 7
        names = ["fail", "steps", "ask", "the last" if self.does("names have spaces") else "last"]
        return [echo, *({"name": name, "inputSchema": text} for name in names)]

    def _listed(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Two tools a page."""
        tools = self._tools()
        if self.does("tools are listed twice"):
            tools = [tools[0], *tools]
        cursor = params.get("cursor")
        kept = {} if self.does("the list cannot be kept") else {"ttlMs": 0, "cacheScope": "private"}
        if cursor not in (None, "2") and not self.does("unknown cursors are the first"):
            raise _Error(-32602, _TRACE if self.does("errors show a stack trace") else "no such cursor")
        if cursor is None:
            self._lists += 1
        if self._lists > 2 and self.does("the list turns round"):
            tools.reverse()
        if cursor == "2":
            last = tools[:2] if self.does("each page is the first") else tools[2:]
            end = {"nextCursor": None} if self.does("the last page has a null cursor") else {}
            return {"tools": last, **end, **kept}
        if self.does("tools are listed twice"):
            return {"tools": tools, **kept}
        return {"tools": tools[:2], "nextCursor": "2", **kept}

    async def _called(self, request: Request, params: Mapping[str, Any]) -> dict[str, Any]:
        name, given = params.get("name"), params.get("arguments")
        if name is None and self.does("calls need no name"):
            name = "echo"
        if not isinstance(name, str):
            raise _Error(-32602, "a name is needed")
        arguments: Mapping[str, Any] = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
        if name not in [tool["name"] for tool in self._tools()]:
            if self.does("unknown tools do nothing"):
                return self._result("")
            if self.does("unknown tools are results"):
                return {**self._result("Unknown tool"), "isError": True}
            raise _Error(-32602, f"Unknown tool: {name}")
        text = arguments.get("text")
        if not isinstance(text, str) and "text" in arguments and not self.does("arguments are not checked"):
            if self.does("wrong arguments are protocol errors"):
                raise _Error(-32602, "text is text")
            return {**self._result("text is text"), "isError": True}
        if name == "ask":
            return self._asked(request, params)
        return await self._run(name, str(text))

    async def _run(self, name: str, text: str) -> dict[str, Any]:
        if name == "fail":
            words = _TRACE if self.does("failures show a stack trace") else "It failed."
            told = self._result("" if self.does("failures say nothing") else words)
            return told if self.does("failures are no errors") else {**told, "isError": True}
        self._busy += 1
        try:
            await asyncio.sleep(0.005)
            if self._busy > 1 and self.does("calls at once are refused"):
                return {**self._result("busy"), "isError": True}
        finally:
            self._busy -= 1
        if name != "echo":
            return self._result(text)
        value: Any = 7 if self.does("structured content is of another type") else [text]
        result = {
            **self._result(json.dumps([text])),
            "structuredContent": value,
            "isError": self.does("results are errors"),
        }
        if self.does("isError is text"):
            result["isError"] = "no"
        if self.does("results have no content"):
            result["content"] = []
        return result

    def _result(self, text: str) -> dict[str, Any]:
        kind = "plain" if self.does("content is plain") else "text"
        return {"content": [{"type": kind, "text": text}]}

    # Questions

    def _asked(self, request: Request, params: Mapping[str, Any]) -> dict[str, Any]:
        meta: Mapping[str, Any] = params["_meta"]
        seal = f"sealed for {request.headers.get('x-api-key', '')}"
        state, responses = params.get("requestState"), params.get("inputResponses")
        if self.does("questions are answers"):
            return self._result("What is your name?")
        if state is not None and state != seal and not self.does("the state is not sealed"):
            is_mine = isinstance(state, str) and state.startswith("sealed for ") and "-caller" in state
            if not (is_mine and self.does("the state is everybody's")):
                raise _Error(-32602, "requestState")
        if responses and not self.does("answers are not read"):
            return self._result("Hello")
        if responses is not None and not responses and self.does("answers that are missing are made up"):
            return self._result("Hello")
        takes_forms = "elicitation" in meta[f"{_OF_MCP}clientCapabilities"]
        if not takes_forms and not self.does("everybody is asked by forms"):
            raise _Error(-32021, "elicitation", data={"requiredCapabilities": {"elicitation": {}}})
        field: Any = {"type": "object", "properties": {}} if self.does("forms hold forms") else {"type": "string"}
        schema = {"type": "object", "properties": {"name": field}}
        asked: dict[str, Any] = {
            "method": "elicitation/create",
            "params": {"mode": "form", "message": "What is your name?", "requestedSchema": schema},
        }
        if self.does("questions are of the model"):
            asked = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}
        if self.does("requests of input have no method"):
            del asked["method"]
        return {"resultType": "input_required", "inputRequests": {"q": asked}, "requestState": seal}

    # Progress

    def _progress(self, params: Mapping[str, Any]) -> list[Any]:
        meta: Mapping[str, Any] = params["_meta"]
        if "progressToken" not in meta and not self.does("progress is told to all"):
            return []
        return [self._notified(params, value) for value in ((1, 2, 1) if self.does("progress goes back") else (1, 2))]

    def _notified(self, params: Mapping[str, Any], value: int) -> dict[str, Any]:
        token = (
            "other" if self.does("progress has a token of its own") else params["_meta"].get("progressToken", "none")
        )
        told = {"progressToken": token, "progress": value, "total": 2}
        return {"jsonrpc": "2.0", "method": "notifications/progress", "params": told}


_ANY: Final[dict[str, Any]] = {f"{_OF_MCP}clientCapabilities": {}}
"""Of a request that was made up."""

SERVER: Final = Server(
    set="mcp-2026-07-28",
    make=Tools,
    violations=VIOLATIONS,
    path="/mcp",
    options=Options(
        triggers=Triggers(
            {
                "plain": Trigger("Hello", agent="echo"),
                "fail": Trigger("x", agent="fail"),
                "steps": Trigger("x", agent="steps"),
                "question": Trigger("x", agent="ask", answer="Ada"),
            }
        ),
        headers={"X-Api-Key": "first-caller"},
        other_headers={"X-Api-Key": "second-caller"},
        timeout=5.0,
    ),
    unbroken={
        "discover.answer": "a server that fails it lets nobody in: the dead server shows that",
        "tools.list": "a server that fails it keeps nothing of its tools: the dead server shows that",
        "call.answer": "a server that fails it keeps nothing of its calls: the dead server shows that",
    },
)
