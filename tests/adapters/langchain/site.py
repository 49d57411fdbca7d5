"""Gateway for the tests of LangGraph Platform and the Agent Protocol.

It has a real hub and real sockets, the demo agents, and a scripted agent.
"""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from babelgate.adapters.kit.client.sse import Frame, Frames
from babelgate.gateway import demo
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.settings.model import DEMO
from tests.gateway.hubs import Scripted, within
from tests.running import Running, running

SHARED = pytest.mark.asyncio(loop_scope="module")
"""Marker of tests that share a gateway with the other tests of their module (`conftest.py`)."""
ALONE = pytest.mark.asyncio(loop_scope="function")
"""Marker of a test in a module of `SHARED` tests that needs a separate gateway, because it counts all threads or
runs."""


def shares(request: pytest.FixtureRequest) -> bool:
    marker = request.node.get_closest_marker("asyncio")
    return marker is not None and marker.kwargs.get("loop_scope") == "module"


NOBODY = "00000000-0000-4000-8000-000000000000"
"""Well-formed id of something that does not exist."""


def user_input(*texts: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text} for text in texts]}


def events(content: bytes) -> list[tuple[str, Any]]:
    return [(frame.event, json.loads(frame.data)) for frame in Frames().all([content])]


class Stream:
    """Open stream, read frame by frame."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.content = b""
        """All bytes that were read."""
        self._frames = self._read()

    async def _read(self) -> AsyncGenerator[Frame]:
        frames = Frames()
        async for chunk in self.response.aiter_bytes():
            self.content += chunk
            for frame in frames.feed(chunk):
                yield frame

    async def next(self) -> Frame:
        return await within(anext(self._frames), "the next frame")

    async def until(self, event: str) -> Frame:
        while (frame := await self.next()).event != event:
            pass
        return frame

    async def rest(self) -> list[Frame]:
        async def read() -> list[Frame]:
            return [frame async for frame in self._frames]

        return await within(read(), "the end of the stream")


@dataclass(frozen=True)
class Site:
    gateway: Running
    agent: Scripted
    """Agent with the name `scripted`, which waits for instructions of the test in every call."""

    @property
    def http(self) -> httpx.AsyncClient:
        return self.gateway.http

    async def post(self, path: str, body: Any = None, **headers: str) -> httpx.Response:
        content = None if body is None else json.dumps(body)
        return await within(self.http.post(path, content=content, headers=headers), f"POST {path}")

    async def get(self, path: str, **headers: str) -> httpx.Response:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return await within(self.http.get(path, headers=names), f"GET {path}")

    async def ok(self, path: str, body: Any = None) -> Any:
        answer = await self.post(path, body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def thread(self, **fields: Any) -> str:
        return (await self.ok("/threads", fields))["thread_id"]

    async def look(self, path: str) -> Any:
        answer = await self.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def create(self, thread_id: str, agent: str = "scripted", input: Any = "hi", **fields: Any) -> httpx.Response:
        return await self.post(f"/threads/{thread_id}/runs", {"assistant_id": agent, "input": input, **fields})

    async def run(self, thread_id: str, agent: str = "scripted", input: Any = "hi", **fields: Any) -> str:
        answer = await self.create(thread_id, agent, input, **fields)
        assert answer.status_code == 200, answer.text
        return answer.json()["run_id"]

    async def wait(self, thread_id: str, agent: str = "echo", input: Any = "hi", **fields: Any) -> Any:
        return await self.ok(f"/threads/{thread_id}/runs/wait", {"assistant_id": agent, "input": input, **fields})

    async def status(self, thread_id: str, run_id: str) -> str | int:
        """Return the status of a run, or the HTTP status if the run is not found."""
        answer = await self.get(f"/threads/{thread_id}/runs/{run_id}")
        return answer.json()["status"] if answer.status_code == 200 else answer.status_code

    async def ends(self, thread_id: str, run_id: str) -> str | int:
        await self.get(f"/threads/{thread_id}/runs/{run_id}/join")
        return await self.status(thread_id, run_id)

    @asynccontextmanager
    async def streaming(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[Stream]:
        content = None if body is None else json.dumps(body)
        async with self.http.stream(method, path, content=content, headers=dict(headers or {})) as response:
            yield Stream(response)


@asynccontextmanager
async def opened(
    folder: Path,
    agents: Mapping[str, object] | None = None,
    registered: Mapping[str, RegisteredAgent] | None = None,
    **settings: Any,
) -> AsyncGenerator[Site]:
    """Yield a gateway with the demo agents, `scripted`, and the passed agents."""
    scripted = Scripted()
    all_agents = {**{name: getattr(demo, name) for name in DEMO}, "scripted": scripted, **(agents or {})}
    options: dict[str, Any] = {"default_agent": "echo", **settings}
    async with running(folder, all_agents, registered=registered, **options) as gateway:
        yield Site(gateway, scripted)


def new_id() -> str:
    return str(uuid4())
