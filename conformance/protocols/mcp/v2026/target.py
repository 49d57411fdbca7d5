"""Client for a judged MCP server without sessions: each request names its protocol version and the capabilities of its
client."""

import base64
import itertools
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Final

from babelgate.conformance.probe import NotSpoken, Opened, ProbeOptions
from babelgate.conformance.protocols.mcp.target import (
    CATALOG_RESULTS,
    McpReply,
    McpTarget,
    capabilities_of,
    start_process,
)
from babelgate.conformance.wire.exchange import Exchange, as_list, as_object, dig
from babelgate.conformance.wire.http import EventSource, Wire
from babelgate.conformance.wire.process import ProcessPeer

VERSION: Final = "2026-07-28"
OF_MCP: Final = "io.modelcontextprotocol/"
_RESULTS: Final[Mapping[str, str]] = {
    "server/discover": "DiscoverResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
    **CATALOG_RESULTS,
}
_NAMES: Final[Mapping[str, str]] = {"prompts/get": "name", "resources/read": "uri", "tools/call": "name"}
"""Parameter that the header `Mcp-Name` repeats, by method."""
_PLAIN: Final = re.compile(r"(?! )[\x20-\x7e]*(?<! )")
"""Text that a header can carry unchanged."""


def envelope(capabilities: Mapping[str, Any] | None = None, version: str = VERSION) -> dict[str, Any]:
    """Return the `_meta` that each request needs: the version, the capabilities of the client, and its name."""
    return {
        f"{OF_MCP}protocolVersion": version,
        f"{OF_MCP}clientCapabilities": dict(capabilities or {}),
        f"{OF_MCP}clientInfo": {"name": "babelgate-check", "version": "1"},
    }


class Stateless(McpTarget):
    IDLE: ClassVar = "server/discover"
    RECEIVES: ClassVar[Mapping[int, str]] = {200: "JsonRpcMessage", 400: "JsonRpcMessage", 404: "JsonRpcMessage"}

    MARK: ClassVar[str | None] = None

    def __init__(
        self, wire: Wire, url: str, hello: McpReply, ids: "itertools.count[int]", process: ProcessPeer | None = None
    ) -> None:
        super().__init__(wire, url, hello, ids, process)
        self.id, self.version = None, VERSION

    async def ask(
        self,
        method: str,
        params: Any = None,
        *,
        is_valid: bool = True,
        capabilities: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> McpReply:
        full_params: dict[str, Any] = {**(as_object(params) or {})}
        full_params["_meta"] = {**envelope(capabilities), **(as_object(full_params.get("_meta")) or {})}
        return await super().ask(method, full_params, is_valid=is_valid, **options)

    @asynccontextmanager
    async def posted(
        self, body: Any, *, headers: Mapping[str, str] | None = None, **options: Any
    ) -> AsyncGenerator[EventSource]:
        method = dig(body, "method")
        own_headers = {"Mcp-Method": method if isinstance(method, str) else self.IDLE}
        name = dig(body, "params", _NAMES.get(str(method), "name"))
        if isinstance(name, str):
            own_headers["Mcp-Name"] = _encode_header(name)
        async with super().posted(body, headers={**own_headers, **(headers or {})}, **options) as stream:
            yield stream

    def schema_of(self, method: str, result: Any) -> str | None:
        if dig(result, "resultType") == "input_required":
            return "InputRequiredResult"
        return _RESULTS.get(method)


async def open_server(wire: Wire, url: str, options: ProbeOptions, is_requested: bool) -> Opened[McpTarget]:
    """Find an MCP server at its endpoint by `server/discover`, as `ProbeSuite.open` requires. If `is_requested`, the
    user named the protocol, so the server is judged even if it does not seem to speak it. Otherwise raises
    NotSpoken."""
    ids = itertools.count(1)
    nothing = McpReply(Exchange(0, "POST", url, []), (), None)
    process = await start_process(wire, url)
    hello = await Stateless(wire, url, nothing, ids, process).ask("server/discover")
    versions = as_list(dig(hello.result, "supportedVersions"))
    if not is_requested and VERSION not in versions:
        raise NotSpoken(f"server/discover is not answered with the version {VERSION} ({hello.exchange})")
    server = Stateless(wire, url, hello, ids, process)
    because = f"{hello.exchange} answers server/discover with the versions {', '.join(map(str, versions))}"
    return Opened(server, url, because, frozenset(capabilities_of(server, options)))


def _encode_header(text: str) -> str:
    """Return a text as the value of a header: unchanged if that is possible, and otherwise in base64."""
    is_plain = _PLAIN.fullmatch(text) is not None and not text.startswith("=?base64?")
    return text if is_plain else f"=?base64?{base64.b64encode(text.encode()).decode()}?="
