"""A whole gateway for the tests of LangGraph Platform and the Agent Protocol: real hub, real sockets, agents that do
what the test says."""

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
"""Marks tests that share a gateway with the others of their module (`conftest.py`)."""
ALONE = pytest.mark.asyncio(loop_scope="function")
"""Marks a test among them that needs a gateway of its own, because it counts what is there."""


def shares(request: pytest.FixtureRequest) -> bool:
    marker = request.node.get_closest_marker("asyncio")
    return marker is not None and marker.kwargs.get("loop_scope") == "module"


NOBODY = "00000000-0000-4000-8000-000000000000"
"""A well-formed id of nothing."""


def said(*texts: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text} for text in texts]}


def events(content: bytes) -> list[tuple[str, Any]]:
    return [(found.event, json.loads(found.data)) for found in Frames().all([content])]


class Stream:
    """An open stream, read frame by frame."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.taken = b""
        """Everything that was read."""
        self._frames = self._read()

    async def _read(self) -> AsyncGenerator[Frame]:
        frames = Frames()
        async for chunk in self.response.aiter_bytes():
            self.taken += chunk
            for found in frames.feed(chunk):
                yield found

    async def next(self) -> Frame:
        return await within(anext(self._frames), "the next frame")

    async def until(self, event: str) -> Frame:
        while (found := await self.next()).event != event:
            pass
        return found

    async def rest(self) -> list[Frame]:
        async def read() -> list[Frame]:
            return [found async for found in self._frames]

        return await within(read(), "the end of the stream")


@dataclass(frozen=True)
class Site:
    gateway: Running
    agent: Scripted
    """Served as `scripted`: each call stands until the test tells it what to do."""

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
        """Of a run; or that of the answer, where there is no such run."""
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
    """With the demo agents and `scripted`, and those that are given."""
    scripted = Scripted()
    served = {**{name: getattr(demo, name) for name in DEMO}, "scripted": scripted, **(agents or {})}
    given: dict[str, Any] = {"default_agent": "echo", **settings}
    async with running(folder, served, registered=registered, **given) as gateway:
        yield Site(gateway, scripted)


def new_id() -> str:
    return str(uuid4())
