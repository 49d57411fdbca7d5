"""Restart of the gateway while official clients wait for a run.

The run continues at the agent's server. A client must receive the whole answer, or raise its own error for a lost
connection. It must never return a part as the whole answer.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.gateway.hubs import eventually
from tests.interop.driver import ClientError, OfficialClient, ProgramEnded, start_client
from tests.running import running

BOUND: Final = 50.0
"""Timeout of one test, in seconds. Clients wait for seconds before they reconnect."""
WHOLE: Final = "begun ended"


@dataclass
class Held:
    """Agent that sends half of its answer, then waits for `go`."""

    begun: int = 0
    """Number of calls."""
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, text: str) -> AsyncIterator[str]:
        self.begun += 1
        yield "begun "
        await self.go.wait()
        yield "ended"


class Front:
    """Fixed address in front of the gateway. Connections wait while no gateway is running."""

    def __init__(self) -> None:
        self.url = ""
        self._port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def lead_to(self, url: str | None) -> None:
        if self._port.done():
            self._port = asyncio.get_running_loop().create_future()
        if url is not None:
            self._port.set_result(int(url.rpartition(":")[2]))

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator["Front"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for writer in self._serving.values():
                writer.transport.abort()
            if self._serving:
                for task in self._serving:
                    task.cancel()
                await asyncio.wait(list(self._serving), timeout=BOUND)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = writer
        try:
            with suppress(ConnectionError, asyncio.CancelledError):
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", await asyncio.shield(self._port))
                await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        finally:
            writer.close()
            del self._serving[task]


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def restarted(folder: Path, call: Callable[[str], Awaitable[Any]]) -> AsyncGenerator[tuple[Held, Any]]:
    """Call the agent `held` through a gateway, restart the gateway, and yield the agent and the outcome of the call."""
    held = Held()
    for name in ("backend", "front"):
        (folder / name).mkdir()
    async with AsyncExitStack() as stack:
        backend = await stack.enter_async_context(running(folder / "backend", {"held": held}))
        front = await stack.enter_async_context(Front().listening())
        agents = {"held": {"url": f"{backend.url}/acp", "protocol": "acp", "agent": "held"}}
        async with asyncio.timeout(BOUND):
            async with running(folder / "front", configured=agents, public_url=front.url) as first:
                front.lead_to(first.url)
                calling = asyncio.ensure_future(call(front.url))
                channels = first.hub.journal.channels
                await eventually(lambda: calling.done() or any(channels.get(pk).readers for pk in channels.ends()))
                await eventually(lambda: calling.done() or held.begun > 0)
                assert not calling.done(), calling.result()
                front.lead_to(None)
            async with running(folder / "front", configured=agents, public_url=front.url) as second:
                front.lead_to(second.url)
                held.go.set()
                (outcome,) = await asyncio.gather(calling, return_exceptions=True)
                yield held, outcome


Call = Callable[[OfficialClient], Awaitable[Any]]
MESSAGE: Final = [{"role": "user", "content": "x"}]


def stream(name: str, /, **arguments: Any) -> Call:
    async def call(client: OfficialClient) -> Any:
        async with client.stream(name, **arguments) as events:
            return [event async for event in events]

    return call


def once(name: str, /, **arguments: Any) -> Call:
    return lambda client: client.call(name, **arguments)


RUN: Final[dict[str, Any]] = {"assistant_id": "held", "input": {"messages": MESSAGE}}


async def thread(client: OfficialClient) -> str:
    return (await client.call("threads.create"))["thread_id"]


async def langgraph_wait(client: OfficialClient) -> Any:
    return await client.call("runs.wait", thread_id=await thread(client), **RUN)


async def langgraph_stream(client: OfficialClient) -> Any:
    return await stream("runs.stream", thread_id=await thread(client), stream_mode="values", **RUN)(client)


async def langgraph_join(client: OfficialClient) -> Any:
    thread_id = await thread(client)
    run = await client.call("runs.create", thread_id=thread_id, **RUN)
    return await stream("runs.join_stream", thread_id=thread_id, run_id=run["run_id"])(client)


async def aief_step(client: OfficialClient) -> Any:
    task = await client.call("create_agent_task", task_request_body={"input": "x"})
    return await client.call("execute_agent_task_step", task_id=task["task_id"])


CALLS: Final[dict[str, tuple[str, dict[str, Any], str, Call]]] = {
    "langgraph wait": ("langgraph-sdk", {}, "", langgraph_wait),
    "langgraph stream": ("langgraph-sdk", {}, "", langgraph_stream),
    "langgraph join": ("langgraph-sdk", {}, "", langgraph_join),
    "langgraph sync wait": ("langgraph-sdk", {"sync": True}, "", langgraph_wait),
    "langgraph sync stream": ("langgraph-sdk", {"sync": True}, "", langgraph_stream),
    "acp wait": ("acp", {}, "/acp", once("run_sync", agent="held", input="x")),
    "acp stream": ("acp", {}, "/acp", stream("run_stream", agent="held", input="x")),
    "a2a 1.0 send": ("a2a-1.0", {}, "/a2a/held", once("send", text="x")),
    "a2a 1.0 stream": ("a2a-1.0", {}, "/a2a/held", stream("stream", text="x")),
    "a2a 0.3 send": ("a2a-0.3", {}, "/a2a/held", once("send", text="x")),
    "a2a 0.3 stream": ("a2a-0.3", {}, "/a2a/held", stream("stream", text="x")),
    "aief step": ("aief", {}, "/agent/held", aief_step),
    "openai chat": ("openai", {}, "/v1", once("create", model="held", messages=MESSAGE)),
    "openai chat stream": ("openai", {}, "/v1", stream("chunks", model="held", messages=MESSAGE)),
    "openai response": ("openai", {}, "/v1", once("respond", model="held", input="x")),
    "openai response stream": ("openai", {}, "/v1", stream("response_events", model="held", input="x")),
    "mcp call": ("mcp", {"mode": "auto"}, "/mcp", once("call", name="held", message="x")),
    "mcp legacy call": ("mcp", {"mode": "legacy"}, "/mcp", once("call", name="held", message="x")),
}
RECONNECTING: Final = frozenset(name for name in CALLS if name.startswith("langgraph"))
"""Clients that reconnect and receive the rest of the same run."""
REPEATING: Final = frozenset({"openai chat", "openai response"})
"""Clients that repeat the request, which starts another run (openai 3.52, `max_retries`)."""


@pytest.mark.parametrize("name", CALLS)
async def test_a_client_never_returns_a_part_as_the_whole(name: str, tmp_path: Path) -> None:
    peer, options, path, ask = CALLS[name]

    async def call(url: str) -> Any:
        async with start_client(peer, base_url=url + path, **options) as client:
            return await ask(client)

    async with restarted(tmp_path, call) as (held, outcome):
        if name in RECONNECTING | REPEATING:
            assert WHOLE in json.dumps(outcome), outcome
            assert held.begun == 1 + (name in REPEATING)
        else:
            assert isinstance(outcome, ClientError | ProgramEnded), outcome
            assert held.begun == 1
