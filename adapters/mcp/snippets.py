"""Programs that call an agent as a tool of MCP."""

from collections.abc import Sequence
from typing import Final

from babelgate.adapters.kit.adapter import Snippet
from babelgate.adapters.kit.snippets import curl, program
from babelgate.adapters.mcp.carries import VERSION
from babelgate.canonical.value import JsonObject

_PYTHON: Final = """\
# pip install "mcp>=2.0"
import asyncio
import os

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client


async def main() -> None:
    headers = {"Authorization": f"Bearer {os.environ['<KEY>']}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        async with Client(streamable_http_client("<URL>/mcp", http_client=http)) as client:
            result = await client.call_tool("<AGENT>", {"message": "Hello"})
            print(result.content)


asyncio.run(main())
"""
_TYPESCRIPT: Final = """\
// npm install @modelcontextprotocol/sdk
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const headers = { Authorization: `Bearer ${process.env.<KEY>}` };
const client = new Client({ name: "example", version: "1.0.0" });
await client.connect(new StreamableHTTPClientTransport(new URL("<URL>/mcp"), { requestInit: { headers } }));
const result = await client.callTool({ name: "<AGENT>", arguments: { message: "Hello" } });
console.log(JSON.stringify(result.content));
await client.close();
"""


def snippets(base_url: str, agent: str) -> Sequence[Snippet]:
    """Return example programs that call the agent: a curl command, and programs with the MCP SDKs for Python and
    TypeScript."""
    params: JsonObject = {"name": agent, "arguments": {"message": "Hello"}}
    body: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return (
        curl("curl", f"{base_url}/mcp", body, "Accept: application/json", version=VERSION),
        program("mcp", "python", _PYTHON, version=VERSION, url=base_url, agent=agent),
        program("@modelcontextprotocol/sdk", "typescript", _TYPESCRIPT, version=VERSION, url=base_url, agent=agent),
    )
