"""An app behind a real uvicorn, on a free port of 127.0.0.1, in the test's own loop.

async with serving(app) as base_url, loopback.client(base_url=base_url) as http: ...
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import uvicorn

ACCEPTING: Final = 5
"""Turns of the loop in which asyncio makes a connection of an accepted socket, and one that was cut is closed: more
than it takes."""
BOUND: Final = 30.0
"""Seconds within which a server must have started, and within which it must have stopped."""
_LATE: Final = 5.0
"""Seconds that a stopping server leaves to requests whose callers are gone."""


def listen() -> socket.socket:
    """A socket on a free port, bound before the app is made where the app must know its own URL."""
    # Named TCP and not left at 0: asyncio turns Nagle off only then, and with it on each answer takes 40 ms longer.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 0))
    return listener


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()
        self.stopping = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """They are the test runner's."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """At once: connections are cut, and what runs for them is waited for. uvicorn's own sleeps 0.1 s, which for a
        thousand servers are minutes."""
        # asyncio loses what was accepted a moment before its server is closed (3.11, `Server._attach`): so nothing more
        # is accepted, what was becomes a connection, and only then the server is closed.
        for listener in sockets or ():
            asyncio.get_running_loop().remove_reader(listener)
        for _ in range(ACCEPTING):
            for connection in list(self.server_state.connections):
                transport: Any = getattr(connection, "transport", None)
                if transport is not None:
                    transport.abort()
            await asyncio.sleep(0)
        for server in self.servers:
            server.close()
        for listener in sockets or ():
            listener.close()
        if self.server_state.tasks:
            _, late = await asyncio.wait(self.server_state.tasks, timeout=_LATE)
            for task in late:
                task.cancel()
        await self.lifespan.shutdown()


@asynccontextmanager
async def serving(
    app: Any, listener: socket.socket | None = None, *, lifespan: bool = False, **options: Any
) -> AsyncGenerator[str]:
    """The app's base URL. On the way out, connections that are still open are cut. `options` are uvicorn's own."""
    listener = listener or listen()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    given: dict[str, Any] = {
        "log_config": None,
        "access_log": False,
        "proxy_headers": False,
        "ws": "websockets-sansio",
        "lifespan": "on" if lifespan else "off",
    }
    config = uvicorn.Config(app, **{**given, **options})
    server = _Server(config)
    running = asyncio.get_running_loop().create_task(server.serve([listener]), name="uvicorn")
    try:
        async with asyncio.timeout(BOUND):
            await server.up.wait()
        yield url
    finally:
        server.stopping.set()
        async with asyncio.timeout(BOUND):
            await running
