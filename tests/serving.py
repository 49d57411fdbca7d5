"""An app behind a real uvicorn server, on a free port of 127.0.0.1, in the test's event loop.

async with serving(app) as base_url, loopback.client(base_url=base_url) as http: ...
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import uvicorn

ACCEPTING: Final = 5
"""Number of turns of the event loop in which asyncio has certainly converted an accepted socket to a connection, or
closed an aborted one."""
BOUND: Final = 30.0
"""Timeout of a server's start, and of its stop, in seconds."""
_LATE: Final = 5.0
"""Time that a stopping server leaves to requests of disconnected callers, in seconds."""


def listen() -> socket.socket:
    """Return a socket on a free port. Bind it before the app is created if the app must know its own URL."""
    # Named TCP instead of 0: only then does asyncio turn Nagle's algorithm off, with which each answer takes 40 ms
    # longer.
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
        """Leave the signals to the test runner."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop at once: cut connections, and wait for their tasks. uvicorn's own method sleeps 0.1 s, which is minutes
        for a thousand servers.
        """
        # asyncio loses a socket that was accepted just before its server closes (3.11, `Server._attach`). So stop
        # accepting first, let accepted sockets become connections, and then close the server.
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
    """Serve the app, and yield its base URL. At the end, cut open connections. `options` are those of uvicorn."""
    listener = listener or listen()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    defaults: dict[str, Any] = {
        "log_config": None,
        "access_log": False,
        "proxy_headers": False,
        "ws": "websockets-sansio",
        "lifespan": "on" if lifespan else "off",
    }
    config = uvicorn.Config(app, **{**defaults, **options})
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
