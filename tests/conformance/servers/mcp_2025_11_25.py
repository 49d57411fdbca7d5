"""A scripted server of MCP 2025-11-25: tools by streamable HTTP."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from itertools import count
from typing import Any, Final, cast
from uuid import uuid4

from babelgate.conformance.probe import Options
from babelgate.conformance.trigger import Trigger, Triggers
from tests.conformance.servers.kit import Answer, Request, ScriptedServer, Server, Violation, sse

_VERSIONS: Final = ("2025-03-26", "2025-06-18", "2025-11-25")
_NEWEST: Final = _VERSIONS[-1]
_OPEN: Final = 8.0
"""Seconds that a stream stays open which should not."""
_TRACE: Final = 'Traceback (most recent call last):\n  File "/srv/app.py", line 1'

VIOLATIONS: Final = (
    # How a session begins
    Violation("the newest version is answered to all", "init.older-version"),
    Violation("an old version is answered", "init.version", ("init.older-version",)),
    Violation("unknown versions are errors", "init.unknown-version"),
    Violation("tools are not declared", "init.tools"),
    Violation("notifications are answered with 200", "init.initialized", ("init.no-body", "cancel.*")),
    Violation("notifications have a body", "init.no-body"),
    Violation("ping is unknown", "init.ping", ("session.parallel", "~*")),
    # The transport
    Violation("answers are text", "http.media-type", ("~*",)),
    Violation("ids are text", "http.same-id", ("call.concurrent",)),
    Violation("responses are sent twice", "http.one-response", ("~progress.over",)),
    Violation("streams stay open", "http.stream-ends", ("http.one-response", "http.event-ids", "progress.*")),
    Violation("ids of events begin anew", "http.event-ids"),
    Violation("GET is JSON", "http.get"),
    Violation("PUT is POST", "http.method"),
    Violation("the version's header is not read", "http.version"),
    Violation("the version's header is needed", "http.no-version"),
    Violation("every origin is welcome", "http.origin"),
    Violation("Accept is not read", "http.accept"),
    Violation("broken JSON is a 500", "rpc.parse"),
    Violation("broken JSON is an invalid request", "rpc.parse-code"),
    Violation("batches are answered", "rpc.batch"),
    Violation("unknown methods are internal errors", "rpc.method"),
    Violation("anything is a request", "rpc.invalid"),
    # Sessions
    Violation("session ids have spaces", "session.id"),
    Violation("session ids are numbers", "session.random"),
    Violation("there is one session at a time", "session.parallel", ("~*",)),
    Violation("requests need no session", "session.missing"),
    Violation("unknown sessions are bad requests", "session.unknown", ("session.ended", "safe.session")),
    Violation("DELETE is a server error", "session.delete", ("session.ended",)),
    Violation("ended sessions go on", "session.ended"),
    # Tools
    Violation("tools are listed twice", "tools.unique"),
    Violation("names have spaces", "tools.names"),
    Violation("schemas are none", "tools.schema"),
    Violation("the list turns round", "tools.stable", ("~tools.pages",)),
    Violation("each page is the first", "tools.pages", ("tools.unique", "progress.*", "cancel.unanswered")),
    Violation("unknown cursors are the first", "tools.cursor"),
    # Calls
    Violation("results have no content", "call.content", ("call.structured-text",)),
    Violation("results are errors", "call.success", ("call.concurrent",)),
    Violation("structured content is of another type", "call.structured", ("call.structured-text",)),
    Violation("structured content is not told as text", "call.structured-text"),
    Violation("calls at once are refused", "call.concurrent", ("~call.*", "~progress.*", "~safe.*")),
    Violation("unknown tools do nothing", "call.unknown", ("call.unknown-code",)),
    Violation("unknown tools are results", "call.unknown-code"),
    Violation("calls need no name", "call.no-name", ("~safe.errors",)),
    Violation("arguments are not checked", "call.checked", ("call.arguments",)),
    Violation("wrong arguments are protocol errors", "call.arguments"),
    Violation("failures are no errors", "call.failure"),
    Violation("failures say nothing", "call.failure-text"),
    # Progress
    Violation("progress has a token of its own", "progress.token"),
    Violation("progress goes back", "progress.grows"),
    Violation("progress follows the response", "progress.over", ("progress.asked",)),
    Violation("progress is told to all", "progress.asked"),
    # Cancelling
    Violation("cancelled calls are answered", "cancel.unanswered"),
    Violation("unknown requests cannot be cancelled", "cancel.nothing"),
    # What must not be shown
    Violation("errors show a stack trace", "safe.errors"),
    Violation("failures show a stack trace", "safe.failure"),
    Violation("deep JSON is a server error", "safe.deep"),
    Violation("sessions are everybody's", "safe.session"),
    # The form of messages
    Violation("messages name no version", "form.rpc"),
    Violation("errors are text", "form.error", ("~*",)),
    Violation("servers have no version", "form.init"),
    Violation("the last page has a null cursor", "form.tools"),
    Violation("titles are numbers", "form.tool"),
    Violation("schemas have no type", "form.schema"),
    Violation("isError is text", "form.result"),
    Violation("content is plain", "form.content", ("call.failure-text", "call.arguments")),
)


class _Error(Exception):
    def __init__(self, code: int, words: str, status: int = 200) -> None:
        super().__init__(words)
        self.code = code
        self.status = status


class Tools(ScriptedServer):
    def __init__(self, violation: str = "") -> None:
        super().__init__(violation)
        self.sessions: dict[str, str] = {}
        """And whose they are."""
        self._numbers = count(1)
        self._events = count(1)
        self._busy = 0
        self._lists = 0
        self._working: dict[Any, asyncio.Event] = {}

    async def handle(self, request: Request) -> Answer:
        origin = request.headers.get("origin", "")
        if origin and not self.does("every origin is welcome"):
            return Answer(403, "Invalid Origin")
        match request.method:
            case "POST":
                return await self._posted(request)
            case "PUT" if self.does("PUT is POST"):
                return Answer(200, {})
            case "GET":
                return Answer(body={}) if self.does("GET is JSON") else Answer(405)
            case "DELETE":
                return self._deleted(request)
            case _:
                return Answer(405)

    async def _posted(self, request: Request) -> Answer:
        try:
            return await self._answered(request, self._body(request))
        except _Error as error:
            return Answer(error.status, self._failed(None, error))

    def _body(self, request: Request) -> dict[str, Any]:
        if request.body.count(b"[") > 500 and self.does("deep JSON is a server error"):
            raise _Error(-32603, "recursion", 500)
        accepts = request.headers.get("accept", "")
        if "event-stream" not in accepts and not self.does("Accept is not read"):
            raise _Error(-32600, "Not Acceptable", 406)
        try:
            body = request.json
        except ValueError:
            code = -32600 if self.does("broken JSON is an invalid request") else -32700
            words = _TRACE if self.does("errors show a stack trace") else "Parse error"
            raise _Error(code, words, 500 if self.does("broken JSON is a 500") else 400) from None
        if isinstance(body, list) and self.does("batches are answered"):
            body = cast("list[Any]", body)[0]
        if not isinstance(body, dict):
            raise _Error(-32600, "one message", 400)
        found = cast("dict[str, Any]", body)
        is_right = found.get("jsonrpc") == "2.0" and isinstance(found.get("method"), str)
        if not is_right:
            if self.does("anything is a request"):
                return {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            raise _Error(-32600, "Invalid Request", 400)
        return found

    async def _answered(self, request: Request, body: dict[str, Any]) -> Answer:
        method, id = body["method"], body.get("id")
        if method == "initialize":
            return self._hello(request, body)
        self._check_headers(request)
        if method == "notifications/cancelled":
            self._cancelled(body["params"]["requestId"])
        if id is None:
            if self.does("notifications are answered with 200"):
                return Answer(200, {"jsonrpc": "2.0", "id": None, "result": {}})
            return Answer(202, {} if self.does("notifications have a body") else None)
        return self._sent(request, self._messages(request, body))

    def _cancelled(self, id: Any) -> None:
        stopped = self._working.get(id)
        if stopped is not None:
            stopped.set()
        elif self.does("unknown requests cannot be cancelled"):
            raise _Error(-32602, "no such request", 400)

    def _check_headers(self, request: Request) -> None:
        version = request.headers.get("mcp-protocol-version")
        if version is None and self.does("the version's header is needed"):
            raise _Error(-32600, "a version is needed", 400)
        if version is not None and version not in _VERSIONS and not self.does("the version's header is not read"):
            raise _Error(-32600, "unsupported version", 400)
        id = request.headers.get("mcp-session-id")
        if id is None:
            if self.does("requests need no session"):
                return
            raise _Error(-32600, "Missing session ID", 400)
        is_mine = self.sessions.get(id) == request.headers.get("x-api-key", "")
        if id not in self.sessions or not (is_mine or self.does("sessions are everybody's")):
            raise _Error(-32600, "Session not found", 400 if self.does("unknown sessions are bad requests") else 404)

    def _deleted(self, request: Request) -> Answer:
        if self.does("DELETE is a server error"):
            return Answer(500)
        id = request.headers.get("mcp-session-id", "")
        if not self.does("ended sessions go on"):
            self.sessions.pop(id, None)
        return Answer(204)

    def _hello(self, request: Request, body: Mapping[str, Any]) -> Answer:
        asked = body["params"]["protocolVersion"]
        if asked not in _VERSIONS and self.does("unknown versions are errors"):
            return Answer(body=self._failed(body["id"], _Error(-32602, "unsupported version")))
        version = asked if asked in _VERSIONS else _NEWEST
        if self.does("the newest version is answered to all"):
            version = _NEWEST
        if self.does("an old version is answered"):
            version = "2025-03-26"
        info = {"name": "tests", "version": "1"}
        if self.does("servers have no version"):
            del info["version"]
        result: dict[str, Any] = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        if self.does("tools are not declared"):
            result["capabilities"] = {}
        id = str(next(self._numbers)) if self.does("session ids are numbers") else uuid4().hex
        if self.does("session ids have spaces"):
            id = f"{id[:8]} {id[8:]}"
        if self.does("there is one session at a time"):
            self.sessions.clear()
        self.sessions[id] = request.headers.get("x-api-key", "")
        return Answer(body=self._done(body["id"], result), headers={"Mcp-Session-Id": id})

    # Messages

    def _done(self, id: Any, result: Any) -> dict[str, Any]:
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": str(id) if self.does("ids are text") else id}
        if self.does("messages name no version"):
            del message["jsonrpc"]
        return {**message, "result": result}

    def _failed(self, id: Any, error: _Error) -> dict[str, Any]:
        told: Any = {"code": error.code, "message": str(error)}
        return {"jsonrpc": "2.0", "id": id, "error": str(error) if self.does("errors are text") else told}

    def _sent(self, request: Request, messages: AsyncGenerator[Any]) -> Answer:
        kind = "text/plain" if self.does("answers are text") else "text/event-stream"

        async def stream() -> AsyncGenerator[bytes]:
            numbers = count(1) if self.does("ids of events begin anew") else self._events
            async for message in messages:
                yield sse(message, event="message", id=str(next(numbers)))
            if self.does("streams stay open"):
                await asyncio.sleep(_OPEN)

        return Answer(headers={"content-type": kind}, stream=stream())

    async def _messages(self, request: Request, body: Mapping[str, Any]) -> AsyncGenerator[Any]:
        method, id = body["method"], body["id"]
        params: Mapping[str, Any] = body.get("params") or {}
        try:
            match method:
                case "ping" if not self.does("ping is unknown"):
                    response = self._done(id, {})
                case "tools/list":
                    response = self._done(id, self._listed(params))
                case "tools/call" if params.get("name") == "long":
                    stopped = self._working[id] = asyncio.Event()
                    await stopped.wait()
                    if not self.does("cancelled calls are answered"):
                        return
                    response = self._done(id, self._result("stopped"))
                case "tools/call":
                    async for message in self._progress(params):
                        yield message
                    response = self._done(id, await self._called(params))
                case _:
                    code = -32603 if self.does("unknown methods are internal errors") else -32601
                    raise _Error(code, "Method not found")
        except _Error as error:
            response = self._failed(id, error)
        yield response
        if method == "tools/list" and self.does("responses are sent twice"):
            yield response
        if method == "tools/call" and params.get("name") == "steps" and self.does("progress follows the response"):
            yield self._notified(params, 9)

    # Tools

    def _tools(self) -> list[dict[str, Any]]:
        text: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        if self.does("schemas are none"):
            text["properties"]["text"] = {"type": "words"}
        if self.does("schemas have no type"):
            del text["type"]
        echo: dict[str, Any] = {"name": "echo", "title": "Echo", "inputSchema": text, "outputSchema": text}
        if self.does("titles are numbers"):
            echo["title"] = 7
        names = ["fail", "steps", "long", "the last" if self.does("names have spaces") else "last"]
        return [echo, *({"name": name, "inputSchema": text} for name in names)]

    def _listed(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Two tools a page."""
        tools = self._tools()
        if self.does("tools are listed twice"):
            tools = [tools[0], *tools]
        cursor = params.get("cursor")
        if cursor not in (None, "2") and not self.does("unknown cursors are the first"):
            raise _Error(-32602, _TRACE if self.does("errors show a stack trace") else "no such cursor")
        if cursor is None:
            self._lists += 1
        if self._lists > 2 and self.does("the list turns round"):
            tools.reverse()
        if cursor == "2":
            last = tools[:2] if self.does("each page is the first") else tools[2:]
            return {"tools": last, **({"nextCursor": None} if self.does("the last page has a null cursor") else {})}
        if self.does("tools are listed twice"):
            return {"tools": tools}
        return {"tools": tools[:2], "nextCursor": "2"}

    async def _called(self, params: Mapping[str, Any]) -> dict[str, Any]:
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
        value: Any = {"text": 7} if self.does("structured content is of another type") else {"text": text}
        shown = text if self.does("structured content is not told as text") else json.dumps({"text": text})
        result = {**self._result(shown), "structuredContent": value, "isError": self.does("results are errors")}
        if self.does("isError is text"):
            result["isError"] = "no"
        if self.does("results have no content"):
            result["content"] = []
        return result

    def _result(self, text: str) -> dict[str, Any]:
        kind = "plain" if self.does("content is plain") else "text"
        return {"content": [{"type": kind, "text": text}]}

    async def _progress(self, params: Mapping[str, Any]) -> AsyncGenerator[Any]:
        if params.get("name") != "steps":
            return
        meta: Mapping[str, Any] = params.get("_meta") or {}
        if "progressToken" in meta or self.does("progress is told to all"):
            for value in (1, 2, 1) if self.does("progress goes back") else (1, 2):
                yield self._notified(params, value)

    def _notified(self, params: Mapping[str, Any], value: int) -> dict[str, Any]:
        meta: Mapping[str, Any] = params.get("_meta") or {}
        token = "other" if self.does("progress has a token of its own") else meta.get("progressToken", "none")
        told = {"progressToken": token, "progress": value, "total": 2}
        return {"jsonrpc": "2.0", "method": "notifications/progress", "params": told}


SERVER: Final = Server(
    set="mcp-2025-11-25",
    make=Tools,
    violations=VIOLATIONS,
    path="/mcp",
    options=Options(
        triggers=Triggers(
            {
                "plain": Trigger("Hello", agent="echo"),
                "fail": Trigger("x", agent="fail"),
                "steps": Trigger("x", agent="steps"),
                "long": Trigger("x", agent="long"),
            }
        ),
        headers={"X-Api-Key": "first-caller"},
        other_headers={"X-Api-Key": "second-caller"},
        timeout=5.0,
    ),
    unbroken={
        "init.answer": "a server that fails it lets nobody in: the dead server shows that",
        "tools.list": "a server that fails it keeps nothing of its tools: the dead server shows that",
        "call.answer": "a server that fails it keeps nothing of its calls: the dead server shows that",
    },
)
