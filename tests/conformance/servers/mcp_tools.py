"""Base of the scripted MCP servers of both versions: messages, tools, calls, progress and shared violations."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final, cast

from tests.conformance.servers.kit import TRACE, Answer, Request, ScriptedServer, Violation

_OPEN: Final = 8.0
"""Seconds for which a stream stays open, as a violation."""

SHARED: Final = (
    # The transport
    Violation("answers are text", "http.media-type", ("~*",)),
    Violation("ids are text", "http.same-id", ("call.concurrent",)),
    Violation("every origin is accepted", "http.origin"),
    Violation("Accept is not read", "http.accept"),
    Violation("broken JSON is a 500", "rpc.parse"),
    Violation("broken JSON is an invalid request", "rpc.parse-code"),
    Violation("batches are answered", "rpc.batch"),
    Violation("any object is a request", "rpc.invalid"),
    # Tools
    Violation("tools are listed twice", "tools.unique"),
    Violation("names have spaces", "tools.names"),
    Violation("unknown cursors are the first", "tools.cursor"),
    # Calls
    Violation("results are errors", "call.success", ("call.concurrent", "call.unicode")),
    Violation("unknown tools do nothing", "call.unknown", ("call.unknown-code",)),
    Violation("unknown tools are results", "call.unknown-code"),
    Violation("calls need no name", "call.no-name", ("~safe.errors",)),
    Violation("arguments are not checked", "call.checked", ("call.arguments",)),
    Violation("wrong arguments are protocol errors", "call.arguments"),
    Violation("ASCII only", "call.unicode"),
    Violation("files have no type", "call.files"),
    Violation("files are no base64", "call.files"),
    Violation("failures are no errors", "call.failure", is_hidden=True),
    Violation("failures are protocol errors", "call.failure", ("call.failure-text", "~safe.*")),
    Violation("failures have no text", "call.failure-text"),
    # Progress
    Violation("progress has another token", "progress.token"),
    Violation("progress goes back", "progress.grows"),
    Violation("progress follows the response", "progress.over", ("progress.asked",)),
    Violation("progress is sent without a token", "progress.asked"),
    # Security
    Violation("errors show a stack trace", "safe.errors"),
    Violation("failures show a stack trace", "safe.failure"),
    Violation("deep JSON is a server error", "safe.deep"),
    # The form of messages
    Violation("messages name no version", "form.rpc"),
    Violation("errors are text", "form.error", ("~*",)),
    Violation("the last page has a null cursor", "form.tools"),
    Violation("titles are numbers", "form.tool"),
    Violation("schemas have no type", "form.schema"),
    Violation("isError is text", "form.result"),
    Violation("content is plain", "form.content", ("call.failure-text", "call.arguments")),
)


class Refused(Exception):
    def __init__(self, code: int, words: str, status: int = 400, data: Any = None) -> None:
        super().__init__(words)
        self.code = code
        self.status = status
        self.data = data


class Tools(ScriptedServer):
    output_schema: Mapping[str, Any] | None = None
    """Output schema of the tool `echo`; None means that of its input."""
    other_tools: Sequence[str]
    """Names of the other tools, apart from `last`."""

    def __init__(self, violation: str = "") -> None:
        super().__init__(violation)
        self._busy = 0
        self._lists = 0

    def structured(self, text: str) -> tuple[Any, Any]:
        """Return valid structured content of `echo`, and invalid content."""
        raise NotImplementedError

    # Messages

    async def handle(self, request: Request) -> Answer:
        if request.headers.get("origin") and not self.does("every origin is accepted"):
            return Answer(403, "Invalid Origin")
        return await self.route(request)

    async def route(self, request: Request) -> Answer:
        raise NotImplementedError

    def check_accept(self, request: Request) -> None:
        is_odd = "event-stream" not in request.headers.get("accept", "")
        self.raise_unless("Accept is not read", Refused(-32600, "Not Acceptable", 406), when=is_odd)

    def parse(self, request: Request, substitute: dict[str, Any]) -> dict[str, Any]:
        """Return the message of a request, or `substitute` where a violation answers a body that is no message."""
        is_deep = request.body.count(b"[") > 500
        self.raise_if("deep JSON is a server error", Refused(-32603, "recursion", 500), when=is_deep)
        try:
            body = request.json
        except ValueError:
            code = -32600 if self.does("broken JSON is an invalid request") else -32700
            words = TRACE if self.does("errors show a stack trace") else "Parse error"
            raise Refused(code, words, 500 if self.does("broken JSON is a 500") else 400) from None
        if isinstance(body, list) and self.does("batches are answered"):
            return substitute
        if not isinstance(body, dict):
            raise Refused(-32600, "one message")
        found = cast("dict[str, Any]", body)
        if found.get("jsonrpc") == "2.0" and isinstance(found.get("method"), str):
            return found
        self.raise_unless("any object is a request", Refused(-32600, "Invalid Request"))
        return substitute

    def response(self, id: Any, result: Mapping[str, Any]) -> dict[str, Any]:
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": str(id) if self.does("ids are text") else id}
        self.drop_if("messages name no version", message, "jsonrpc")
        return {**message, "result": result}

    def error_response(self, id: Any, error: Refused) -> dict[str, Any]:
        content: Any = {"code": error.code, "message": str(error)}
        if error.data is not None:
            content["data"] = error.data
        return {"jsonrpc": "2.0", "id": id, "error": str(error) if self.does("errors are text") else content}

    def answer_stream(self, frames: AsyncGenerator[bytes]) -> Answer:
        async def stream() -> AsyncGenerator[bytes]:
            async for frame in frames:
                yield frame
            if self.does("streams stay open"):
                await asyncio.sleep(_OPEN)

        kind = "text/plain" if self.does("answers are text") else "text/event-stream"
        return Answer(headers={"content-type": kind}, stream=stream())

    # Tools

    def tools(self) -> list[dict[str, Any]]:
        text: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        self.set_if("schemas are invalid", text["properties"], text={"type": "words"})
        self.drop_if("schemas have no type", text, "type")
        echo: dict[str, Any] = {
            "name": "echo",
            "title": "Echo",
            "inputSchema": text,
            "outputSchema": self.output_schema or text,
        }
        self.set_if("titles are numbers", echo, title=7)
        names = [*self.other_tools, "the last" if self.does("names have spaces") else "last"]
        return [echo, *({"name": name, "inputSchema": text} for name in names)]

    def list_tools(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return a page of two tools."""
        tools = self.tools()
        if self.does("tools are listed twice"):
            tools = [tools[0], *tools]
        cursor = params.get("cursor")
        if cursor not in (None, "2") and not self.does("unknown cursors are the first"):
            raise Refused(-32602, TRACE if self.does("errors show a stack trace") else "no such cursor")
        if cursor is None:
            self._lists += 1
        if self._lists > 2 and self.does("the list reverses"):
            tools.reverse()
        if cursor == "2":
            last = tools[:2] if self.does("each page is the first") else tools[2:]
            return {"tools": last, **({"nextCursor": None} if self.does("the last page has a null cursor") else {})}
        return {"tools": tools} if self.does("tools are listed twice") else {"tools": tools[:2], "nextCursor": "2"}

    # Calls

    async def call_tool(self, request: Request, params: Mapping[str, Any]) -> dict[str, Any]:
        name, raw = params.get("name"), params.get("arguments")
        if name is None and self.does("calls need no name"):
            name = "echo"
        if not isinstance(name, str):
            raise Refused(-32602, "a name is needed")
        arguments: Mapping[str, Any] = cast("dict[str, Any]", raw) if isinstance(raw, dict) else {}
        if name not in [tool["name"] for tool in self.tools()]:
            if self.does("unknown tools do nothing"):
                return self.result("")
            if self.does("unknown tools are results"):
                return {**self.result("Unknown tool"), "isError": True}
            raise Refused(-32602, f"Unknown tool: {name}")
        text = arguments.get("text")
        if not isinstance(text, str) and "text" in arguments and not self.does("arguments are not checked"):
            self.raise_if("wrong arguments are protocol errors", Refused(-32602, "text is text"))
            return {**self.result("text is text"), "isError": True}
        return await self.run(request, params, name, self.ascii_if("ASCII only", str(text)))

    async def run(self, request: Request, params: Mapping[str, Any], name: str, text: str) -> dict[str, Any]:
        if name == "fail":
            self.raise_if("failures are protocol errors", Refused(-32603, "It failed."))
            words = TRACE if self.does("failures show a stack trace") else "It failed."
            failure = self.result("" if self.does("failures have no text") else words)
            return failure if self.does("failures are no errors") else {**failure, "isError": True}
        self._busy += 1
        try:
            await asyncio.sleep(0.005)
            if self._busy > 1 and self.does("concurrent calls are refused"):
                return {**self.result("busy"), "isError": True}
        finally:
            self._busy -= 1
        if name == "files":
            return {"content": [self._file()]}
        if name != "echo":
            return self.result(text)
        right, wrong = self.structured(text)
        value = wrong if self.does("structured content is of another type") else right
        content = text if self.does("structured content is not repeated as text") else json.dumps(right)
        result = {**self.result(content), "structuredContent": value, "isError": self.does("results are errors")}
        self.set_if("isError is text", result, isError="no")
        self.set_if("results have no content", result, content=[])
        return result

    def _file(self) -> dict[str, Any]:
        data = "bytes!" if self.does("files are no base64") else "AAEC/w=="
        file = {"uri": "file:///bytes.bin", "mimeType": "application/octet-stream", "blob": data}
        self.drop_if("files have no type", file, "mimeType")
        return {"type": "resource", "resource": file}

    def result(self, text: str) -> dict[str, Any]:
        kind = "plain" if self.does("content is plain") else "text"
        return {"content": [{"type": kind, "text": text}]}

    # Progress

    def progress_messages(self, params: Mapping[str, Any]) -> list[dict[str, Any]]:
        if params.get("name") != "steps" or "arguments" not in params:
            return []
        if "progressToken" not in (params.get("_meta") or {}) and not self.does("progress is sent without a token"):
            return []
        return [
            self.progress_message(params, value) for value in ((1, 2, 1) if self.does("progress goes back") else (1, 2))
        ]

    def progress_message(self, params: Mapping[str, Any], value: int) -> dict[str, Any]:
        meta: Mapping[str, Any] = params.get("_meta") or {}
        token = "other" if self.does("progress has another token") else meta.get("progressToken", "none")
        content = {"progressToken": token, "progress": value, "total": 2}
        return {"jsonrpc": "2.0", "method": "notifications/progress", "params": content}
