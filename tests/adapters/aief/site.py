"""Whole gateway for the tests of AIEF, on loopback: the demo agents, and some that wait until a test continues them."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx

from babelgate.canonical import Artifact, Ask, DataPart, FilePart, Invocation, Message, Step, TextPart
from babelgate.canonical.event import Custom, Event, StepEnded, StepStarted
from babelgate.gateway import demo
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.settings.model import DEMO
from tests.running import running

T = TypeVar("T")
BOUND = 30.0
"""Maximum time that a test waits for an event, in seconds."""
UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"
"""Valid id that does not exist."""
OWNER = "default"


async def within(awaitable: Awaitable[T]) -> T:
    async with asyncio.timeout(BOUND):
        return await awaitable


@dataclass
class Gates:
    """Events that the agents `gated` and `staged` wait for, and records of their calls."""

    began: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    calls: list[Invocation] = field(default_factory=list[Invocation])
    active: int = 0
    most: int = 0

    def reset(self) -> None:
        """Release the waiting agents, and close the gate for the next test."""
        self.go.set()
        self.began, self.go = asyncio.Event(), asyncio.Event()
        self.calls, self.most = [], 0

    async def gated(self, call: Invocation) -> AsyncGenerator[str]:
        """Send one word, and another when the gate opens."""
        self.calls.append(call)
        self.active += 1
        self.most = max(self.most, self.active)
        try:
            yield f"{call.text}: first"
            self.began.set()
            await self.go.wait()
            yield " second"
        finally:
            self.active -= 1

    async def staged(self, text: str) -> AsyncGenerator[Step | str]:
        """Run two steps. The second one waits at the gate."""
        yield Step("one")
        yield "Done one."
        yield Step("two")
        self.began.set()
        await self.go.wait()
        yield "Done two."

    async def inputs(self, call: Invocation) -> dict[str, Any]:
        """Return the text, the data and the files of the input."""
        self.calls.append(call)
        return {"text": call.text, "data": call.data, "files": [[f.name, len(f.inline or b"")] for f in call.files]}


async def interview(text: str) -> AsyncGenerator[Step | Ask | str, str]:
    """Ask in the second step, and continue with another one."""
    yield Step("greet")
    yield "Hello."
    yield Step("ask")
    name = yield Ask("Who?")
    yield f"{name}."
    yield Step("thank")
    yield "Thanks."


async def kinds(text: str) -> AsyncGenerator[Artifact | Message]:
    """Send artifacts of every kind, and a file in a message."""
    yield Artifact(name="notes", parts=(TextPart(text="one "), TextPart(text="two")))
    yield Artifact(name="table", parts=(DataPart(data={"a": [1, 2]}),))
    yield Artifact(name="far.pdf", parts=(FilePart(name="far.pdf", url="https://files.invalid/far.pdf"),))
    yield Artifact.of("../../src/deep/evil.py", b"print(1)\n")
    yield Message(parts=(TextPart(text="Here."), FilePart(name="said.bin", inline=b"\0\1", size=2)))


async def graph(text: str) -> AsyncGenerator[Event]:
    """Send a nested step, and an event that AIEF cannot show."""
    yield StepStarted(step_id="a", name="outer")
    yield StepStarted(step_id="b", name="inner", ns=("outer",))
    yield StepEnded(step_id="b", name="inner", ns=("outer",))
    yield Custom(name="tick", value=1)
    yield StepEnded(step_id="a", name="outer")


@dataclass
class Site:
    hub: GatewayHub
    http: httpx.AsyncClient
    gates: Gates
    folder: Path
    url: str

    def at(self, agent: str, path: str = "") -> str:
        return f"/agent/{agent}/ap/v1/agent/tasks{path}"

    async def create(self, agent: str, text: str | None = "Hello", **more: Any) -> str:
        answer = await self.http.post(self.at(agent), json={"input": text, **more})
        assert answer.status_code == 200, answer.text
        return answer.json()["task_id"]

    async def post(self, agent: str, task_id: str, text: str | None = None, **more: Any) -> Any:
        """Execute the next step of a task, and return it."""
        body = {"input": text, **more} if text is not None or more else None
        answer = await within(self.http.post(self.at(agent, f"/{task_id}/steps"), json=body))
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def task(self, agent: str, task_id: str) -> Any:
        return (await self.http.get(self.at(agent, f"/{task_id}"))).json()

    async def steps(self, agent: str, task_id: str) -> list[Any]:
        answer = await self.http.get(self.at(agent, f"/{task_id}/steps?page_size=100"))
        assert answer.status_code == 200, answer.text
        return answer.json()["steps"]

    async def step(self, agent: str, task_id: str, step_id: str) -> Any:
        return (await self.http.get(self.at(agent, f"/{task_id}/steps/{step_id}"))).json()

    async def artifacts(self, agent: str, task_id: str) -> list[Any]:
        return (await self.http.get(self.at(agent, f"/{task_id}/artifacts?page_size=100"))).json()["artifacts"]

    async def download(self, agent: str, task_id: str, artifact_id: str) -> httpx.Response:
        return await self.http.get(self.at(agent, f"/{task_id}/artifacts/{artifact_id}"))

    async def upload(
        self, agent: str, task_id: str, name: str, content: bytes, folder: str | None = None, **headers: str
    ) -> httpx.Response:
        form = {} if folder is None else {"relative_path": folder}
        url, named = self.at(agent, f"/{task_id}/artifacts"), {k.replace("_", "-"): v for k, v in headers.items()}
        return await self.http.post(url, files={"file": (name, content)}, data=form, headers=named)


@asynccontextmanager
async def opened(
    folder: Path, registered: Mapping[str, RegisteredAgent] | None = None, **settings: Any
) -> AsyncGenerator[Site]:
    gates = Gates()
    agents = {name: getattr(demo, name) for name in DEMO} | {
        "gated": gates.gated,
        "staged": gates.staged,
        "inputs": gates.inputs,
        "interview": interview,
        "kinds": kinds,
        "graph": graph,
    }
    agents = {name: agent for name, agent in agents.items() if name not in (registered or {})}
    options: dict[str, Any] = {"default_agent": "echo", **settings}
    async with running(folder, agents, registered=registered, **options) as gateway:
        try:
            yield Site(gateway.hub, gateway.http, gates, folder, gateway.url)
        finally:
            gates.go.set()
