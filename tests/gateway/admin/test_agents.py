"""The kill switch of agents, in every protocol, on one node and on two, and probes of their servers."""

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from babelgate.gateway.agents.python.agent import wrap
from babelgate.gateway.registered_agent import RegisteredAgent
from tests.behaviour.test_retry_after import CALLS, STARTS, post
from tests.gateway.admin.administering import ALICE, OPS, administered, two_nodes, until
from tests.gateway.hubs import within
from tests.running import Running, running

REASON = "It sends wrong invoices (INC-7)."
TOOL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "busy", "arguments": {"message": "Hi"}}}
MCP = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
ANYWHERE: list[Any] = [
    *CALLS,
    *(call for call in STARTS if call not in CALLS and call[0] != "/threads"),
    ("/v1/responses", {"model": "busy", "input": "Hi", "stream": True}, {}, 429),
    ("/mcp", TOOL, MCP, 200),
]
"""Requests that start a run, in every protocol."""


async def answering(text: str) -> str:
    return f"You said {text}"


async def disable(gateway: Running, name: str, **body: Any) -> httpx.Response:
    body = {"reason": REASON, **body}
    response = await gateway.http.post(f"/admin/agents/{name}/disable", json=body, headers=OPS)
    assert response.status_code == 200, response.text
    return response


async def enable(gateway: Running, name: str) -> None:
    assert (await gateway.http.post(f"/admin/agents/{name}/enable", headers=OPS)).status_code == 200


async def start(gateway: Running, name: str, mode: str = "async") -> httpx.Response:
    body = {"agent_name": name, "input": [{"parts": [{"content": "Hi"}]}], "mode": mode}
    return await gateway.http.post("/acp/runs", json=body, headers=ALICE)


async def status_of(gateway: Running, run_id: str, *wanted: str) -> None:
    get = partial(gateway.http.get, f"/acp/runs/{run_id}", headers=ALICE)
    await until(get, lambda response: response.json()["status"] in wanted, f"one of {wanted}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def disabled(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with administered(tmp_path_factory.mktemp("disabled"), {"busy": answering}) as gateway:
        await disable(gateway, "busy")
        yield gateway


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("path", "body", "headers", "code"), ANYWHERE)
async def test_every_protocol_tells_the_reason_and_no_retry(
    disabled: Running, path: str, body: Any, headers: Any, code: int
) -> None:
    answer = await post(disabled.http, path, body, {**headers, **ALICE})
    assert answer.status_code == (200 if code == 200 else 503), answer.text
    assert "retry-after" not in answer.headers
    assert f"Agent busy is disabled and starts no runs: {REASON}" in answer.text
    if path.startswith("/v1/") and path != "/v1/runs":
        assert answer.headers["x-should-retry"] == "false"


async def test_an_enabled_agent_runs_again(tmp_path: Path, database: dict[str, Any]) -> None:
    async with administered(tmp_path, {"busy": answering}, **database) as gateway:
        agent = (await disable(gateway, "busy")).json()
        assert agent["disabled"].items() >= {"running": "drain", "reason": REASON, "by": "key:ops"}.items()
        assert (await start(gateway, "busy")).status_code == 503
        await enable(gateway, "busy")
        run = (await start(gateway, "busy", "sync")).json()
        assert run["status"] == "completed"


async def test_a_disabled_agent_stays_disabled_after_a_restart(tmp_path: Path, database: dict[str, Any]) -> None:
    async with administered(tmp_path, {"busy": answering}, **database) as gateway:
        await disable(gateway, "busy")
    async with administered(tmp_path, {"busy": answering}, **database) as gateway:
        assert REASON in (await start(gateway, "busy")).text
        await enable(gateway, "busy")
    async with administered(tmp_path, {"busy": answering}, **database) as gateway:
        assert (await start(gateway, "busy", "sync")).status_code == 200


class Gated:
    """Agent that tells when it runs and when it is cancelled."""

    def __init__(self) -> None:
        self.started = asyncio.Semaphore(0)
        self.cancelled = asyncio.Event()
        self.released = asyncio.Event()

    async def run(self, text: str) -> str:
        self.started.release()
        try:
            await self.released.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return "done"

    def registered(self) -> dict[str, RegisteredAgent]:
        return {"gated": RegisteredAgent(*wrap(self.run, "gated"), concurrency=1)}


async def test_running_runs_drain_and_queued_ones_wait(tmp_path: Path) -> None:
    agent = Gated()
    async with administered(tmp_path, registered=agent.registered()) as gateway:
        first = (await start(gateway, "gated")).json()["run_id"]
        await within(agent.started.acquire())
        second = (await start(gateway, "gated")).json()["run_id"]
        await disable(gateway, "gated", running="drain")
        agent.released.set()
        await status_of(gateway, first, "completed")
        await status_of(gateway, second, "created")
        assert agent.started.locked()  # the second has not begun
        await enable(gateway, "gated")
        await status_of(gateway, second, "completed")


async def test_running_runs_are_cancelled(tmp_path: Path) -> None:
    agent = Gated()
    async with administered(tmp_path, registered=agent.registered()) as gateway:
        first = (await start(gateway, "gated")).json()["run_id"]
        await within(agent.started.acquire())
        second = (await start(gateway, "gated")).json()["run_id"]
        await disable(gateway, "gated", running="cancel")
        await within(agent.cancelled.wait())
        await status_of(gateway, first, "cancelled")
        await status_of(gateway, second, "created")
        agent.released.set()
        await enable(gateway, "gated")
        await status_of(gateway, second, "completed")


async def test_an_agent_is_disabled_on_all_nodes(tmp_path: Path, postgres_url: str) -> None:
    agent = Gated()
    async with two_nodes(tmp_path, postgres_url, registered=agent.registered()) as (a, b):
        run_id = (await start(b, "gated")).json()["run_id"]
        await within(agent.started.acquire())
        await disable(a, "gated", running="cancel")
        await within(agent.cancelled.wait())
        await status_of(a, run_id, "cancelled")
        refused = await until(lambda: start(b, "gated"), lambda response: response.status_code == 503, "the refusal")
        assert REASON in refused.text
        await enable(b, "gated")
        agent.released.set()
        await until(lambda: start(a, "gated"), lambda response: response.status_code < 300, "the run")


@pytest.mark.parametrize(
    ("name", "body", "status", "words"),
    [
        ("busy", {}, 400, "missing required field `reason`"),
        ("busy", {"reason": " "}, 400, "reason: expected 1 to 500 printable characters"),
        ("busy", {"reason": "x", "running": "kill"}, 400, "Invalid enum value 'kill'"),
        ("nobody", {"reason": "x"}, 404, "There is no agent 'nobody'"),
    ],
)
async def test_a_wrong_switch_is_refused(tmp_path: Path, name: str, body: Any, status: int, words: str) -> None:
    async with administered(tmp_path, {"busy": answering}) as gateway:
        response = await gateway.http.post(f"/admin/agents/{name}/disable", json=body, headers=OPS)
        assert (response.status_code, words in response.text) == (status, True), response.text


async def test_a_probe_asks_the_servers_and_starts_no_run(tmp_path: Path) -> None:
    home = tmp_path / "upstream"
    home.mkdir()
    async with running(home, {"busy": answering}) as upstream:
        agents = {"far": {"url": f"{upstream.url}/acp", "agent": "busy"}}
        async with administered(tmp_path, configured=agents) as gateway:
            probe = (await gateway.http.post("/admin/agents/far/probe", headers=OPS)).json()
            assert (probe["ok"], probe["name"], probe["status"]) == (True, "far", "ok"), probe
            assert probe["servers"][0]["ok"]
            upstream.hub.close_readers()
    async with administered(tmp_path, configured=agents) as gateway:
        probe = (await gateway.http.post("/admin/agents/far/probe", headers=OPS)).json()
        assert (probe["ok"], probe["status"], probe["servers"][0]["ok"]) == (False, "broken", False), probe
