"""Comparison of official servers whose agents do the same: across protocols, and with the gateway."""

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
async def test_official_servers_of_two_protocols_mean_the_same() -> None:
    only = ["plain", "stream", "turns", "question", "files", "fail", "cancel", "return"]
    options = ProbeOptions(triggers=read_triggers("sdk"), timeout=8.0)
    async with start_server("a2a-1.0") as a2a, start_server("acp") as acp:
        verdict = judge(await play([f"{a2a.url}/{{agent}}", acp.url], options, only=only))
    assert verdict.record.protocols == ["acp", "a2a-0.3", "a2a-1.0"]
    assert [(each.id, each.difference) for each in verdict.findings] == []
    assert verdict.is_same and verdict.played == len(only)
    # Neither server publishes the ids that a run has in other protocols.
    assert not verdict.shared


@pytest.mark.timeout(60)
async def test_openai_models_mean_the_same_directly_and_through_the_gateway(tmp_path: Path) -> None:
    """Compare GraphServe's chat completions and responses with every protocol of a gateway in front of it."""
    names = ("plain", "stream", "question", "fail")
    triggers = {name: Trigger("Hello", agent="fail" if name == "fail" else "echo") for name in names}
    only = ["plain", "stream", "turns", "fail"]
    async with start_server("graphserve") as server:
        configured = {name: {"url": f"{server.url}/v1", "agent": name} for name in ("echo", "fail")}
        async with running(tmp_path, configured=configured) as gateway:
            options = ProbeOptions(triggers=Triggers(triggers))
            verdict = judge(await play([f"{server.url}/v1", gateway.url], options, only=only))
    assert verdict.record.protocols[-3:] == ["openai-chat", "openai-responses", "mcp"]
    assert len(verdict.record.protocols) == 9
    # GraphServe cuts a stream of chat completions whose graph fails (its baseline: error.failure-stream).
    assert {each.id for each in verdict.against} == {"across/fail.answer:openai-chat"}
    assert "closed connection" in verdict.against[0].there.fault


@pytest.mark.timeout(60)
async def test_an_mcp_tool_means_the_same_as_a_gateway_agent(tmp_path: Path) -> None:
    options = ProbeOptions(triggers=Triggers({"plain": Trigger("Hello", agent="echo")}))
    async with start_server("mcp") as server, running(tmp_path) as gateway:
        verdict = judge(await play([gateway.url, f"{server.url}/mcp"], options, only=["plain", "turns"]))
    assert verdict.record.protocols[-1] == "mcp"
    assert [(each.id, each.difference) for each in verdict.findings] == []
    marks = {each.scenario.name: verdict.mark(each, "mcp") for each in verdict.record.played}
    assert marks == {"plain": "✓", "turns": "–"}
