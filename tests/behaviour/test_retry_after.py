"""Retry-After in every protocol: a refusal that is temporary says when to retry."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from babelgate.canonical import Message, RunInput, Submission
from babelgate.gateway.agents.python.agent import wrap
from babelgate.gateway.agents.registry import connect
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.settings.model import Settings
from babelgate.gateway.storage.transaction import Transaction
from tests.faults.proxy import proxied, status
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWNER = "default"

MESSAGE = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Hi"}]}
RPC = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": MESSAGE}}
OLD = {"messageId": "m", "role": "user", "kind": "message", "parts": [{"kind": "text", "text": "Hi"}]}
OLD_RPC = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": OLD}}
OLD_STREAM = {**OLD_RPC, "method": "message/stream"}
ACP = {"agent_name": "busy", "input": [{"role": "user", "parts": [{"content": "Hi"}]}]}
RUN = {"assistant_id": "busy", "input": {"messages": [{"role": "user", "content": "Hi"}]}}
AP_RUN: Any = {"agent_id": "busy", "input": {}}
V1 = {"A2A-Version": "1.0"}

CALLS: list[Any] = [
    ("/a2a/busy", RPC, V1, 200),
    ("/a2a/busy", OLD_RPC, {}, 200),
    ("/a2a/busy", OLD_STREAM, {}, 200),
    ("/a2a/busy/message:send", {"message": MESSAGE}, V1, 429),
    ("/a2a/busy/message:stream", {"message": MESSAGE}, V1, 429),
    ("/a2a/busy/v1/message:send", {"message": {**MESSAGE, "content": MESSAGE["parts"]}}, {}, 429),
    ("/acp/runs", ACP, {}, 429),
    ("/acp/runs", {**ACP, "mode": "stream"}, {}, 429),
    ("/agent/busy/ap/v1/agent/tasks", {"input": "Hi"}, {}, 429),
    ("/runs", RUN, {}, 429),
    ("/runs/wait", RUN, {}, 429),
    ("/runs/stream", RUN, {}, 429),
    ("/agent-protocol/runs/wait", AP_RUN, {}, 429),
]


CHAT = {"model": "busy", "messages": [{"role": "user", "content": "Hi"}]}
STARTS: list[Any] = [
    *(call for call in CALLS if "stream" not in str(call)),
    ("/v1/chat/completions", CHAT, {}, 429),
    ("/v1/responses", {"model": "busy", "input": "Hi"}, {}, 429),
    ("/v1/runs", {"assistant_id": "busy", "input": {"message": "Hi"}}, {}, 429),
    ("/threads", {}, {}, 429),
]
"""Calls whose effect is stored before the answer."""


async def held(text: str) -> None:
    """Wait forever."""
    await asyncio.Event().wait()


async def post(http: httpx.AsyncClient, path: str, body: Any, headers: Any) -> httpx.Response:
    answer = await http.post(path, json=body, headers=headers)
    if path.endswith("/tasks"):  # an AIEF task does nothing before its first step
        answer = await http.post(f"{path}/{answer.json()['task_id']}/steps", json={}, headers=headers)
    return answer


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def full(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    """A gateway with one running and one queued run of its agent, so that its queue is full."""
    busy = RegisteredAgent(*wrap(held, "busy"), concurrency=1)
    folder = tmp_path_factory.mktemp("full")
    async with running(folder, registered={"busy": busy}, limits={"queue": {"agent": 1}}) as gateway:
        for _ in range(2):
            waiting = RunInput(messages=(Message.of("Hi", "user"),))
            await gateway.hub.submit(OWNER, Submission(agent="busy", input=waiting))
        yield gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def readonly(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    """A gateway whose database takes no writes, as on a file system that has become read-only."""

    def connection(tx: Transaction) -> Any:
        return tx.connection.connection.dbapi_connection

    folder = tmp_path_factory.mktemp("readonly")
    async with running(folder, registered={"busy": RegisteredAgent(*wrap(held, "busy"))}) as gateway:
        (await gateway.hub.journal.write(connection)).execute("PRAGMA query_only=1")
        yield gateway


@pytest.mark.parametrize(("path", "body", "headers", "code"), CALLS)
async def test_a_full_queue_says_when_to_retry(full: Running, path: str, body: Any, headers: Any, code: int) -> None:
    answer = await post(full.http, path, body, headers)
    assert (answer.status_code, answer.headers.get("retry-after")) == (code, "1"), answer.text


@pytest.mark.parametrize(("path", "body", "headers", "code"), STARTS)
async def test_a_read_only_database_says_when_to_retry(
    readonly: Running, path: str, body: Any, headers: Any, code: int
) -> None:
    """Answer 503, at which load balancers and official clients retry, possibly at another gateway."""
    answer = await readonly.http.post(path, json=body, headers=headers)
    assert (answer.status_code, answer.headers.get("retry-after")) == (200 if code == 200 else 503, "5"), answer.text
    assert "could not store this" in answer.text


@pytest.mark.parametrize("path", ["/threads", "/agent-protocol/threads"])
async def test_an_agents_server_says_when_to_retry(tmp_path: Path, path: str) -> None:
    """Forward the delay of the agent's server. Only a change of the state makes a caller wait for that server."""
    home = tmp_path / "upstream"
    home.mkdir()
    async with running(home) as upstream, proxied(upstream.url) as proxy:
        agent = {"url": proxy.url, "protocol": "langgraph", "agent": "echo"}
        registry = await connect(Settings.model_validate({"agents": {"far": agent}}))
        async with running(tmp_path, registered={"far": registry.get("far")}) as gateway:
            thread_id = (await gateway.http.post("/threads", json={})).json()["thread_id"]
            run = {**RUN, "assistant_id": "far"}
            assert (await gateway.http.post(f"/threads/{thread_id}/runs/wait", json=run)).status_code == 200
            proxy.befall(rb"^POST /threads/\S+/state ", status(429, retry_after=7))
            change: Any = {"values": {"messages": []}}
            answer = await gateway.http.post(f"{path}/{thread_id}/state", json=change)
    assert (answer.status_code, answer.headers.get("retry-after")) == (429, "7"), answer.text
