"""Official A2A clients and servers of both versions, connected by the gateway: clients receive what servers send."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

import pytest
import pytest_asyncio

from tests.interop.driver import OfficialClient, OfficialServer, start_client, start_server
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVERS: Final = ("a2a-1.0", "a2a-0.3")
CLIENTS: Final = (
    ("a2a-1.0", "JSONRPC"),
    ("a2a-1.0", "HTTP+JSON"),
    ("a2a-0.3", "JSONRPC"),
    ("a2a-0.3", "HTTP+JSON"),
)


@dataclass(frozen=True)
class Front:
    gateway: Running
    servers: dict[str, OfficialServer]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def front(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Front]:
    async with AsyncExitStack() as stack:
        servers = {peer: await stack.enter_async_context(start_server(peer, gated=False)) for peer in SERVERS}
        configured = {
            f"{name}-{peer}": {"url": f"{server.url}/{name}", "protocol": "a2a"}
            for peer, server in servers.items()
            for name in ("message", "stream")
        }
        folder = tmp_path_factory.mktemp("gateway")
        yield Front(await stack.enter_async_context(running(folder, configured=configured)), servers)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=CLIENTS, ids=lambda each: "-".join(each))
async def client(request: pytest.FixtureRequest, front: Front) -> AsyncGenerator[OfficialClient]:
    name, transport = request.param
    base_url = f"{front.gateway.url}/a2a/message-a2a-1.0"
    async with start_client(name, base_url=base_url, transport=transport) as client:
        yield client


def words(message: Any) -> list[str]:
    return [part["text"] for part in message["parts"]]


@pytest.mark.parametrize("peer", SERVERS)
async def test_a_message_without_a_task_arrives_without_a_task(front: Front, client: OfficialClient, peer: str) -> None:
    await client.call("use", base_url=f"{front.gateway.url}/a2a/message-{peer}")
    sent = await client.call("send", text="Hello", context_id="talk")
    at_once = await client.call("send_nowait", text="Hello", context_id="talk")
    streamed = await client.call("stream", text="Hello", context_id="talk")
    assert len(streamed) == 1
    for answer in (sent, at_once, streamed[0]):
        assert list(answer) == ["message"]
        assert (words(answer["message"]), answer["message"]["contextId"]) == (["Hello"], "talk")
        assert not answer["message"].get("taskId")


def pieces(events: list[Any]) -> list[tuple[list[str], bool, bool]]:
    """Return the pieces of the answer in a stream of either client."""
    result: list[tuple[list[str], bool, bool]] = []
    for event in events:
        update: dict[str, Any] = event.get("artifactUpdate") or event.get("update") or {}
        if "artifact" in update:
            result.append((words(update["artifact"]), update.get("append", False), update.get("lastChunk", False)))
    return result


@pytest.mark.parametrize("peer", SERVERS)
async def test_the_pieces_of_an_answer_arrive_unchanged(front: Front, client: OfficialClient, peer: str) -> None:
    await client.call("use", base_url=f"{front.gateway.url}/a2a/stream-{peer}")
    events = await client.call("stream", text="one two three")
    assert pieces(events) == [(["one"], False, False), ([" two"], True, False), ([" three"], True, True)]
