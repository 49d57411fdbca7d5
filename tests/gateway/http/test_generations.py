"""Tests of generations: what a reload replaces, and what continues with the generation before."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from babelgate.gateway.agents.registry import Registry
from babelgate.gateway.http.generations import Generations, ReloadReport
from babelgate.gateway.settings.load import ConfigError
from babelgate.gateway.settings.model import Settings
from tests.gateway.hubs import eventually, within
from tests.gateway.load import run_body
from tests.gateway.log_capture import capture_log
from tests.running import Running, running

ECHO = {"python": "babelgate.gateway.demo:echo"}
SLOW = {"python": "babelgate.gateway.demo:slow"}
KEY, OTHER = "alice-0123456789", "bob-0123456789ab"


async def apply(gateway: Running, agents: Mapping[str, Any], **settings: Any) -> ReloadReport:
    """Apply settings with the database of the gateway."""
    values = {"database": gateway.settings.database, "network": gateway.settings.network, **settings}
    return await within(gateway.generations.apply(Settings.model_validate({**values, "agents": agents})), "the reload")


async def names(http: httpx.AsyncClient) -> list[str]:
    return [each["name"] for each in (await http.get("/acp/agents")).json()["agents"]]


async def test_agents_limits_and_origins_are_replaced_together(tmp_path: Path) -> None:
    async with running(tmp_path, configured={"a": ECHO, "b": ECHO}) as gateway:
        agent_before = gateway.hub.registry.get("a").agent
        origin = {"Origin": "https://app.example"}
        assert (await gateway.http.post("/acp/runs", json=run_body("a"), headers=origin)).status_code == 401
        report = await apply(
            gateway, {"a": {**ECHO, "concurrency": 2}, "c": ECHO}, cors=["https://app.example"], limits={"input": 1000}
        )
        assert report.applied == ("cors", "limits.input", "agents.a", "agents.b", "agents.c")
        assert await names(gateway.http) == ["a", "c"]
        assert gateway.hub.registry.get("a").agent is agent_before
        assert (await gateway.http.post("/acp/runs", json=run_body("a"), headers=origin)).status_code == 200
        assert (await gateway.http.post("/acp/runs", json=run_body("a", "x" * 1001))).status_code == 413
        assert (await gateway.http.post("/acp/runs", json=run_body("b"))).status_code == 404


gates: list[asyncio.Event] = []


@pytest.fixture
async def gate() -> asyncio.Event:
    """Event that lets the agent `held` end."""
    gates[:] = [asyncio.Event()]
    return gates[0]


async def held(text: str) -> AsyncGenerator[str]:
    """Yield a word, and wait until the test lets the agent end."""
    yield "begun"
    await gates[0].wait()
    yield " ended"


HELD = {"python": f"{__name__}:held"}


async def until(lines: Any, text: str) -> None:
    """Read lines up to the one with a text."""
    async for line in lines:
        if text in line:
            return
    raise AssertionError(f"the stream ended before {text}")


async def completes(http: httpx.AsyncClient, run_id: str) -> None:
    """Request a run repeatedly until its status is `completed`."""
    while (await http.get(f"/acp/runs/{run_id}")).json()["status"] != "completed":
        pass


async def test_run_of_a_removed_agent_ends_normally(tmp_path: Path, gate: asyncio.Event) -> None:
    async with running(tmp_path, configured={"held": {**HELD, "concurrency": 1}, "echo": ECHO}) as gateway:
        async with gateway.http.stream("POST", "/acp/runs", json=run_body("held", mode="stream")) as response:
            lines = response.aiter_lines()
            await within(until(lines, "begun"))
            queued = (await gateway.http.post("/acp/runs", json=run_body("held", mode="async"))).json()["run_id"]
            await apply(gateway, {"echo": ECHO})
            assert await names(gateway.http) == ["echo"]
            assert (await gateway.http.post("/acp/runs", json=run_body("held"))).status_code == 404
            gate.set()
            await within(until(lines, "run.completed"))
        await within(completes(gateway.http, queued), "the end of the queued run")


@pytest.mark.usefixtures("gate")
async def test_run_of_a_removed_agent_fails_after_the_drain(tmp_path: Path) -> None:
    async with (
        running(tmp_path, configured={"held": HELD, "echo": ECHO}) as gateway,
        gateway.http.stream("POST", "/acp/runs", json=run_body("held", mode="stream")) as response,
    ):
        lines = response.aiter_lines()
        await within(until(lines, "begun"))
        await apply(gateway, {"echo": ECHO}, drain=0.01)
        await within(until(lines, "the run did not end within 0.01 seconds"))


async def test_a_higher_concurrency_starts_queued_runs(tmp_path: Path, gate: asyncio.Event) -> None:
    async with running(tmp_path, configured={"held": {**HELD, "concurrency": 1}}) as gateway:
        for _ in range(2):
            await gateway.http.post("/acp/runs", json=run_body("held", mode="async"))
        await within(eventually(lambda: len(gateway.hub.engine.active) == 1))
        await apply(gateway, {"held": {**HELD, "concurrency": 2}})
        await within(eventually(lambda: len(gateway.hub.engine.active) == 2))
        gate.set()
        await within(gateway.hub.engine.idle())


@pytest.mark.parametrize(("after", "is_ended"), [({"alice": KEY}, False), ({"alice": OTHER}, True), ({}, True)])
async def test_stream_ends_when_its_key_is_revoked(
    tmp_path: Path, gate: asyncio.Event, after: dict[str, str], is_ended: bool
) -> None:
    async with running(tmp_path, configured={"held": HELD}, keys={"alice": KEY}) as gateway:
        headers = {"Authorization": f"Bearer {KEY}"}
        body = run_body("held", mode="stream")
        async with gateway.http.stream("POST", "/acp/runs", json=body, headers=headers) as response:
            lines = response.aiter_lines()
            await within(until(lines, "begun"))
            await apply(gateway, {"held": HELD}, keys=after)
            gate.set()
            if is_ended:
                with pytest.raises(httpx.RemoteProtocolError):
                    await within(until(lines, "run.completed"))
            else:
                await within(until(lines, "run.completed"))


async def test_settings_of_the_start_are_named_in_a_warning(tmp_path: Path) -> None:
    with capture_log() as log:
        async with running(tmp_path, configured={"a": ECHO}) as gateway:
            report = await apply(gateway, {"a": ECHO}, port=9000, workers=1, limits={"run": 5})
    assert (report.applied, report.needs_restart) == (("limits.run",), ("port",))
    lines = log.of("babelgate.reload")
    assert lines == ["port: needs a restart", "limits.run: applied", "configuration reloaded applied=1 needs_restart=1"]


async def test_a_new_broken_agent_is_listed_with_its_reason(tmp_path: Path) -> None:
    async with running(tmp_path, configured={"a": ECHO}) as gateway:
        report = await apply(gateway, {"a": ECHO, "b": {"python": "no_such_module:agent"}})
        (line,) = report.broken
        assert line.startswith("b: cannot import no_such_module")
        assert (await gateway.http.post("/acp/runs", json=run_body("a"))).status_code == 200


async def test_a_reload_everywhere_reaches_the_other_workers() -> None:
    reloads: list[str] = []
    settings = Settings.model_validate({"agents": {"a": ECHO}})
    broken = [ConfigError("babelgate.yaml: port: a mistake")]

    def load() -> Settings:
        if broken:
            raise broken.pop()
        return settings

    generations = Generations(settings, Registry([]), load=load, spread=lambda: reloads.append("others"))
    assert (await generations.reload(everywhere=True)).mistakes == ("babelgate.yaml: port: a mistake",)
    assert reloads == []
    assert (await generations.reload()).is_ok
    assert reloads == []
    assert (await generations.reload(everywhere=True)).is_ok
    assert reloads == ["others"]
    await generations.aclose()


async def test_a_secret_that_cannot_sign_changes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, configured={"a": ECHO}) as gateway:
        before = gateway.generations.current
        report = await apply(gateway, {"a": ECHO, "b": ECHO}, webhook_secret="whsec_not base64")
        assert report.mistakes == ("webhook_secret: expected base64 after whsec_",)
        assert gateway.generations.current is before
        assert await names(gateway.http) == ["a"]
