"""Driver for MCP. An agent is a tool, which is called with a text and returns content.

Servers can mark content in `_meta.babelgate`, which docs/protocols/mcp.md describes: data whose JSON is a text, and
names of files.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from babelgate.conformance.across.driver import Driver, Observation, ScenarioFailed, decode_base64
from babelgate.conformance.across.model import CallerInput, File, Handle, Meaning
from babelgate.conformance.protocols.mcp.target import HELLO, VERSION, McpReply, McpSession
from babelgate.conformance.wire.exchange import Exchange, as_list, as_object, dig, json_or_none

_NO_ELICITATION: Final = "a tool asks by elicitation, which the check does not support"


class Mcp(Driver):
    name: ClassVar = "mcp"
    title: ClassVar = "MCP"
    lacks: ClassVar = {
        "stream": "the result of a call is not streamed",
        "turns": "tool calls have no conversation",
        "question": _NO_ELICITATION,
        "questions": _NO_ELICITATION,
        "approval": _NO_ELICITATION,
        "files": "a call has no files",
        "cancel": "a cancelled call has no response that shows its end",
        "return": "a call cannot be fetched again",
        "look": "a call cannot be fetched again",
        "shared": "MCP has no ids for runs of other protocols",
    }

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._tools: dict[str, Any] = {}

    async def _enter(self) -> McpSession:
        """Open and return a new MCP session. Each call uses its own, because scenarios run concurrently."""
        fresh = McpSession(self.wire, self.place.of(""), None, VERSION, itertools.count(1))
        hello = await fresh.ask("initialize", dict(HELLO), headers={"MCP-Protocol-Version": ""})
        version = dig(hello.result, "protocolVersion")
        if not isinstance(version, str):
            raise ScenarioFailed("no answer to initialize", hello.exchange)
        session = McpSession(self.wire, fresh.url, hello.exchange.header("mcp-session-id"), version, fresh.ids)
        await session.notify("notifications/initialized")
        return session

    async def send(self, agent: str, caller_input: CallerInput, after: Handle | None = None) -> Observation:
        session = await self._enter()
        name, tool = await self._tool(session, agent or self.place.agent)
        reply = await session.ask("tools/call", {"name": name, "arguments": _arguments(tool, caller_input)})
        links = [await _read_link(session, each) for each in _content(reply) if dig(each, "type") == "resource_link"]
        return Observation(_read_result(reply, links), Handle(agent), reply.exchange)

    async def _tool(self, session: McpSession, name: str) -> tuple[str, Any]:
        """Return the name and the description of the tool `name`, or of the first tool if `name` is empty. Raises
        ScenarioFailed if there is no such tool."""
        if not self._tools:
            listed = await session.ask("tools/list")
            self._tools = {str(dig(each, "name")): each for each in as_list(dig(listed.result, "tools"))}
        name = name or next(iter(self._tools), "")
        if name not in self._tools:
            raise ScenarioFailed(f"no tool is called {name}" if name else "there are no tools")
        return name, self._tools[name]

    async def observe(self, handle: Handle) -> Observation:
        raise ScenarioFailed(self.lacks["look"])

    async def answer_once(self, paused: Observation, answer: Any) -> Observation:
        raise ScenarioFailed(_NO_ELICITATION)


def _arguments(tool: Any, caller_input: CallerInput) -> dict[str, Any]:
    """Return the arguments of a tool call: the data of the input if it is an object. Otherwise each required text
    parameter of the tool gets the text of the input."""
    if (data := as_object(caller_input.data)) is not None:
        return data
    properties = as_object(dig(tool, "inputSchema", "properties")) or {}
    needed = [str(name) for name in as_list(dig(tool, "inputSchema", "required"))]
    return {name: caller_input.text for name in needed if dig(properties, name, "type") == "string"}


def _content(reply: McpReply) -> Sequence[Any]:
    return as_list(dig(reply.result, "content"))


async def _read_link(session: McpSession, link: Any) -> File:
    """Return the file behind a link. Its bytes are empty if the server does not return them."""
    read = await session.ask("resources/read", {"uri": dig(link, "uri")})
    contents = as_list(dig(read.result, "contents"))
    name = str(dig(link, "name") or "")
    return replace(_file({"resource": contents[0] if contents else {}}, read.exchange), name=name)


def _read_result(reply: McpReply, links: Sequence[File]) -> Meaning:
    """Return the meaning of a tool's result, whose links lead to the files `links`. Raises ScenarioFailed if the
    response is a JSON-RPC error.

    A text that repeats the structured result is dropped, and a text that is marked as data is data. All other texts are
    part of the answer.
    """
    if reply.error is not None:
        raise ScenarioFailed(f"an error of the protocol ({dig(reply.error, 'message')})", reply.exchange)
    content = _content(reply)
    marked = [each for each in content if dig(each, "_meta", "babelgate", "data") is True]
    texts = [str(dig(each, "text") or "") for each in content if dig(each, "type") == "text" and each not in marked]
    if dig(reply.result, "isError") is True:
        # The last text is the error. The texts before it are output of the tool.
        return Meaning("failed", tuple(texts[:-1]), error="".join(texts[-1:]))
    structured = as_object(dig(reply.result, "structuredContent"))
    data: tuple[Any, ...] = () if structured is None or structured.keys() == {"result"} else (structured,)
    texts = [text for text in texts if text and not (data and json_or_none(text) == structured)]
    files = [_file(each, reply.exchange) for each in content if dig(each, "type") in ("image", "audio", "resource")]
    if marked:
        named = [(_artifact_name(each), str(dig(each, "text"))) for each in marked]
        data = tuple(json_or_none(text) for name, text in named if not name)
        # Protocols that know only files show a named artifact as a file.
        files += [File(name, text.encode(), "application/json") for name, text in named if name]
    return Meaning("completed", tuple(texts), data, (*files, *links))


def _artifact_name(content: Any) -> str:
    return str(dig(content, "_meta", "babelgate", "artifact", "name") or "")


def _file(content: Any, exchange: Exchange) -> File:
    resource = dig(content, "resource") or content
    kind = str(dig(resource, "mimeType") or "application/octet-stream")
    own_name = _artifact_name(content) or str(dig(resource, "_meta", "babelgate", "name") or "")
    name = own_name or str(dig(resource, "uri") or "").rpartition("/")[2]
    text, blob = dig(resource, "text"), dig(resource, "blob") or dig(resource, "data")
    return File(name, text.encode() if isinstance(text, str) else decode_base64(blob, exchange), kind)
