"""Expired threads: every protocol answers them as not found, and their streams end."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.gateway.hubs import within
from tests.running import Running, running

V1: Final = {"A2A-Version": "1.0"}
RUN: Final = {"agent_name": "echo", "input": [{"role": "user", "parts": [{"content": "Hello"}]}]}
TASKS: Final = "/agent/echo/ap/v1/agent/tasks"
PATHS: Final = (
    "/a2a/echo/tasks/{task}",
    "/acp/runs/{task}",
    f"{TASKS}/{{thread}}",
    "/threads/{thread}",
    "/threads/{thread}/state",
    "/threads/{thread}/history",
    "/threads/{thread}/runs",
    "/v1/runs/{run}",
)
"""Paths that show a run, with the gateway's ids."""


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncGenerator[Running]:
    async with running(tmp_path, retention={"threads": 1e-6}) as gateway:
        await gateway.hub.retention.stop()  # the tests sweep themselves
        yield gateway


async def get(gateway: Running, path: str) -> Any:
    return (await gateway.http.get(path, headers=V1)).json()


async def test_an_expired_thread_is_not_found_in_any_protocol(gateway: Running) -> None:
    begun = await gateway.http.post("/acp/runs", json=RUN)
    ids = {name: begun.headers[f"babelgate-{name}"] for name in ("thread", "task", "run")}
    paths = [path.format(**ids) for path in PATHS]
    assert [(await gateway.http.get(path, headers=V1)).status_code for path in paths] == [200] * len(paths)
    assert await gateway.hub.retention.sweep() == 1
    assert [(await gateway.http.get(path, headers=V1)).status_code for path in paths] == [404] * len(paths)
    assert (await get(gateway, "/a2a/echo/tasks"))["totalSize"] == 0
    assert (await get(gateway, TASKS))["pagination"]["total_items"] == 0
    assert (await gateway.http.post("/threads/search", json={})).json() == []
    assert (await gateway.http.post("/threads/count", json={})).json() == 0


async def test_a_stream_ends_with_its_expired_thread(gateway: Running) -> None:
    thread = (await gateway.http.post("/threads", json={})).json()["thread_id"]
    async with gateway.http.stream("GET", f"/threads/{thread}/stream") as stream:
        assert stream.status_code == 200
        assert await gateway.hub.retention.sweep() == 1
        await within(stream.aread(), "the end of the stream")
