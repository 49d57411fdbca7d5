"""What the policy does not keep is not found, in the words of each protocol, and no stream of it goes on."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.gateway.hubs import within
from tests.running import Running, running

V1: Final = {"A2A-Version": "1.0"}
SAID: Final = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "Hello"}]}
RUN: Final = {"agent_name": "echo", "input": [{"role": "user", "parts": [{"content": "Hello"}]}]}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncGenerator[Running]:
    async with running(tmp_path, retention={"threads": 1e-6}) as gateway:
        await gateway.hub.retention.stop()  # the tests look themselves
        yield gateway


async def post(gateway: Running, path: str, body: Any) -> Any:
    answer = await gateway.http.post(path, json=body, headers=V1)
    assert answer.is_success, answer.text
    return answer.json()


async def sweep(gateway: Running) -> None:
    assert await gateway.hub.retention.sweep() == 1


async def get(gateway: Running, path: str) -> httpx.Response:
    return await gateway.http.get(path, headers=V1)


async def test_a2a(gateway: Running) -> None:
    ask: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": SAID}}
    task = (await post(gateway, "/a2a/echo", ask))["result"]["task"]["id"]
    look = {"jsonrpc": "2.0", "id": 2, "method": "GetTask", "params": {"id": task}}
    assert (await post(gateway, "/a2a/echo", look))["result"]["id"] == task
    await sweep(gateway)
    assert (await post(gateway, "/a2a/echo", look))["error"]["code"] == -32001
    listed: dict[str, Any] = {"jsonrpc": "2.0", "id": 3, "method": "ListTasks", "params": {}}
    assert (await post(gateway, "/a2a/echo", listed))["result"]["totalSize"] == 0


async def test_acp(gateway: Running) -> None:
    run = (await post(gateway, "/acp/runs", RUN))["run_id"]
    assert (await get(gateway, f"/acp/runs/{run}")).status_code == 200
    await sweep(gateway)
    gone = await get(gateway, f"/acp/runs/{run}")
    assert (gone.status_code, gone.json()["code"]) == (404, "not_found")


async def test_aief(gateway: Running) -> None:
    tasks = "/agent/echo/ap/v1/agent/tasks"
    task = (await post(gateway, tasks, {"input": "Hello"}))["task_id"]
    await post(gateway, f"{tasks}/{task}/steps", {})
    assert (await get(gateway, f"{tasks}/{task}")).status_code == 200
    await sweep(gateway)
    assert (await get(gateway, f"{tasks}/{task}")).status_code == 404
    assert (await get(gateway, tasks)).json()["pagination"]["total_items"] == 0


async def test_langgraph(gateway: Running) -> None:
    thread = (await post(gateway, "/threads", {}))["thread_id"]
    said = {"assistant_id": "echo", "input": {"messages": [{"role": "user", "content": "Hello"}]}}
    await post(gateway, f"/threads/{thread}/runs/wait", said)
    paths = [f"/threads/{thread}{rest}" for rest in ("", "/state", "/history", "/runs")]
    for path in paths:
        assert (await get(gateway, path)).status_code == 200
    await sweep(gateway)
    for path in paths:
        assert (await get(gateway, path)).status_code == 404, path
    assert await post(gateway, "/threads/search", {}) == []
    assert await post(gateway, "/threads/count", {}) == 0


async def test_a_stream_of_a_thread_ends_with_it(gateway: Running) -> None:
    thread = (await post(gateway, "/threads", {}))["thread_id"]
    async with gateway.http.stream("GET", f"/threads/{thread}/stream") as stream:
        assert stream.status_code == 200
        await sweep(gateway)
        await within(stream.aread(), "the end of the stream")
