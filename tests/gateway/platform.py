"""Caller of the LangGraph API, and agents that run the test graphs."""

import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from babelgate.gateway.agents.langgraph.agent import wrap_graph
from tests.gateway.graphs import GRAPHS
from tests.running import Running, running

Frame = tuple[str, tuple[str, ...], Any]
"""Mode, namespace and data of one event of a stream."""

_DATA = re.compile(r"^(event|data): ?(.*)$")


def agents(*names: str) -> dict[str, object]:
    return {name: wrap_graph(GRAPHS[name](), name)[1] for name in names}


@asynccontextmanager
async def graphs_running(folder: Path, *names: str, **settings: Any) -> AsyncGenerator["Caller"]:
    """Start a gateway with some of the graphs, and yield its caller. A second start on the same folder is a restart."""
    async with running(folder, agents(*names), **settings) as gateway:
        yield Caller(gateway)


@dataclass(frozen=True, slots=True)
class Caller:
    gateway: Running

    async def _send(self, method: str, path: str, body: Any = None) -> Any:
        answer = await self.gateway.http.request(method, path, json=body)
        assert answer.status_code < 300, (answer.status_code, answer.text)
        return answer.json() if answer.content else None

    async def thread(self, **body: Any) -> str:
        return (await self._send("POST", "/threads", body))["thread_id"]

    async def wait(self, thread_id: str, agent: str, run_input: Any = None, **body: Any) -> Any:
        whole = {"assistant_id": agent, "input": run_input, **body}
        return await self._send("POST", f"/threads/{thread_id}/runs/wait", whole)

    async def resume(self, thread_id: str, agent: str, answer: Any, **body: Any) -> Any:
        return await self.wait(thread_id, agent, command={"resume": answer}, **body)

    async def stream(
        self, thread_id: str, agent: str, run_input: Any, *modes: str, subgraphs: bool = True, **body: Any
    ) -> list[Frame]:
        whole = {"assistant_id": agent, "stream_mode": list(modes), "stream_subgraphs": subgraphs, **body}
        whole |= {} if "command" in body else {"input": run_input}
        answer = await self.gateway.http.post(f"/threads/{thread_id}/runs/stream", json=whole)
        assert answer.status_code == 200, answer.text
        return _frames(answer.text)

    async def state(self, thread_id: str, checkpoint_id: str | None = None) -> Any:
        below = "" if checkpoint_id is None else f"/{checkpoint_id}"
        return await self._send("GET", f"/threads/{thread_id}/state{below}")

    async def history(self, thread_id: str, **body: Any) -> list[Any]:
        return await self._send("POST", f"/threads/{thread_id}/history", {"limit": 100, **body})

    async def update(self, thread_id: str, values: Any, **body: Any) -> str:
        response = await self._send("POST", f"/threads/{thread_id}/state", {"values": values, **body})
        return response["checkpoint"]["checkpoint_id"]

    async def get(self, path: str) -> Any:
        return await self._send("GET", path)

    async def post(self, path: str, body: Any = None) -> Any:
        return await self._send("POST", path, body)


@dataclass(frozen=True, slots=True)
class Thread:
    """Thread on which one graph runs."""

    caller: Caller
    graph: str
    thread_id: str

    async def wait(self, run_input: Any = None, **body: Any) -> Any:
        return await self.caller.wait(self.thread_id, self.graph, run_input, **body)

    async def resume(self, answer: Any, **body: Any) -> Any:
        return await self.caller.resume(self.thread_id, self.graph, answer, **body)

    async def stream(self, run_input: Any, *modes: str, **body: Any) -> list[Frame]:
        return await self.caller.stream(self.thread_id, self.graph, run_input, *modes, **body)

    async def state(self, checkpoint_id: str | None = None) -> Any:
        return await self.caller.state(self.thread_id, checkpoint_id)

    async def history(self) -> list[Any]:
        return await self.caller.history(self.thread_id)

    async def update(self, values: Any, **body: Any) -> str:
        return await self.caller.update(self.thread_id, values, **body)

    async def status(self) -> str:
        return (await self.caller.get(f"/threads/{self.thread_id}"))["status"]


async def begin(caller: Caller, graph: str, **body: Any) -> Thread:
    return Thread(caller, graph, await caller.thread(**body))


def _frames(text: str) -> list[Frame]:
    frames: list[Frame] = []
    for block in re.split(r"\r?\n\r?\n", text):
        matches = [match for line in block.splitlines() if (match := _DATA.match(line))]
        fields: dict[str, str] = {match[1]: match[2] for match in matches}
        if "event" in fields:
            mode, *ns = fields["event"].split("|")
            frames.append((mode, tuple(ns), json.loads(fields["data"])))
    return frames
