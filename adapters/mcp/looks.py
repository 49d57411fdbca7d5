"""Request that reads a run over MCP: as a task of the tasks extension."""

from collections.abc import Sequence
from typing import Final

from babelgate.adapters.kit.adapter import Look, LookTarget, ReadRequest
from babelgate.adapters.mcp.carries import VERSION
from babelgate.adapters.mcp.codec.tasks import EXTENSION
from babelgate.canonical.value import JsonObject

_METHOD: Final = "tasks/get"
_META: Final = "io.modelcontextprotocol/"
"""Prefix of the reserved members of `_meta`, such as `io.modelcontextprotocol/protocolVersion`. Version 2026-07-28 has
no handshake, so each request sends the protocol version and the client's capabilities in these members."""


def looks(target: LookTarget) -> Sequence[Look]:
    """Return one read of the run, as a task of the tasks extension. Without this extension, a result can be read only
    by the call that produced it."""
    task_id = target.task.task_id
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json",
        "MCP-Protocol-Version": VERSION,
        "Mcp-Method": _METHOD,
        "Mcp-Name": task_id,
    }
    meta: JsonObject = {
        f"{_META}protocolVersion": VERSION,
        f"{_META}clientCapabilities": {"extensions": {EXTENSION: {}}},
    }
    body: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": _METHOD, "params": {"taskId": task_id, "_meta": meta}}
    request = ReadRequest(method="POST", path="/mcp", headers=headers, body=body)
    return (Look(version=VERSION, title=f"MCP {_METHOD}", request=request),)
