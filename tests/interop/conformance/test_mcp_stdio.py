"""Conformance of the official MCP SDK over stdio: it meets every requirement of level must that applies."""

import shlex
from pathlib import Path
from typing import Any, Final

import pytest

from babelgate.conformance.examine import RequirementSelection, examine
from babelgate.conformance.probe import ProbeOptions
from babelgate.conformance.requirement import load_set
from babelgate.conformance.trigger import Triggers
from babelgate.conformance.verdict import Verdict
from tests.interop.conformance.test_servers import MCP
from tests.interop.driver import PROGRAMS
from tests.interop.peers import peer_python

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SETS: Final = ("mcp-2025-11-25", "mcp-2026-07-28")
NOT_TESTED: Final = frozenset({"safe"})
"""Group whose requirements are of level should. The SDK gives no answer to deeply nested JSON, which takes a
timeout."""


async def test_server_of_the_sdk_conforms_over_stdio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the server leaves files
    command = shlex.join(map(str, (peer_python("mcp"), PROGRAMS / "mcp_stdio_server.py")))
    options = ProbeOptions(triggers=Triggers(MCP), timeout=8.0)
    groups = {each.group for name in SETS for each in load_set(name).requirements} - NOT_TESTED
    selection = RequirementSelection("mcp", only=[f"{group}.*" for group in groups])
    report = await examine(f"stdio:{command}", selection, options)
    assert [each.set.name for each in report.sets] == list(SETS)
    for each in report.sets:
        wrong: list[Any] = [
            (one.requirement.id, str(one.verdict), one.expected, one.actual)
            for one in each.results
            if not one.is_kept or one.verdict is Verdict.HARNESS_ERROR
        ]
        assert not wrong
        assert {"process", "resources", "prompts"} <= each.capabilities
        assert each.passes > 40
