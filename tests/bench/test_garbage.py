"""Requests and connections leave nothing that only the garbage collector frees: it pauses a gateway with thousands of
streams."""

import asyncio
import gc
import json
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
import uvloop

from babelgate.gateway import demo
from babelgate.gateway.http.connection import ConnectionTable
from babelgate.gateway.settings.model import Settings
from babelgate.gateway.storage.queries import expiring_threads
from bench import work
from bench.client import KeepAliveConnection
from bench.idle import STREAMS, think
from bench.work import GATEWAY, GRPC
from tests.gateway.hubs import eventually
from tests.running import Running, running

in_module = pytest.mark.asyncio(loop_scope="module")

WARM: Final = 10
"""Number of jobs before the collection, which fill caches."""
COUNTED: Final = 50
"""Number of jobs in the collection. Chosen: a first query of the background work leaves about 35 objects."""
OF_GRPC: Final = ("grpc._cython.", "_cython_")
"""Beginnings of the names of what grpcio itself leaves: three objects for each call in version 1.85."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    agents = {"echo": demo.echo, "stream": demo.stream}
    async with running(tmp_path_factory.mktemp("garbage"), agents, serves_grpc=True) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def open_connections() -> Generator[list[KeepAliveConnection]]:
    """Connections that stay open until the end: on asyncio's own event loop, a closed one leaves cycles."""
    connections: list[KeepAliveConnection] = []
    yield connections
    for each in connections:
        each.close()


@contextmanager
def garbage() -> Generator[Counter[str]]:
    """Count the objects that only the collector can free after the context, by type, except those of single events."""
    found = Counter[str]()
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        types = Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage)
        found.update(
            {kind: count for kind, count in types.items() if count >= COUNTED and not kind.startswith(OF_GRPC)}
        )
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@in_module
@pytest.mark.parametrize("name", [*GATEWAY, *GRPC])
async def test_a_request_leaves_no_reference_cycles(
    gateway: Running, open_connections: list[KeepAliveConnection], name: str
) -> None:
    address = gateway.url if name in GATEWAY else gateway.settings.grpc.listen or ""
    connection = await KeepAliveConnection.open(int(address.rpartition(":")[2]))
    open_connections.append(connection)
    job = {**GATEWAY, **GRPC}[name]
    for number in range(WARM):
        await job(connection, number)
    with garbage() as found:
        for number in range(WARM, WARM + COUNTED):
            await job(connection, number)
    assert found == {}


@in_module
async def test_an_erasure_leaves_no_reference_cycles(
    tmp_path: Path, open_connections: list[KeepAliveConnection]
) -> None:
    job, limits = GATEWAY["OpenAI chat"], {"ephemeral_ttl": 0.05}
    async with running(tmp_path, {"echo": demo.echo}, limits=limits) as gateway:
        connection = await KeepAliveConnection.open(int(gateway.url.rpartition(":")[2]))
        open_connections.append(connection)

        async def erase(jobs: int) -> None:
            for number in range(jobs):
                await job(connection, number)
            while await gateway.hub.journal.query(expiring_threads):
                pass

        await erase(WARM)
        with garbage() as found:
            await erase(COUNTED)
    assert found == {}


BEHIND: Final[Mapping[str, Mapping[str, str]]] = {
    "a2a-1.0": {"protocol": "a2a", "path": "/a2a/{agent}"},
    "a2a-0.3": {"protocol": "a2a", "path": "/a2a/{agent}/.well-known/agent.json"},
    "acp": {"protocol": "acp", "path": "/acp"},
    "ag-ui": {"protocol": "ag-ui", "path": "/ag-ui/{agent}"},
    "agent-protocol": {"protocol": "agent-protocol", "path": "/agent-protocol"},
    "aief": {"protocol": "aief", "path": "/agent/{agent}"},
    "anthropic": {"protocol": "anthropic", "path": "/anthropic"},
    "langgraph": {"protocol": "langgraph", "path": ""},
    "openai": {"protocol": "openai", "path": "/v1"},
}
"""Protocol of each kind of server behind a gateway, and the path of its agents. The servers are gateways themselves."""


def _behind(url: str) -> Mapping[str, object]:
    """Return the settings of the agents behind: the agent `echo` of the gateway at `url`, once for each kind."""
    return {
        kind: {
            "protocol": server["protocol"],
            "url": url + server["path"].format(agent="echo"),
            **({} if "{agent}" in server["path"] else {"agent": "echo"}),
        }
        for kind, server in BEHIND.items()
    }


async def _call_agents_behind(folder: Path) -> Mapping[str, Counter[str]]:
    """Return what calls of each agent behind leave, as `garbage` does, if they leave anything."""
    left: dict[str, Counter[str]] = {}
    (folder / "behind").mkdir()
    async with (
        running(folder / "behind", {"echo": demo.echo}) as behind,
        running(folder, configured=_behind(behind.url)) as front,
    ):
        connection = await KeepAliveConnection.open(int(front.url.rpartition(":")[2]))
        body = work.a2a_message("SendStreamingMessage")
        for agent in BEHIND:
            job = work.posted(f"/a2a/{agent}", body, b"TASK_STATE_COMPLETED", work.A2A)
            for number in range(WARM):
                await job(connection, number)
            with garbage() as found:
                for number in range(WARM, WARM + COUNTED):
                    await job(connection, number)
            if found:
                left[agent] = found
        connection.close()
    return left


def test_a_call_of_an_agent_behind_leaves_no_reference_cycles(tmp_path: Path) -> None:
    # As the gateway does: a closed transport of asyncio's own loop is itself a cycle.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(_call_agents_behind(tmp_path)) == {}


Use = Callable[[KeepAliveConnection], Awaitable[None]]
"""Function that uses a new connection, before the client closes it."""


async def _nothing(connection: KeepAliveConnection) -> None:
    pass


async def _request(connection: KeepAliveConnection) -> None:
    await work.a2a_1_0()(connection, 1)


async def _prompt(connection: KeepAliveConnection) -> None:
    await work.agent_client()(connection, 1)


async def _response_socket(connection: KeepAliveConnection) -> None:
    await connection.upgrade("/v1/responses")
    connection.send_text(b'{"type":"response.create","model":"echo","input":"Hello"}')
    while b"response.completed" not in await connection.receive_text():
        pass


async def _subscription(connection: KeepAliveConnection) -> None:
    thread = json.loads(await connection.post("/threads", b"{}"))["thread_id"]
    await connection.upgrade(f"/threads/{thread}/stream/events")
    connection.send_text(b'{"id":1,"method":"subscription.subscribe","params":{"channels":["values"]}}')
    await connection.receive_text()


def _open_stream(name: str) -> Use:
    async def use(connection: KeepAliveConnection) -> None:
        await connection.read_until(*STREAMS[name], "Well…".encode())

    return use


CLOSED: Final[Mapping[str, Use]] = {
    "unused": _nothing,
    "after a request": _request,
    "Agent Client Protocol": _prompt,
    "OpenAI WebSocket": _response_socket,
    "LangGraph WebSocket": _subscription,
    **{f"stream of {name}": _open_stream(name) for name in STREAMS},
}


async def _close_connections(folder: Path, use: Use) -> Counter[str]:
    """Return what closed connections leave, as `garbage` does."""
    agents, table = {"echo": demo.echo, "think": think}, ConnectionTable(Settings())
    async with running(folder, agents, table=table) as gateway:
        port = int(gateway.url.rpartition(":")[2])

        async def repeat(times: int) -> None:
            for _ in range(times):
                connection = await KeepAliveConnection.open(port)
                await use(connection)
                connection.close()
            await eventually(lambda: len(table) <= 1)  # that of `gateway.http`
            await gateway.http.get("/healthz")  # after the tasks of the last connection

        await repeat(WARM)
        with garbage() as found:
            await repeat(COUNTED)
        return found


@pytest.mark.parametrize("name", list(CLOSED))
def test_a_closed_connection_leaves_no_reference_cycles(tmp_path: Path, name: str) -> None:
    # As the gateway does: a closed transport of asyncio's own loop is itself a cycle.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(_close_connections(tmp_path, CLOSED[name])) == {}
