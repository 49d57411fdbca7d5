"""A whole gateway for the tests of the A2A server: a real hub with its own database, agents in process, and routes."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from babelgate.canonical import (
    Artifact,
    Ask,
    DataPart,
    FaultCode,
    FaultError,
    Invocation,
    Message,
    Scope,
    TextPart,
)
from babelgate.canonical.event import Custom, LossNoted, MessageEnded, MessageStarted, PartAdded, PartDelta, PartEnded
from babelgate.canonical.message import AnnotationPart, ReasoningPart, RefusalPart
from babelgate.gateway import demo
from babelgate.gateway.hub import GatewayHub
from tests import bridge
from tests.opened import opened as opened_gateway

KEYS: Final = {"alice": "alice-0123456789-key", "mallory": "mallory-0123456789-key"}
ALICE, MALLORY = ({"Authorization": f"Bearer {key}"} for key in KEYS.values())
URL: Final = "http://127.0.0.1:8000"
OWNER: Final = "default"
"""Owner of all calls to a gateway without keys."""
BOUND = 30
"""Seconds after which a test stops waiting, and fails."""


class Gates:
    """Agents that stop in the middle of their answer until the test opens the gate."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    def close(self) -> None:
        """Open the gate for the agents that wait, and close it for later ones."""
        self.gate.set()
        self.gate = asyncio.Event()

    async def gated(self, text: str) -> AsyncGenerator[str]:
        """Yield one word, and the rest once the gate is open."""
        yield "first"
        await self.gate.wait()
        yield " second"


async def rich(text: str) -> AsyncGenerator[Any]:
    """Yield one of each kind of output."""
    yield Message.of("On it.", phase="progress")
    yield MessageStarted(message_id=None, metadata={"tone": "calm"})
    yield PartAdded(part=ReasoningPart(text=""), open=True)
    yield PartDelta(text="let me think")
    yield PartEnded()
    yield PartAdded(part=TextPart(text=""), open=True)
    yield PartDelta(text="Hello, ")
    yield PartDelta(text="world")
    yield PartEnded()
    yield PartAdded(part=AnnotationPart(url="https://example.com", title="x"))
    yield PartAdded(part=RefusalPart(text="no more"))
    yield PartAdded(part=DataPart(data={"n": 42}))
    yield MessageEnded(usage={"input_tokens": 3})
    yield Custom(name="mood", value="good")
    yield LossNoted(feature="history", how="forgotten")
    yield Artifact.of("note.txt", "a note")


async def auth(text: str) -> AsyncGenerator[Any, Any]:
    """Ask for a login."""
    yield Ask("Log in, please.", kind="auth", value={"url": "https://login.example.com"})
    yield "In."


async def cut(text: str) -> AsyncGenerator[Any]:
    """Fail in the middle of the answer."""
    yield "one "
    yield "two "
    raise RuntimeError("cut")


async def number(text: str) -> AsyncGenerator[Any]:
    """Yield data that is not an object."""
    yield DataPart(data=[1, 2, 3])


async def modes(call: Invocation) -> str:
    """Return the output modes that the caller accepts."""
    accepted: list[str] = call.config.get("accepted_output_modes", [])
    return ", ".join(accepted)


def reject(text: str) -> str:
    """Reject the task."""
    raise FaultError(FaultCode.AGENT_FAILED, text, rejected=True)


AGENTS: Mapping[str, Any] = {
    "reject": reject,
    "modes": modes,
    "echo": demo.echo,
    "stream": demo.stream,
    "ask": demo.ask,
    "approve": demo.approve,
    "files": demo.files,
    "steps": demo.steps,
    "json": demo.json,
    "tools": demo.tools,
    "slow": demo.slow,
    "fail": demo.fail,
    "rich": rich,
    "auth": auth,
    "cut": cut,
    "number": number,
}


@dataclass
class Site:
    """A running gateway, and calls to it."""

    hub: GatewayHub
    client: httpx.AsyncClient
    gates: Gates

    async def rpc(self, agent: str, method: str, params: Any = None, **more: Any) -> httpx.Response:
        headers = {} if "/" in method else {"A2A-Version": "1.0"}
        headers |= more.pop("headers", {})
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params, **more}
        return await self.client.post(f"/a2a/{agent}", json=body, headers=headers)

    async def result(self, agent: str, method: str, params: Any = None, **more: Any) -> Any:
        answer = (await self.rpc(agent, method, params, **more)).json()
        assert "error" not in answer, answer
        return answer["result"]

    def stream(
        self, agent: str, method: str, params: Any = None, **more: Any
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        """Yield the results of a stream as they arrive. The end of the block disconnects."""
        headers = {} if "/" in method else {"A2A-Version": "1.0"}
        headers |= more.pop("headers", {})
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        return self._events("POST", f"/a2a/{agent}", json=body, headers=headers)

    @asynccontextmanager
    async def _events(self, method: str, path: str, **more: Any) -> AsyncGenerator[AsyncIterator[Any]]:
        async with self.client.stream(method, path, **more) as response:

            async def events() -> AsyncGenerator[Any]:
                async for line in response.aiter_lines():
                    if line.startswith("data:"):
                        event = json.loads(line.removeprefix("data:"))
                        yield event["result"] if "jsonrpc" in event else event

            async with aclosing(events()) as results:
                yield results

    async def error(self, agent: str, method: str, params: Any = None, **more: Any) -> Any:
        response = await self.rpc(agent, method, params, **more)
        assert response.status_code == 200
        answer = response.json()
        assert "result" not in answer, answer
        return answer["error"]


@asynccontextmanager
async def opened(folder: Path, agents: Mapping[str, Any] | None = None, **settings: Any) -> AsyncGenerator[Site]:
    gates = Gates()
    limits = {"inline": 1000, "cancel_grace": 1, **settings.pop("limits", {})}
    options: dict[str, Any] = {"default_agent": "echo", **settings}
    all_agents = {**AGENTS, "gated": gates.gated, **(agents or {})}
    async with (
        opened_gateway(folder, all_agents, limits=limits, **options) as gateway,
        bridge.client(gateway.app, URL) as client,
    ):
        try:
            yield Site(gateway.hub, client, gates)
        finally:
            gates.gate.set()


def message(text: str = "", **more: Any) -> dict[str, Any]:
    """Return the params of SendMessage."""
    return {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}], **more}}


def message_0_3(text: str = "", **more: Any) -> dict[str, Any]:
    """Return the params of message/send."""
    return {
        "message": {
            "kind": "message",
            "messageId": "m",
            "role": "user",
            "parts": [{"kind": "text", "text": text}],
            **more,
        }
    }


def events_of(response: httpx.Response) -> list[Any]:
    """Return the data of each event of a finished stream."""
    assert response.headers["Content-Type"].startswith("text/event-stream")
    return [json.loads(line.removeprefix("data: ")) for line in response.text.splitlines() if line.startswith("data:")]


def answer_of(task: Any) -> str:
    """Return the text of a task's artifacts."""
    return "".join(part.get("text", "") for artifact in task.get("artifacts", ()) for part in artifact["parts"])


async def until(site: Site, task_id: str, kind: str, count: int = 1) -> None:
    """Wait until `count` records of a kind are committed on the task's thread."""
    task = await site.hub.reads.task(OWNER, task_id)
    async with asyncio.timeout(BOUND):
        async for records in site.hub.reads.follow(OWNER, Scope(task.thread_id)):
            count -= sum(record.event.kind == kind for record in records)
            if count <= 0:
                return
