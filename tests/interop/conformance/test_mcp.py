"""The sets of MCP against the official SDK, whose server keeps everything of level must."""

import pytest

from babelgate.conformance.examine import Selection, examine
from babelgate.conformance.probe import Options
from babelgate.conformance.trigger import Trigger, Triggers
from babelgate.conformance.verdict import Verdict
from tests.conformance.recorded import assert_recorded
from tests.interop.driver import start_server

pytestmark = pytest.mark.slow

TRIGGERS = Triggers(
    {
        "plain": Trigger("Hello", agent="echo"),
        "fail": Trigger("as it was told to", agent="fail"),
        "steps": Trigger("Go", agent="steps"),
        "question": Trigger("Go", agent="ask"),
        "long": Trigger("Go", agent="slow"),
    }
)


@pytest.mark.timeout(120)
async def test_the_official_server_keeps_what_it_must(accept: bool) -> None:
    async with start_server("mcp") as server:
        report = await examine(f"{server.url}/mcp", Selection("mcp"), Options(triggers=TRIGGERS))
    assert [each.set.name for each in report.sets] == ["mcp-2025-11-25", "mcp-2026-07-28"]
    for found in report.sets:
        assert not {each.requirement.id: f"{each.verdict}: {each.expected}: {each.got}" for each in found.against()}
        assert not [each for each in found.results if each.verdict is Verdict.HARNESS_ERROR]
    assert_recorded("mcp 2.3.0", report, accept)
