"""Whole gateway for the tests of ACP: the real hub with a separate database, agents in process, and all routes."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from babelgate.adapters.kit.client.sse import Frames
from babelgate.gateway import demo
from babelgate.gateway.agents.python.agent import wrap
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.settings.model import DEMO
from tests.bridge import client
from tests.opened import opened as opened_gateway

BOUND = 30
"""Maximum time that a test waits for an event, in seconds."""
UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"
"""Valid id that does not exist."""


def message(*contents: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "parts": [{"content": content} for content in contents], **more}


def texts(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the text of each message, from its unnamed parts without metadata."""
    return [
        "".join(part["content"] or "" for part in each["parts"] if part["name"] is None and part["metadata"] is None)
        for each in messages
    ]


@dataclass
class Site:
    hub: GatewayHub
    app: Any
    http: httpx.AsyncClient
    gate: asyncio.Event
    """Event that lets the agent `gated` continue."""

    async def post(self, path: str, body: Any) -> httpx.Response:
        return await self.http.post(f"/acp{path}", content=json.dumps(body))

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.http.get(f"/acp{path}", headers=headers)

    async def create(self, agent: str, text: str = "Hello", **more: Any) -> httpx.Response:
        return await self.post("/runs", {"agent_name": agent, "input": [message(text)], **more})

    async def run(self, agent: str, text: str = "Hello", **more: Any) -> Any:
        answer = await self.create(agent, text, **more)
        assert answer.status_code in (200, 202), answer.text
        return answer.json()

    async def resume(self, run_id: str, answer: str | dict[str, Any], mode: str = "sync") -> httpx.Response:
        reply = message(answer) if isinstance(answer, str) else answer
        return await self.post(f"/runs/{run_id}", {"await_resume": {"type": "message", "message": reply}, "mode": mode})

    async def events(self, run_id: str) -> list[Any]:
        return (await self.get(f"/runs/{run_id}/events")).json()["events"]

    async def until(self, run_id: str, *statuses: str, times: int = 1) -> Any:
        """Return the run when it has reached one of the statuses `times` times, as counted in the stream of its
        events."""
        async with asyncio.timeout(BOUND):
            async with self.http.stream(
                "GET", f"/acp/runs/{run_id}/events", headers={"Accept": "text/event-stream"}
            ) as response:
                frames = Frames()
                async for chunk in response.aiter_bytes():
                    for found in frames.feed(chunk):
                        event = json.loads(found.data)
                        times -= event.get("run", {}).get("status") in statuses
                        if not times:
                            return event["run"]
        raise AssertionError(f"the run never reached {statuses}")


@asynccontextmanager
async def opened(
    folder: Path,
    agents: Mapping[str, Any] | None = None,
    *,
    registered: Sequence[RegisteredAgent] = (),
    continuable: Sequence[str] = (),
    base_url: str = "http://127.0.0.1:8000",
    **settings: Any,
) -> AsyncGenerator[Site]:
    gate = asyncio.Event()

    async def gated(text: str) -> AsyncGenerator[str]:
        """Send one word, and another when the gate opens."""
        yield "first"
        await gate.wait()
        yield " second"

    targets = {name: getattr(demo, name) for name in DEMO} | {"gated": gated} | dict(agents or {})
    local = [RegisteredAgent(*wrap(target, name)) for name, target in targets.items()]
    local = [
        RegisteredAgent(each.info.replace(continuable=each.info.name in continuable), each.agent) for each in local
    ]
    named = {each.info.name: each for each in (*local, *registered)}
    options: dict[str, Any] = {"default_agent": "echo", "network": {}, **settings}
    async with opened_gateway(folder, registered=named, **options) as gateway, client(gateway.app, base_url) as http:
        try:
            yield Site(gateway.hub, gateway.app, http, gate)
        finally:
            gate.set()
