"""Gateways with an administrator: on SQLite, on PostgreSQL, or two nodes on one PostgreSQL."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from babelgate.canonical.principal import OPERATIONS
from tests.gateway.hubs import within
from tests.running import Running, running

OPS: Final = {"X-Api-Key": "key-of-ops"}
ALICE: Final = {"X-Api-Key": "key-of-alice"}
KEYS: Final[Mapping[str, Any]] = {"ops": {"key": "key-of-ops", "groups": ["ops"]}, "alice": "key-of-alice"}
ACCESS: Final = (
    {"who": "*", "allow": [operation for operation in OPERATIONS if operation != "admin"]},
    {"who": "group:ops", "allow": ["admin"]},
)
_PAUSE: Final = 0.01
"""Seconds between two checks of another node."""


@asynccontextmanager
async def administered(
    folder: Path, agents: Mapping[str, Any] | None = None, **settings: Any
) -> AsyncGenerator[Running]:
    """Serve a gateway whose owner `ops` may use the administration API."""
    used: dict[str, Any] = {"keys": KEYS, "access": ACCESS, **settings}
    async with running(folder, agents, **used) as gateway:
        yield gateway


@asynccontextmanager
async def two_nodes(
    folder: Path, url: str, agents: Mapping[str, Any] | None = None, **settings: Any
) -> AsyncGenerator[tuple[Running, Running]]:
    """Serve two nodes on one PostgreSQL."""
    shared = {"database": url, "cluster": True, "blobs": folder / "blobs", **settings}
    async with AsyncExitStack() as stack:
        first, second = [
            await stack.enter_async_context(administered(folder, agents, node=name, **shared)) for name in ("a", "b")
        ]
        yield first, second


async def becomes(request: Callable[[], Awaitable[httpx.Response]], status: int) -> httpx.Response:
    """Repeat a request to another node until it has this status, and return the response."""
    return await until(request, lambda response: response.status_code == status, f"a response with status {status}")


async def until(
    request: Callable[[], Awaitable[httpx.Response]], holds: Callable[[httpx.Response], bool], what: str
) -> httpx.Response:
    """Repeat a request until a condition holds for its response, and return the response."""

    async def look() -> httpx.Response:
        while True:
            if holds(response := await request()):
                return response
            await asyncio.sleep(_PAUSE)

    return await within(look(), what)
