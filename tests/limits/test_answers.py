"""Responses that consist of one large object: they are sent piece by piece, as lists are."""

import asyncio
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
import pytest_asyncio

from babelgate.canonical.value import JsonObject
from tests.limits.strain import MB, MOST_MEMORY, SLOW, Strained, python_agents, strained

pytestmark = SLOW
SETTINGS: Final = {"agents": python_agents("messages"), "limits": {"output": "256MB", "thread": "512MB"}}

TEXT: Final = "x" * (7 * MB)
MANY: Final = 6
MEMORY: Final = MOST_MEMORY // 2
"""Maximum memory for answers of 42 MB, in bytes. Their state is read from the log once it is not in memory any more."""
V1: Final = {"A2A-Version": "1.0"}
ACP_RUN: Final[JsonObject] = {
    "agent_name": "messages",
    "input": [{"role": "user", "parts": [{"content_type": "text/plain", "content": "hi"}]}],
}
OUTPUT_SIZE: Final = 12 * 7 * MB
"""Characters in the output of one run of the agent `messages`."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def thread_id(gateway: Strained) -> str:
    thread_id = (await gateway.http.post("/threads", json={})).json()["thread_id"]
    for number in range(MANY):
        values = {"values": {f"text {number}": TEXT}}
        assert (await gateway.http.post(f"/threads/{thread_id}/state", json=values)).status_code == 200
    return thread_id


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def task_id(gateway: Strained) -> str:
    """Id of a finished A2A task with the whole output."""
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    body = {"message": message, "configuration": {"returnImmediately": True}}
    response = (await gateway.http.post("/a2a/messages/message:send", json=body, headers=V1)).json()
    task_id: str = response["task"]["id"]
    async with gateway.http.stream("POST", f"/a2a/messages/tasks/{task_id}:subscribe", headers=V1) as following:
        async for _ in following.aiter_raw():
            pass
    return task_id


RUN: Final[JsonObject] = {"assistant_id": "echo", "input": {"message": "hi"}}
STREAM: Final[JsonObject] = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask"}


async def measure(
    gateway: Strained, method: str, path: str, body: JsonObject | None = None, *, memory: int = MEMORY, **headers: str
) -> tuple[int, bytes, str]:
    """Return the size of a response, its last bytes, and the task's id."""
    size, end = 0, b""
    async with (
        gateway.watched() as strain,
        gateway.http.stream(method, path, json=body, headers={**V1, **headers}) as answer,
    ):
        assert answer.status_code == 200
        async for chunk in answer.aiter_raw():
            size, end = size + len(chunk), (end + chunk)[-100:]
            if path.endswith("/stream") and size > 2 * MANY * len(TEXT) and end.endswith(b"\n\n"):
                break
    strain.check(memory=memory)
    return size, end, answer.headers.get("babelgate-task", "")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/threads/{thread}/state", None),
        ("GET", "/threads/{thread}", None),
        ("POST", "/threads/{thread}/runs/wait", RUN),
        ("POST", "/threads/{thread}/history", {"limit": 1}),
    ],
)
async def test_a_large_state_does_not_block_others(
    gateway: Strained, thread_id: str, method: str, path: str, body: JsonObject | None
) -> None:
    size, end, _ = await measure(gateway, method, path.format(thread=thread_id), body)
    assert size > MANY * len(TEXT)
    assert end.rstrip().endswith((b"}", b"]"))


async def test_a_list_of_large_states_does_not_block_others(gateway: Strained, thread_id: str) -> None:
    """Request a list with one large entry."""
    size, _, _ = await measure(gateway, "POST", "/threads/search", {"limit": 1, "ids": [thread_id]})
    assert size > MANY * len(TEXT)


@pytest.mark.parametrize(
    ("path", "body"), [("/runs/stream", {**RUN, "stream_mode": ["values"]}), ("/stream", {"channels": ["values"]})]
)
async def test_frames_of_a_large_state_do_not_block_others(
    gateway: Strained, thread_id: str, path: str, body: JsonObject
) -> None:
    """Read the state twice in the stream of a run, or all states in the stream of a thread."""
    size, _, _ = await measure(gateway, "POST", f"/threads/{thread_id}{path}", body)
    assert size > 2 * MANY * len(TEXT)


@pytest.mark.parametrize("path", ["/{task}", "?includeArtifacts=true"])
async def test_a_large_a2a_task_does_not_block_others(gateway: Strained, task_id: str, path: str) -> None:
    size, _, _ = await measure(gateway, "GET", f"/a2a/messages/tasks{path.format(task=task_id)}", memory=3 * MEMORY)
    assert size > MANY * len(TEXT)


async def test_a_large_aief_task_does_not_block_others(gateway: Strained) -> None:
    created = await gateway.http.post("/agent/messages/ap/v1/agent/tasks", json={"input": "hi"})
    path = f"/agent/messages/ap/v1/agent/tasks/{created.json()['task_id']}"
    for method, at, memory in (("POST", f"{path}/steps", 4), ("GET", f"{path}/steps", 2), ("GET", path, 2)):
        size, _, _ = await measure(gateway, method, at, {} if method == "POST" else None, memory=memory * MEMORY)
        assert size > MANY * len(TEXT)


async def check_stream(gateway: Strained, path: str, body: JsonObject | None, **headers: str) -> None:
    """Check a stream whose last frame is the whole task or run."""
    size, end, _ = await measure(gateway, "POST", path, body, memory=2 * MEMORY, **headers)
    assert size > OUTPUT_SIZE
    assert end.endswith(b"}\n\n")


@pytest.mark.parametrize("start", ["0", "1000000"])
async def test_a_large_a2a_stream_does_not_block_others(gateway: Strained, task_id: str, start: str) -> None:
    """Read the stream from its beginning, event by event, and from its end, which is the current task."""
    start_at = {"Babelgate-From": start}
    await check_stream(gateway, f"/a2a/messages/tasks/{task_id}:subscribe", None, **start_at)
    await check_stream(gateway, "/a2a/messages", {**STREAM, "params": {"id": task_id}}, **start_at)


async def test_a_large_acp_stream_does_not_block_others(gateway: Strained) -> None:
    """Read each message three times: the run's last event repeats all of them."""
    await check_stream(gateway, "/acp/runs", {**ACP_RUN, "mode": "stream"})


async def test_a_large_acp_run_does_not_block_others(gateway: Strained) -> None:
    size, _, run_id = await measure(gateway, "POST", "/acp/runs", ACP_RUN, memory=2 * MEMORY)
    assert size > OUTPUT_SIZE
    for path in ("", "/events"):
        size, _, _ = await measure(gateway, "GET", f"/acp/runs/{run_id}{path}", memory=2 * MEMORY)
        assert size > MANY * len(TEXT)


STREAMS: Final = 500


async def test_streams_of_missing_threads_do_not_block_others(gateway: Strained) -> None:
    """Open streams that wait for their thread. Neither that nor the creation of other threads may take long."""
    body = b'{"channels":["values"]}'
    head = f"Host: 127.0.0.1:{gateway.port}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    opened: list[asyncio.StreamWriter] = []

    async def follow() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        opened.append(writer)
        writer.write(f"POST /threads/{uuid4()}/stream HTTP/1.1\r\n{head}".encode() + body)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")

    try:
        async with gateway.watched() as strain:
            await asyncio.gather(*(follow() for _ in range(STREAMS)))
        async with gateway.watched() as waiting:
            for _ in range(10):
                await gateway.http.post("/threads", json={})
    finally:
        for writer in opened:
            writer.close()
    strain.check()
    waiting.check()


@pytest.mark.asyncio(loop_scope="function")
async def test_the_largest_aief_answer_needs_bounded_memory(
    tmp_path: Path,
) -> None:
    agents = python_agents("fluent")
    async with strained(tmp_path, agents=agents, limits={"output": "32MB"}) as gateway:
        created = await gateway.http.post("/agent/fluent/ap/v1/agent/tasks", json={"input": "hi"})
        path = f"/agent/fluent/ap/v1/agent/tasks/{created.json()['task_id']}/steps"
        size, _, _ = await measure(gateway, "POST", path, {}, memory=125 * MB)
        assert size > 28 * MB


@pytest.mark.asyncio(loop_scope="function")
async def test_a_thread_over_the_limit_needs_bounded_memory(tmp_path: Path) -> None:
    agents = python_agents()
    async with strained(tmp_path, agents=agents, limits={"thread": "64MB"}) as gateway:
        thread_id = (await gateway.http.post("/threads", json={})).json()["thread_id"]
        statuses: list[int] = []
        while 413 not in statuses and len(statuses) < 20:
            values = {"values": {f"text {len(statuses)}": TEXT}}
            statuses.append((await gateway.http.post(f"/threads/{thread_id}/state", json=values)).status_code)
        assert statuses == [200] * (64 // 7 + 1) + [413], "a too large answer must not grow further"
        for path in ("state", "history"):
            async with gateway.watched() as strain:
                answer = await gateway.http.get(f"/threads/{thread_id}/{path}")
            assert answer.status_code == 413
            assert "limits.thread" in answer.text
            strain.check(memory=125 * MB)
        # Requests about one run still work.
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}], "contextId": thread_id}
        response = await gateway.http.post("/a2a/echo/message:send", json={"message": message}, headers=V1)
        assert response.json()["task"]["artifacts"][0]["parts"][0]["text"] == "hi"
