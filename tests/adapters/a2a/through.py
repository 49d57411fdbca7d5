"""A gateway in front of another A2A server, and callers in every version and binding of A2A."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from babelgate.adapters.a2a.agents.interface import Interface
from babelgate.adapters.a2a.client import Client
from babelgate.canonical import AgentInfo, Event, Invocation, Message, TextPart
from tests.adapters.a2a.far import Far, far_server
from tests.adapters.a2a.schema import check
from tests.adapters.a2a.site import Site, events_of, message, message_0_3, opened

CONTEXT = "a-context"


@dataclass(frozen=True)
class Behind:
    """An agent of another server, with the description that its card would have."""

    client: Client
    info: AgentInfo

    def run(self, call: Invocation) -> AsyncIterator[Event]:
        return self.client.run(call)


class Replier:
    """An agent in process that answers with a message and without a task, once its gate is open."""

    info = AgentInfo(name="replier", replies=True)

    def __init__(self) -> None:
        self.begun, self.gate = asyncio.Event(), asyncio.Event()

    async def __call__(self, text: str) -> AsyncGenerator[Message | str]:
        self.begun.set()
        await self.gate.wait()
        yield Message(parts=(TextPart(text=text),), extra={"a2a.reply": {}})
        if text == "more":
            yield "And more."


class Way:
    """One version of A2A over one binding."""

    def __init__(self, version: str, *, rest: bool) -> None:
        self.form: Any = f"{version}{'-rest' if rest and version == '0.3' else ''}"
        self.version, self.rest = version, rest

    def body(self, text: str, **configuration: Any) -> dict[str, Any]:
        context = {"contextId": CONTEXT}
        if self.form == "0.3-rest":
            content = {"messageId": "m", "role": "ROLE_USER", "content": [{"text": text}], **context}
            return {"request": content, **configuration}
        return {**(message_0_3 if self.version == "0.3" else message)(text, **context), **configuration}

    def at_once(self, text: str) -> dict[str, Any]:
        not_waiting = {"returnImmediately": True} if self.version == "1.0" else {"blocking": False}
        return self.body(text, configuration=not_waiting)

    async def send(self, site: Site, agent: str, body: dict[str, Any]) -> Any:
        response = await self._post(site, agent, body, "send")
        assert response.status_code == 200, response.text
        answer = response.json()
        return answer if self.rest else answer["result"]

    async def stream(self, site: Site, agent: str, body: dict[str, Any]) -> list[Any]:
        events = events_of(await self._post(site, agent, body, "stream"))
        return [event if self.rest else event["result"] for event in events]

    async def _post(self, site: Site, agent: str, body: dict[str, Any], verb: str) -> Any:
        headers = {"A2A-Version": "1.0"} if self.version == "1.0" else {}
        if self.rest:
            path = f"/a2a/{agent}{'' if self.version == '1.0' else '/v1'}/message:{verb}"
            return await site.client.post(path, json=body, headers=headers)
        names = {"send": "SendMessage", "stream": "SendStreamingMessage"}
        method = names[verb] if self.version == "1.0" else f"message/{verb}"
        return await site.client.post(
            f"/a2a/{agent}", json={"jsonrpc": "2.0", "id": 1, "method": method, "params": body}, headers=headers
        )

    def message_in(self, answer: Any) -> Any:
        """Return the message of an answer without a task."""
        check("reply", self.form, answer)
        return answer if self.form == "0.3" else answer["message"]

    def is_task(self, answer: Any) -> bool:
        return answer["kind"] == "task" if self.form == "0.3" else list(answer) == ["task"]


WAYS = [Way("1.0", rest=False), Way("1.0", rest=True), Way("0.3", rest=False), Way("0.3", rest=True)]
every_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: f"{way.version}-{'rest' if way.rest else 'jsonrpc'}")


@dataclass(frozen=True)
class Through:
    """A gateway with the agents `far` of another server, `unary` of one without streams, and `replier` in process."""

    far: Far
    site: Site
    replier: Replier

    async def stream(self, *replies: Any, way: Way = WAYS[0]) -> list[Any]:
        """Return the events that a caller receives if the far server streams these replies."""
        self.far.set("SendStreamingMessage", list(replies))
        return await way.stream(self.site, "far", way.body("Hi"))

    async def send(self, *replies: Any, way: Way = WAYS[0]) -> Any:
        """Return the answer to a send if the far server streams these replies. In 1.0 it is the task."""
        self.far.set("SendStreamingMessage", list(replies))
        answer = await way.send(self.site, "far", way.body("Hi"))
        return answer.get("task", answer)


@asynccontextmanager
async def through(folder: Path) -> AsyncGenerator[Through]:
    replier = Replier()
    async with far_server() as far:
        clients = [Client(far.url, interface=Interface(far.url, streams=streams)) for streams in (True, False)]
        infos = [AgentInfo(name=name, remembers=True, replies=True) for name in ("far", "unary")]
        behind = {info.name: Behind(client, info) for client, info in zip(clients, infos, strict=True)}
        try:
            async with opened(folder, {**behind, "replier": replier}) as site:
                yield Through(far, site, replier)
        finally:
            for client in clients:
                await client.aclose()
