"""Broken streams are resumed where the protocol allows it: no output is lost or repeated."""

import asyncio
from collections.abc import Awaitable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from babelgate.gateway.agents.registry import connect
from babelgate.gateway.settings.model import Settings
from tests.faults.proxy import Cut, Stall, status
from tests.faults.stage import BOUND, REATTACHING, WIRES, Stage, keeps_the_laws, words_of
from tests.gateway.hubs import eventually
from tests.running import running

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def within_bound(awaited: Awaitable[Any]) -> None:
    async with asyncio.timeout(BOUND):
        await awaited


@pytest.mark.parametrize("wire", REATTACHING)
@pytest.mark.parametrize("back", ["early", "late"])
@pytest.mark.parametrize("word", [0, 1, 2])
async def test_a_stream_that_breaks_between_words_is_resumed(stage: Stage, wire: str, word: int, back: str) -> None:
    """Reconnect while the agent still holds back the rest, or when it has emitted it."""
    text, proxy, players = stage.text(), stage.proxy(wire), stage.players["one"]
    players.go.clear()
    proxy.befall(WIRES[wire].starts, Cut(f"{text}-{word}".encode()))
    receipt = await stage.submit(f"{wire}.held", text)
    await within_bound((proxy.struck if back == "early" else proxy.came_back).wait())
    players.go.set()
    found = await stage.ended(receipt)
    assert (found.run.status, found.text) == ("success", words_of(text)), found.run.fault
    assert stage.started(text) == 1


@pytest.mark.parametrize("wire", REATTACHING)
@pytest.mark.usefixtures("hurried")
async def test_a_stream_that_breaks_repeatedly_is_resumed_each_time(stage: Stage, wire: str) -> None:
    text, proxy, players = stage.text(), stage.proxy(wire), stage.players["one"]
    players.go.clear()
    proxy.befall(WIRES[wire].starts, Cut(f"{text}-1".encode()))
    proxy.befall(b"", Cut(0), status(503), Cut(0, reset=True))
    receipt = await stage.submit(f"{wire}.held", text)
    await within_bound(proxy.came_back.wait())
    players.go.set()
    found = await stage.ended(receipt)
    assert (found.run.status, found.text) == ("success", words_of(text)), found.run.fault
    assert stage.started(text) == 1


@pytest.mark.parametrize("wire", REATTACHING)
@pytest.mark.parametrize("where", ["before its head", "behind its head", "at a word"])
@pytest.mark.parametrize("reset", [False, True])
async def test_an_answer_is_sent_once_despite_a_broken_stream(stage: Stage, wire: str, reset: bool, where: str) -> None:
    text, proxy = stage.text(), stage.proxy(wire)
    paused = await stage.run(f"{wire}.ask", text)
    assert paused.run.status == "paused", paused.run.fault
    after = {"before its head": 0, "behind its head": b"\r\n\r\n", "at a word": f"{text}-1".encode()}[where]
    proxy.befall(WIRES[wire].starts, Cut(after, reset))
    found = await stage.answer(paused.receipt, "Ada")
    players = stage.players["one"]
    assert (players.started[text], players.answered[text]) == (1, 1)
    await keeps_the_laws(stage, found, text, f"Ada: {words_of(text)}")
    assert found.ended_well, (wire, found.run.fault)


@pytest.mark.parametrize("wire", ["langgraph", "agent-protocol"])
@pytest.mark.parametrize("reset", [False, True])
async def test_a_run_without_a_response_is_found_on_its_server(stage: Stage, wire: str, reset: bool) -> None:
    text, proxy = stage.text(), stage.proxy(wire)
    proxy.befall(WIRES[wire].starts, Cut(0, reset))
    found = await stage.run(f"{wire}.tell", text)
    assert (found.run.status, found.text) == ("success", words_of(text)), found.run.fault
    assert stage.started(text) == 1


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("where", ["before its head", "behind its head"])
async def test_a_step_with_a_lost_response_is_read_later(stage: Stage, where: str, reset: bool) -> None:
    text, proxy = stage.text(), stage.proxy("aief")
    after = {"before its head": 0, "behind its head": b"\r\n\r\n"}[where]
    proxy.befall(WIRES["aief"].starts, Cut(after, reset))
    paused = await stage.run("aief.ask", text)
    assert paused.run.status == "paused", paused.run.fault
    proxy.befall(WIRES["aief"].starts, Cut(after, reset))
    found = await stage.answer(paused.receipt, "Ada")
    assert (found.run.status, found.text) == ("success", f"Ada: {words_of(text)}"), found.run.fault
    assert (stage.started(text), stage.players["one"].answered[text]) == (1, 1)


@pytest.mark.parametrize("wire", REATTACHING)
@pytest.mark.usefixtures("hurried")
async def test_a_server_that_stays_dead_fails_the_run(stage: Stage, wire: str) -> None:
    text, proxy = stage.text(), stage.proxy(wire)
    stage.players["one"].go.clear()
    proxy.befall(WIRES[wire].starts, Cut(f"{text}-1".encode()))
    receipt = await stage.submit(f"{wire}.held", text)
    await within_bound(proxy.struck.wait())
    proxy.shut()
    try:
        found = await stage.ended(receipt)
    finally:
        await proxy.open()
    await keeps_the_laws(stage, found, text)
    assert found.run.fault is not None
    assert found.run.fault.code == "agent_unreachable"
    assert found.text.startswith(f"{text}-0"), "what was heard is kept"


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("wire", REATTACHING)
@pytest.mark.usefixtures("hurried")
async def test_a_restarted_gateway_waits_for_the_server_of_a_run(
    stage: Stage, wire: str, is_known: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Restart the gateway before the server is back, with a working agent or with one that is broken at first."""
    text, proxy, players = stage.text(), stage.proxy(wire), stage.players["one"]
    settings = settings_of(stage, wire)
    players.go.clear()
    front = Stage(stage.proxies, stage.players)
    async with running(tmp_path, registered={"held": (await connect(settings)).get("held")}) as front.front:
        receipt = await front.submit("held", text)
        await front.wait_for_text(receipt, f"{text}-1")
    registry = await connect(settings) if is_known else None
    proxy.shut()
    registry = registry or await connect(settings)
    caplog.set_level("INFO", "babelgate.engine")
    async with aclosing(registry), running(tmp_path, registry=registry) as front.front:
        try:
            async with asyncio.timeout(BOUND):
                await eventually(lambda: "waits for the server of its agent" in caplog.text)
        finally:
            await proxy.open()
        players.go.set()
        found = await front.ended(receipt)
    assert (found.run.status, found.text) == ("success", words_of(text)), found.run.fault
    assert stage.started(text) == 1


@pytest.mark.parametrize("wire", REATTACHING)
@pytest.mark.usefixtures("hurried")
async def test_an_abandoned_run_is_cancelled_when_its_server_returns(stage: Stage, wire: str, tmp_path: Path) -> None:
    text, proxy, players = stage.text(), stage.proxy(wire), stage.players["one"]
    settings = settings_of(stage, wire)
    players.go.clear()
    front = Stage(stage.proxies, stage.players)
    async with running(tmp_path, registered={"held": (await connect(settings)).get("held")}) as front.front:
        receipt = await front.submit("held", text)
        await front.wait_for_text(receipt, f"{text}-1")
    registered = (await connect(settings)).get("held")
    proxy.shut()
    async with running(tmp_path, registered={"held": registered}, recovery={"patience": 0.01}) as front.front:
        try:
            found = await front.ended(receipt)
        finally:
            await proxy.open()
        assert found.run.fault is not None
        assert found.run.fault.code == "agent_unreachable"
        await within_bound(players.cancelled[text].wait())


def settings_of(stage: Stage, wire: str) -> Settings:
    at = {
        "url": stage.proxy(wire).url + WIRES[wire].path.format(agent="held"),
        "protocol": WIRES[wire].protocol,
        "agent": "held",
    }
    return Settings.model_validate({"agents": {"held": at}})


@pytest.mark.parametrize("wire", REATTACHING)
async def test_an_agent_that_falls_silent_is_cancelled(stage: Stage, wire: str) -> None:
    text, players = stage.text(), stage.players["one"]
    players.go.clear()
    found = await stage.run(f"{wire}.held.hasty", text)
    await keeps_the_laws(stage, found, text)
    assert found.run.fault is not None
    assert found.run.fault.code == "agent_timeout"
    await within_bound(players.cancelled[text].wait())


@pytest.mark.parametrize("wire", [*REATTACHING, "aief"])
async def test_a_run_over_its_total_timeout_ends(stage: Stage, wire: str) -> None:
    text = stage.text()
    stage.players["one"].go.clear()
    found = await stage.run(f"{wire}.held.brief", text)
    await keeps_the_laws(stage, found, text)
    assert found.run.status == "timeout"


@pytest.mark.parametrize("wire", REATTACHING)
async def test_a_cancel_reaches_an_agent_with_a_stalled_stream(stage: Stage, wire: str) -> None:
    text, proxy, players = stage.text(), stage.proxy(wire), stage.players["one"]
    players.go.clear()
    proxy.befall(WIRES[wire].starts, Stall(f"{text}-1".encode()))
    receipt = await stage.submit(f"{wire}.held", text)
    await stage.wait_for_text(receipt, f"{text}-0")
    await stage.front.hub.cancel("default", receipt.task_id)
    found = await stage.ended(receipt)
    assert found.run.status == "cancelled"
    assert words_of(text).startswith(found.text)
    await within_bound(players.cancelled[text].wait())
