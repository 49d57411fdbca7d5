"""Agents with several servers: the choice of the server for a run, the pause after failures, and its reports."""

import asyncio
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

import httpx
import pytest

from babelgate.adapters.acp.client import Client
from babelgate.gateway.agents.failover import FailoverServer, server_pool
from babelgate.gateway.agents.registry import connect
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.settings.model import Settings
from tests.faults.proxy import Cut, Proxy, Stall, Trouble, status
from tests.faults.stage import BOUND, COOLDOWN, WIRES, Stage, keeps_the_laws, serves, words_of
from tests.gateway.hubs import eventually
from tests.gateway.log_capture import capture_log
from tests.running import running

pytestmark = pytest.mark.asyncio(loop_scope="module")

SOME: Final = ("acp", "aief", "openai")
"""Protocols for tests that do not depend on the protocol."""
SEVERAL: Final = tuple(name for name, wire in WIRES.items() if not wire.models)

FAILINGS: Final[dict[str, Trouble | None]] = {
    "refuses connections": None,
    "resets connections": Cut(0, reset=True),
    "answers 500": status(500),
    "answers 503": status(503),
    "answers with a page": status(200),
    "says nothing": Stall(0),
}


async def until(holds: Callable[[], bool]) -> None:
    """Run the event loop until the condition holds, for conditions without an event."""
    async with asyncio.timeout(BOUND):
        await eventually(holds)


async def fail(proxy: Proxy, trouble: Trouble | None) -> None:
    if trouble is None:
        proxy.shut()
    else:
        proxy.luck = lambda: trouble


async def recover(proxy: Proxy, trouble: Trouble | None) -> None:
    proxy.luck = None
    if trouble is None:
        await proxy.open()


@pytest.mark.parametrize("wire", SEVERAL)
@pytest.mark.usefixtures("hurried")
async def test_another_server_takes_over_and_keeps_the_conversation(stage: Stage, wire: str) -> None:
    agent, one, two = f"{wire}.remember.both", stage.proxies["one"], stage.proxies["two"]
    first, second, third = stage.text(), stage.text(), stage.text()
    one.shut()
    begun = await stage.run(agent, first)
    await one.open()
    assert begun.ended_well, begun.run.fault
    assert "is failing" in await stage.ready(agent)
    going_on = await stage.run(agent, second, thread_id=begun.receipt.thread_id)
    assert going_on.ended_well, going_on.run.fault
    assert going_on.text != "0 before", "it is the same conversation"
    two.shut()
    lost = await stage.run(agent, third, thread_id=begun.receipt.thread_id)
    await two.open()
    assert lost.run.fault is not None
    assert lost.run.fault.code == "agent_unreachable"
    players = stage.players
    assert [players["two"].started[text] for text in (first, second, third)] == [1, 1, 0]
    assert [players["one"].started[text] for text in (first, second, third)] == [0, 0, 0]


@pytest.mark.parametrize("wire", SEVERAL)
async def test_an_answer_goes_to_the_server_of_the_question(stage: Stage, wire: str) -> None:
    text, one = stage.text(), stage.proxies["one"]
    one.shut()
    paused = await stage.run(f"{wire}.ask.both", text)
    await one.open()
    assert paused.run.status in ("paused", "success"), paused.run.fault
    if paused.run.status == "paused":
        found = await stage.answer(paused.receipt, "Ada")
        assert (found.run.status, found.text) == ("success", f"Ada: {words_of(text)}"), found.run.fault
    assert stage.players["one"].started[text] == 0


@pytest.mark.parametrize("wire", SEVERAL)
async def test_no_other_server_is_tried_after_a_connection(stage: Stage, wire: str) -> None:
    text = stage.text()
    stage.proxies["one"].befall(WIRES[wire].starts, Cut(0))
    found = await stage.run(f"{wire}.tell.both", text)
    await keeps_the_laws(stage, found, text)
    assert stage.started(text) == 1
    assert stage.proxies["two"].links == []
    await serves(stage, f"{wire}.tell.both")


@pytest.mark.parametrize("wire", WIRES)
async def test_a_server_that_returns_soon_gets_the_run(stage: Stage, wire: str) -> None:
    agent, text, proxy = f"{wire}.watched.1", stage.text(), stage.proxy(wire)
    proxy.shut()
    receipt = await stage.submit(agent, text)
    await until(lambda: stage.health(agent) == ["failing"])
    await proxy.open()
    found = await stage.ended(receipt)
    assert (found.run.status, found.text) == ("success", words_of(text)), found.run.fault


@pytest.mark.parametrize(
    ("wire", "failing"),
    [(wire, failing) for wire in WIRES for failing in FAILINGS if failing != "says nothing" or wire in SOME],
)
@pytest.mark.usefixtures("hurried")
async def test_a_failing_server_is_skipped_and_probed_after_a_pause(stage: Stage, wire: str, failing: str) -> None:
    agent, proxy, trouble = f"{wire}.watched.1", stage.proxy(wire), FAILINGS[failing]
    await serves(stage, agent)
    with capture_log() as log:
        await fail(proxy, trouble)
        for _ in range(2):
            text = stage.text()
            found = await stage.run(agent, text)
            await keeps_the_laws(stage, found, text)
            assert not found.ended_well
            if stage.health(agent) == ["open"]:
                break
        assert stage.health(agent) == ["open"]
        requests, text = len(proxy.links), stage.text()
        found = await stage.run(agent, text)
        assert found.run.fault is not None
        assert found.run.fault.code == "agent_unreachable"
        assert found.run.fault.details["retry_after"] == COOLDOWN
        assert (len(proxy.links), stage.started(text)) == (requests, 0), "nobody asked it"
        assert "is open" in await stage.ready(agent)
        assert await stage.ready("local") == "ok"
        assert (await stage.run("local", "Hello")).text == "Hello"

        stage.now += COOLDOWN
        assert not (await stage.run(agent, stage.text())).ended_well, "it still fails"
        assert stage.health(agent) == ["open"]

        await recover(proxy, trouble)
        stage.now += COOLDOWN
        await serves(stage, agent)
    assert stage.health(agent) == ["ok"]
    assert await stage.ready(agent) == "ok"
    assert log.errors == []


@pytest.mark.parametrize("wire", WIRES)
async def test_a_server_that_refuses_is_healthy(stage: Stage, wire: str) -> None:
    agent, proxy = f"{wire}.watched.1", stage.proxy(wire)
    await serves(stage, agent)
    await fail(proxy, status(429, retry_after=7))
    for _ in range(3):
        found = await stage.run(agent, stage.text())
        assert found.run.fault is not None
        assert (found.run.fault.details["status"], found.run.fault.details["retry_after"]) == (429, 7)
        assert stage.health(agent) == ["ok"]


@pytest.mark.parametrize("wire", WIRES)
async def test_a_refusal_is_logged_once_with_its_reason(stage: Stage, wire: str) -> None:
    agent, proxy = f"{wire}.watched.1", stage.proxy(wire)
    await serves(stage, agent)
    await fail(proxy, status(429, retry_after=7))
    with capture_log(logging.WARNING) as log:
        found = await stage.run(agent, stage.text())
    await recover(proxy, status(429))
    (line,) = log.of("babelgate.upstream")
    receipt, details = found.receipt, found.run.fault and found.run.fault.details
    assert details and details["body"] == "<html>out of order</html>"
    for text in (
        f"agent={agent} server=http://127.0.0.1:",
        f"protocol={WIRES[wire].protocol} code=limited status=429",
        f"thread={receipt.thread_id} task={receipt.task_id} run={receipt.run_id}",
        "reason=\"The agent's server answered 429",
        'body="<html>out of order</html>"',
    ):
        assert text in line


@pytest.mark.usefixtures("hurried")
async def test_each_failed_attempt_is_logged_once(stage: Stage) -> None:
    stage.proxies["one"].shut()
    with capture_log(logging.WARNING) as log:
        await stage.run("acp.watched.1", stage.text())
    await stage.proxies["one"].open()
    stage.now += COOLDOWN
    await serves(stage, "acp.watched.1")
    codes = [line.partition(" code=")[2].partition(" ")[0] for line in log.of("babelgate.upstream")]
    assert codes == ["agent_unreachable"] * 2, "the server must be skipped after the second failure"


@pytest.mark.usefixtures("hurried")
async def test_a_call_to_a_skipped_server_fails_at_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, proxy = "acp.watched.1", stage.proxies["one"]
    await serves(stage, agent)
    proxy.shut()
    while stage.health(agent) != ["open"]:
        await stage.run(agent, stage.text())
    await proxy.open()
    monkeypatch.setattr("babelgate.gateway.agents.failover._RETRY_DELAYS", (10 * BOUND,))
    receipt = await stage.submit(agent, stage.text())
    try:
        found = await stage.ended(receipt)
    finally:
        stage.now += COOLDOWN
        await stage.ended(receipt)
    assert not found.ended_well


@pytest.mark.parametrize("wire", SOME)
@pytest.mark.usefixtures("hurried")
async def test_one_run_at_a_time_probes_a_failed_server(stage: Stage, wire: str) -> None:
    agent, proxy = f"{wire}.watched.1", stage.proxy(wire)
    await serves(stage, agent)
    proxy.shut()
    while stage.health(agent) != ["open"]:
        await stage.run(agent, stage.text())
    await proxy.open()
    stage.now += COOLDOWN
    proxy.befall(b"", Stall(0, asks=False))
    looking = await stage.submit(agent, stage.text())
    async with asyncio.timeout(BOUND):
        await proxy.struck.wait()
    assert stage.health(agent) == ["probing"]
    text = stage.text()
    found = await stage.run(agent, text)
    assert found.run.fault is not None
    assert "retry_after" in found.run.fault.details
    assert stage.started(text) == 0
    await stage.ended(looking)
    assert stage.health(agent) == ["open"]
    stage.now += COOLDOWN
    await serves(stage, agent)


@pytest.mark.parametrize("wire", SOME[:2])
@pytest.mark.usefixtures("hurried")
async def test_a_conversation_learns_the_pause_of_its_server(stage: Stage, wire: str) -> None:
    agent, text = f"{wire}.watched.2", stage.text()
    first = await stage.run(agent, text)
    assert first.ended_well, first.run.fault
    stage.proxies["one"].shut()
    while "open" not in stage.health(agent):
        await stage.run(agent, stage.text(), thread_id=first.receipt.thread_id)
    found = await stage.run(agent, stage.text(), thread_id=first.receipt.thread_id)
    await stage.proxies["one"].open()
    assert found.run.fault is not None
    assert found.run.fault.details["retry_after"] == COOLDOWN
    elsewhere = stage.text()
    assert (await stage.run(agent, elsewhere)).ended_well
    assert stage.players["two"].started[elsewhere] == 1


@pytest.mark.parametrize("wire", WIRES)
async def test_a_connection_closed_by_its_server_is_not_reused(stage: Stage, wire: str) -> None:
    proxy = stage.proxy(wire)
    proxy.keeps = True
    for _ in range(3):
        text = stage.text()
        found = await stage.run(f"{wire}.tell", text)
        assert (found.run.status, found.text) == ("success", words_of(text)), found.run.fault
        proxy.hang_up()


async def test_an_agent_with_one_reachable_server_works_at_startup(stage: Stage) -> None:
    one, two = stage.proxies["one"], stage.proxies["two"]
    one.shut()
    agent = {"urls": [f"{one.url}/acp", f"{two.url}/acp"], "protocol": "acp", "agent": "tell"}
    registry = await connect(Settings.model_validate({"agents": {"tell": agent}}))
    await one.open()
    broken = registry.get("tell").broken
    await registry.aclose()
    assert broken is None


async def test_another_server_replaces_one_without_connections(stage: Stage, tmp_path: Path) -> None:
    """Try a server whose queue of connections is full, so that its system does not answer."""
    one = stage.proxies["one"]
    with socket.socket() as deaf, socket.socket() as first, socket.socket() as second:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for each in (first, second):
            each.setblocking(False)
            each.connect_ex(deaf.getsockname())
        timeout = httpx.Timeout(BOUND, connect=0.2)
        urls = [f"http://127.0.0.1:{deaf.getsockname()[1]}/acp", f"{one.url}/acp"]
        servers = [FailoverServer(url, Client(url, "tell", timeout=timeout)) for url in urls]
        registered = RegisteredAgent(stage.registered["acp.tell"].info, server_pool(servers))
        async with running(tmp_path, registered={"acp.tell": registered}) as front:
            other = Stage(stage.proxies, stage.players)
            other.front = front
            text = stage.text()
            found = await other.run("acp.tell", text)
    assert (found.run.status, found.text) == ("success", words_of(text)), found.run.fault
