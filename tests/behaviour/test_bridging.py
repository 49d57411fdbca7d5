"""Background calls in front of a server that answers only at the end: the caller's protocol has them, the agent's lacks
them.
"""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from babelgate.canonical import Scope
from babelgate.gateway.agents.registry import connect
from babelgate.gateway.settings.model import Settings
from tests.gateway.hubs import within
from tests.running import Running, running

TEXT = "two words"


class Gate:
    """An agent that answers when the test lets it."""

    def __init__(self) -> None:
        self.at_work = asyncio.Event()
        self.may_end = asyncio.Event()

    async def answer(self, text: str) -> str:
        self.at_work.set()
        await self.may_end.wait()
        return f"I heard {text}"


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
async def gateway(tmp_path: Path, gate: Gate) -> AsyncGenerator[Running]:
    """A gateway in front of an AIEF server. A step of that server is one call, answered when the agent is done."""
    for name in ("far", "near"):
        (tmp_path / name).mkdir()
    async with running(tmp_path / "far", {"gated": gate.answer}, default_agent="gated") as far:
        agent = {"url": f"{far.url}/agent/gated/ap/v1", "protocol": "aief"}
        registry = await connect(Settings.model_validate({"agents": {"gated": agent}}))
        registered = {each.info.name: each for each in registry.all()}
        async with running(tmp_path / "near", registered=registered) as near:
            yield near


async def ended(gateway: Running, headers: Any) -> None:
    """Wait until the run has ended."""

    async def read_to_the_end() -> None:
        scope = Scope(headers["babelgate-thread"], "run", headers["babelgate-run"])
        async for _ in gateway.hub.reads.follow("default", scope):
            pass

    await within(read_to_the_end(), "the end of the run")


async def test_a_background_acp_run_is_polled_to_its_end(gateway: Running, gate: Gate) -> None:
    message = {"role": "user", "parts": [{"content": TEXT}]}
    begun = await gateway.http.post("/acp/runs", json={"agent_name": "gated", "input": [message], "mode": "async"})
    assert begun.status_code == 202
    path = f"/acp/runs/{begun.json()['run_id']}"
    await within(gate.at_work.wait(), "the agent at work")
    assert (await gateway.http.get(path)).json()["status"] == "in-progress"
    gate.may_end.set()
    await ended(gateway, begun.headers)
    run = (await gateway.http.get(path)).json()
    assert (run["status"], run["output"][0]["parts"][0]["content"]) == ("completed", f"I heard {TEXT}")


@pytest.mark.parametrize("version", ["0.3", "1.0"])
async def test_a_background_a2a_task_is_polled_to_its_end(gateway: Running, gate: Gate, version: str) -> None:
    new = version == "1.0"
    part: dict[str, str] = {"text": TEXT} if new else {"kind": "text", "text": TEXT}
    message = {"messageId": "1", "role": "ROLE_USER" if new else "user", "parts": [part]}
    how: dict[str, bool] = {"returnImmediately": True} if new else {"blocking": False}

    async def call(method: str, params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return await gateway.http.post("/a2a/gated", json=body, headers={"A2A-Version": version})

    begun = await call("SendMessage" if new else "message/send", {"message": message, "configuration": how})
    result = begun.json()["result"]
    task_id = (result["task"] if new else result)["id"]
    await within(gate.at_work.wait(), "the agent at work")
    look = "GetTask" if new else "tasks/get"
    working = (await call(look, {"id": task_id})).json()["result"]
    assert working["status"]["state"] == ("TASK_STATE_WORKING" if new else "working")
    gate.may_end.set()
    await ended(gateway, begun.headers)
    task = (await call(look, {"id": task_id})).json()["result"]
    assert task["status"]["state"] == ("TASK_STATE_COMPLETED" if new else "completed")
    assert task["artifacts"][0]["parts"][0]["text"] == f"I heard {TEXT}"


@pytest.mark.parametrize("prefix", ["", "/agent-protocol"])
async def test_a_background_langgraph_run_is_polled_to_its_end(gateway: Running, gate: Gate, prefix: str) -> None:
    named = {"agent_id": "gated"} if prefix else {"assistant_id": "gated"}
    thread_id = (await gateway.http.post(f"{prefix}/threads", json={})).json()["thread_id"]
    body: dict[str, Any] = {**named, "input": {"messages": [{"role": "user", "content": TEXT}]}}
    begun = await gateway.http.post(f"{prefix}/threads/{thread_id}/runs", json=body)
    path = f"{prefix}/threads/{thread_id}/runs/{begun.json()['run_id']}"
    await within(gate.at_work.wait(), "the agent at work")
    assert (await gateway.http.get(path)).json()["status"] in ("pending", "running")
    gate.may_end.set()
    await ended(gateway, begun.headers)
    assert (await gateway.http.get(path)).json()["status"] == "success"
    state = (await gateway.http.get(f"{prefix}/threads/{thread_id}/state")).json()
    messages = state["messages"] if prefix else state["values"]["messages"]
    assert messages[-1]["content"] == f"I heard {TEXT}"
