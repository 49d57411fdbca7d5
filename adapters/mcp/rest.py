"""HTTP operations of MCP's transport, for the OpenAPI document. All calls are JSON-RPC messages to one URL."""

from typing import Any, Final

from babelgate.adapters.kit.server.rest import JsonType, RestDescription, RestOperation
from babelgate.adapters.mcp import wire as w

_HEADERS: Final[dict[str, JsonType]] = {"MCP-Protocol-Version": "string", "Mcp-Session-Id": "string"}

REST: Final = RestDescription(
    official=w.SPEC,
    error=dict[str, Any],
    operations={
        "post": RestOperation(
            body=w.Envelope, returns=dict[str, Any], streams=dict[str, Any], other={202: None}, headers=_HEADERS
        ),
        "get": RestOperation(streams=dict[str, Any], is_stream_only=True, headers=_HEADERS),
        "delete": RestOperation(headers=_HEADERS),
    },
)
