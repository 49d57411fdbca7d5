"""WebSockets of the Agent Protocol's event streaming: their paths, and helpers that open them."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from babelgate.canonical.value import JsonObject
from tests.adapters.langchain.watching import ALL, Socket

PATHS: Final = tuple(
    f"{prefix}/threads/{{thread_id}}/{stream}"
    for prefix in ("", "/agent-protocol", "/agent/echo", "/agent/echo/agent-protocol")
    for stream in ("stream", "stream/events")
)
EVERYTHING: Final[JsonObject] = {"channels": list(ALL)}
START: Final[JsonObject] = {"assistant_id": "echo", "input": "hello"}


@asynccontextmanager
async def connected(url: str, path: str, **options: Any) -> AsyncGenerator[ClientConnection]:
    """Open a WebSocket. `url` is the gateway's; `path` contains the id of a thread."""
    async with connect(url.replace("http", "ws", 1) + path, proxy=None, max_size=None, **options) as connection:
        yield connection


@asynccontextmanager
async def talking(url: str, path: str, **options: Any) -> AsyncGenerator[Socket]:
    async with connected(url, path, **options) as connection:
        yield Socket(connection)


async def refusal(url: str, path: str, headers: Mapping[str, str] | None = None, **options: Any) -> httpx.Response:
    """Return the response to a handshake that the gateway refuses."""
    with pytest.raises(InvalidStatus) as caught:
        async with connected(url, path, additional_headers=headers, **options):
            pass
    response = caught.value.response
    headers = dict(response.headers.raw_items())
    return httpx.Response(response.status_code, headers=headers, content=bytes(response.body or b""))


async def check_socket_works(url: str, path: str = PATHS[0]) -> None:
    """Assert that a new connection can start a run and receives its events up to the end."""
    async with talking(url, path.format(thread_id=uuid4())) as socket:
        assert (await socket.tell("subscription.subscribe", channels=["lifecycle"]))["type"] == "success"
        assert (await socket.tell("run.start", **START))["type"] == "success"
        assert (await socket.ends())[-1]["params"]["data"]["event"] == "completed"
