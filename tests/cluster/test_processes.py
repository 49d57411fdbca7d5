"""Several gateways on one database, each a process: they are killed, suspended and terminated."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.hubs import within
from tests.gateway.stage import Puppets, Stage, nursery, puppets
from tests.postgres import empty, url_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

TAKEOVER_TIME = 15.0
"""Time until another node continues, in seconds."""


class Caller:
    """A caller that speaks ACP to the node of each call."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.run_id = ""

    async def begin(self, http: httpx.AsyncClient, words: str, session: str | None = None) -> None:
        body: dict[str, Any] = {"agent_name": self.agent, "mode": "async", "input": [message(words)]}
        if session is not None:
            body["session_id"] = session
        self.run_id = (await http.post("/acp/runs", json=body)).raise_for_status().json()["run_id"]

    async def look(self, http: httpx.AsyncClient) -> dict[str, Any]:
        return (await http.get(f"/acp/runs/{self.run_id}")).raise_for_status().json()

    async def reaches(self, http: httpx.AsyncClient, *wanted: str) -> dict[str, Any]:
        async def looked() -> dict[str, Any]:
            while (run := await self.look(http))["status"] not in wanted:
                assert run["status"] not in ("completed", "failed", "cancelled"), run
                await asyncio.sleep(0.05)
            return run

        return await within(looked(), f"one of {wanted}")


def message(words: str) -> dict[str, Any]:
    return {"role": "user", "parts": [{"content_type": "text/plain", "content": words}]}


def output_text(run: dict[str, Any]) -> str:
    return "".join(part["content"] for each in run["output"] for part in each["parts"])


class Theatre:
    def __init__(self, strings: Puppets, nodes: dict[str, Stage]) -> None:
        self.strings = strings
        self.nodes = nodes

    def signal(self, name: str, number: signal.Signals) -> None:
        pid = self.nodes[name].pid
        assert pid is not None
        os.kill(pid, number)


@asynccontextmanager
async def theatre(folder: Path, database: str, *names: str) -> AsyncGenerator[Theatre]:
    async with puppets() as strings, AsyncExitStack() as stack:
        nodes: dict[str, Stage] = {}
        for name in names:
            (folder / name).mkdir()
            agents = {
                "paced": {"python": "tests.gateway.victim:paced", "idempotent": True},
                "once": {"python": "tests.gateway.victim:paced"},
                "ask": {"python": "tests.gateway.victim:ask"},
            }
            shared = {"database": database, "cluster": True, "node": name, "blobs": str(folder / "blobs")}
            born = await stack.enter_async_context(nursery())
            nodes[name] = stage = Stage(folder / name, born, {"agents": agents, **shared})
            stack.push_async_callback(stage.close)
            await stage.start()
        yield Theatre(strings, nodes)
        strings.end_all()
        for stage in nodes.values():
            assert "Traceback" not in stage.complaints()


async def test_runs_of_a_killed_node_are_adopted_within_fifteen_seconds(postgres_tables: str, tmp_path: Path) -> None:
    empty(postgres_tables)
    async with theatre(tmp_path, url_of(postgres_tables), "a", "b") as stage:
        a, b = (stage.nodes[name].http for name in "ab")
        active, lost, paused = Caller("paced"), Caller("once"), Caller("ask")
        await active.begin(a, "going")
        await lost.begin(a, "lost")
        await paused.begin(a, "asked")
        await paused.reaches(a, "awaiting")
        first = await stage.strings.called("going")
        await stage.strings.called("lost")
        first.say(3)
        await asyncio.sleep(0)
        begun = time.monotonic()
        await stage.nodes["a"].killed()
        second = await within(stage.strings.called("going", 2), "the second attempt", TAKEOVER_TIME)
        failed = await lost.reaches(b, "failed")
        assert time.monotonic() - begun < TAKEOVER_TIME
        assert "The gateway's node a stopped during the run" in failed["error"]["message"]
        second.say(5)
        second.end()
        assert output_text(await active.reaches(b, "completed")) == second.content
        answer = {"run_id": paused.run_id, "mode": "sync", "await_resume": {"message": message("Ada")}}
        answered = (await b.post(f"/acp/runs/{paused.run_id}", json=answer)).raise_for_status().json()
        assert output_text(answered).endswith("Hello, Ada.")


async def test_a_suspended_node_loses_its_runs_and_serves_new_ones(postgres_tables: str, tmp_path: Path) -> None:
    empty(postgres_tables)
    async with theatre(tmp_path, url_of(postgres_tables), "a", "b") as stage:
        a, b = (stage.nodes[name].http for name in "ab")
        active = Caller("paced")
        await active.begin(a, "going")
        first = await stage.strings.called("going")
        first.say(2)
        stage.signal("a", signal.SIGSTOP)
        second = await within(stage.strings.called("going", 2), "the second attempt")
        second.say(3)
        stage.signal("a", signal.SIGCONT)
        first.words.append("never ")
        first.say(1)
        second.say(1)
        second.end()
        run = await active.reaches(b, "completed")
        assert output_text(run) == second.content
        assert output_text(await active.reaches(a, "completed")) == second.content
        new = Caller("paced")
        await new.begin(a, "new")
        puppet = await stage.strings.called("new")
        puppet.say(2)
        puppet.end()
        assert output_text(await new.reaches(b, "completed")) == puppet.content


async def test_a_rolling_restart_loses_nothing(postgres_tables: str, tmp_path: Path) -> None:
    empty(postgres_tables)
    async with theatre(tmp_path, url_of(postgres_tables), "a", "b") as stage:
        active, behind = Caller("paced"), Caller("paced")
        await active.begin(stage.nodes["a"].http, "going", session="00000000-0000-4000-8000-000000000001")
        await behind.begin(stage.nodes["b"].http, "behind", session="00000000-0000-4000-8000-000000000001")
        puppet = await stage.strings.called("going")
        puppet.say(2)
        for attempt, name in enumerate("ab", 2):
            stage.signal(name, signal.SIGTERM)
            puppet = await within(stage.strings.called("going", attempt), "the next attempt")
            puppet.say(1 + attempt)
            await stage.nodes[name].ended()
            await stage.nodes[name].start()
        puppet.end()
        http = stage.nodes["a"].http
        assert output_text(await active.reaches(http, "completed")) == puppet.content
        waited = await stage.strings.called("behind")
        waited.end()
        await behind.reaches(http, "completed")
