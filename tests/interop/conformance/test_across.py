"""The official SDKs' servers of A2A and ACP, whose agents do the same, mean the same: two servers, three protocols."""

import pytest

from conformance.across.play import play
from conformance.across.verdict import judge
from conformance.probe import Options
from conformance.trigger import read_triggers
from tests.interop.driver import start_server


@pytest.mark.timeout(60)
async def test_the_official_servers_of_two_protocols_mean_the_same() -> None:
    only = ["plain", "stream", "turns", "question", "files", "fail", "cancel", "return"]
    options = Options(triggers=read_triggers("sdk"), timeout=8.0)
    async with start_server("a2a-1.0") as a2a, start_server("acp") as acp:
        verdict = judge(await play([f"{a2a.url}/{{agent}}", acp.url], options, only=only))
    assert verdict.record.protocols == ["acp", "a2a-0.3", "a2a-1.0"]
    assert [(each.id, each.difference) for each in verdict.findings] == []
    assert verdict.is_same and verdict.played == len(only)
    # Neither says by which ids a run is known elsewhere.
    assert not verdict.shared
