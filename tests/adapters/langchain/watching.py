"""Readers of a thread's events, over Server-Sent Events or a WebSocket."""

import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from websockets.asyncio.client import ClientConnection, connect

from babelgate.canonical import Fault, FaultCode, FilePart, TextPart
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    MessageEnded,
    MessageStarted,
    PartAdded,
    PartEnded,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
)
from tests.adapters.langchain.site import Site, Stream
from tests.gateway.hubs import Activation, within

ALL: Final = ("values", "updates", "messages", "tools", "lifecycle", "input", "checkpoints", "tasks", "custom")


def perform(activation: Activation) -> None:
    """Send every kind of event, and end the run."""
    activation.say(StepStarted(step_id="s", name="plan", node="plan", input={"n": 1}))
    activation.say(Custom(name="progress", value={"done": 0.5}), Custom(value={"n": 1}))
    activation.say(MessageStarted(phase="progress"), PartAdded(part=TextPart(text="On my way.")), MessageEnded())
    activation.say(
        ToolStarted(call_id="c", name="look", input={"q": 1}), ToolEnded(call_id="c", name="look", output=[1])
    )
    fault = Fault(code=FaultCode.AGENT_FAILED, message="no")
    activation.say(ToolStarted(call_id="d", name="look"), ToolEnded(call_id="d", name="look", fault=fault))
    activation.say(StepEnded(step_id="s", name="plan", node="plan", update={"plan": "made"}))
    activation.say(ArtifactAdded(name="a.txt", part=FilePart(name="a.txt", inline=b"hi", media_type="text/plain")))
    activation.open("one")
    for n in range(10):
        activation.more(f" and {n}")
    activation.say(PartEnded(), MessageEnded(usage={"input_tokens": 1, "output_tokens": 2}))
    activation.end()


class Watch:
    """Open stream of events."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    async def next(self) -> Any:
        frame = await self.stream.next()
        event = json.loads(frame.data)
        assert (frame.event, frame.id) == (event["method"], str(event["seq"]))
        return event

    async def until(self, **data: Any) -> list[Any]:
        """Read the events up to the first with these members in its payload; all payloads must be objects."""
        found: list[Any] = []
        while not (found and _has(found[-1], data)):
            found.append(await self.next())
        return found

    async def ends(self, runs: int = 1) -> list[Any]:
        """Read all events up to the end of a run."""
        return [event for _ in range(runs) for event in await _run(self.next)]


async def _run(read: Any) -> list[Any]:
    events: list[Any] = []
    while not (events and _is_end(events[-1])):
        events.append(await read())
    return events


def _has(event: Any, data: dict[str, Any]) -> bool:
    payload: Any = event["params"]["data"]
    return all(payload.get(name) == value for name, value in data.items())


def _is_end(event: Any) -> bool:
    ends = ("completed", "failed", "interrupted")
    return event["method"] == "lifecycle" and not event["params"]["namespace"] and _status(event) in ends


def _status(event: Any) -> str:
    return event["params"]["data"]["event"]


@asynccontextmanager
async def watching(
    site: Site, thread_id: str, channels: Iterable[str] = ALL, *, path: str = "/threads/{}/stream/events", **more: Any
) -> AsyncGenerator[Watch]:
    async with site.streaming("POST", path.format(thread_id), {"channels": list(channels), **more}) as stream:
        assert stream.response.status_code == 200
        yield Watch(stream)


async def command(site: Site, thread_id: str, method: str, prefix: str = "", **params: Any) -> Any:
    answer = await site.post(f"{prefix}/threads/{thread_id}/commands", {"id": 7, "method": method, "params": params})
    assert answer.status_code == 200, answer.text
    reply = answer.json()
    assert reply["id"] == 7
    assert reply["type"] in ("success", "error")
    return reply


class Socket:
    """Open WebSocket. It stores events that arrive before the reply to a command."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.events: list[Any] = []
        self._ids = 0

    async def _receive(self) -> Any:
        return json.loads(await within(self.connection.recv(), "a frame"))

    async def tell(self, method: str, **params: Any) -> Any:
        """Send a command and return the reply."""
        self._ids += 1
        await self.connection.send(json.dumps({"id": self._ids, "method": method, "params": params}))
        while "id" not in (reply := await self._receive()):
            self.events.append(reply)
        assert reply["id"] == self._ids
        return reply

    async def raw(self, text: str) -> Any:
        await self.connection.send(text)
        return await self._receive()

    async def next(self) -> Any:
        return self.events.pop(0) if self.events else await self._receive()

    async def ends(self) -> list[Any]:
        return await _run(self.next)

    async def some(self, count: int) -> Sequence[Any]:
        return [await self.next() for _ in range(count)]


@asynccontextmanager
async def socket(
    site: Site, thread_id: str, path: str = "/threads/{}/stream/events", **options: Any
) -> AsyncGenerator[Socket]:
    url = site.gateway.url.replace("http", "ws", 1) + path.format(thread_id)
    async with connect(url, **options) as connection:
        yield Socket(connection)
