"""The official SDKs' servers of A2A and ACP, whose agents do the same, mean the same: two servers, three protocols."""

from pathlib import Path

import pytest

from babelgate.conformance.across.play import play
from babelgate.conformance.across.verdict import judge
from babelgate.conformance.probe import ProbeOptions
from babelgate.conformance.trigger import Trigger, Triggers, read_triggers
from tests.interop.driver import start_server
from tests.running import running

pytestmark = pytest.mark.slow


@pytest.mark.timeout(60)
async def test_the_official_servers_of_two_protocols_mean_the_same() -> None:
    only = ["plain", "stream", "turns", "question", "files", "fail", "cancel", "return"]
    options = ProbeOptions(triggers=read_triggers("sdk"), timeout=8.0)
    async with start_server("a2a-1.0") as a2a, start_server("acp") as acp:
        verdict = judge(await play([f"{a2a.url}/{{agent}}", acp.url], options, only=only))
    assert verdict.record.protocols == ["acp", "a2a-0.3", "a2a-1.0"]
    assert [(each.id, each.difference) for each in verdict.findings] == []
    assert verdict.is_same and verdict.played == len(only)
    # Neither says by which ids a run is known elsewhere.
    assert not verdict.shared


@pytest.mark.timeout(60)
async def test_models_mean_the_same_through_the_gateway_and_to_callers_of_openai(tmp_path: Path) -> None:
    """GraphServe's, by chat completions, by responses and by all protocols of a gateway in front of it."""
    names = ("plain", "stream", "question", "fail")
    given = {name: Trigger("Hello", agent="fail" if name == "fail" else "echo") for name in names}
    only = ["plain", "stream", "turns", "fail"]
    async with start_server("graphserve") as server:
        configured = {name: {"url": f"{server.url}/v1", "agent": name} for name in ("echo", "fail")}
        async with running(tmp_path, configured=configured) as gateway:
            options = ProbeOptions(triggers=Triggers(given))
            verdict = judge(await play([f"{server.url}/v1", gateway.url], options, only=only))
    assert verdict.record.protocols[-3:] == ["openai-chat", "openai-responses", "mcp"]
    assert len(verdict.record.protocols) == 9
    # GraphServe cuts a stream of chat completions whose graph fails (its baseline: error.failure-stream).
    assert {each.id for each in verdict.against} == {"across/fail.answer:openai-chat"}
    assert "closed connection" in verdict.against[0].there.fault


@pytest.mark.timeout(60)
async def test_a_tool_of_mcp_means_what_the_same_agent_of_the_gateway_means(tmp_path: Path) -> None:
    options = ProbeOptions(triggers=Triggers({"plain": Trigger("Hello", agent="echo")}))
    async with start_server("mcp") as server, running(tmp_path) as gateway:
        verdict = judge(await play([gateway.url, f"{server.url}/mcp"], options, only=["plain", "turns"]))
    assert verdict.record.protocols[-1] == "mcp"
    assert [(each.id, each.difference) for each in verdict.findings] == []
    marks = {each.scenario.name: verdict.mark(each, "mcp") for each in verdict.record.played}
    assert marks == {"plain": "✓", "turns": "–"}
