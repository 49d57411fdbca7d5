"""Server program: uvicorn on a free port, and a gate that makes agents wait for the test.

It prints {"ready": "http://127.0.0.1:PORT"}, reads `release` and `reset` lines from stdin, and ends when stdin closes.
"""

import asyncio
import socket
from typing import Any

import uvicorn
from lines import input_lines, options, say


class Gate:
    """Gate where agents wait in the middle of an answer. Each `release` of the test lets one agent pass."""

    def __init__(self) -> None:
        # A semaphore instead of an event: a release before the agent reaches the gate counts too.
        self._passes = asyncio.Semaphore(0)
        self._open = not options().get("gated", True)

    async def wait(self) -> None:
        if not self._open:
            await self._passes.acquire()

    def release(self) -> None:
        self._passes.release()

    async def reset(self) -> None:
        """Withdraw the releases that no agent has used."""
        while not self._passes.locked():
            await self._passes.acquire()


def listen() -> socket.socket:
    """Bind a socket before the application is built, because an agent card names its own URL."""
    # IPPROTO_TCP instead of 0: only then does asyncio disable Nagle, which delays each answer by 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", options().get("port", 0)))
    return listener


def url(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        assert sockets
        say({"ready": url(sockets[0])})


async def serve(app: Any, listener: socket.socket, gate: Gate) -> None:
    server = _Server(uvicorn.Config(app, log_level="warning", lifespan="on", timeout_graceful_shutdown=1))

    async def read_commands() -> None:
        async for line in input_lines():
            if line.strip() == "release":
                gate.release()
            elif line.strip() == "reset":
                await gate.reset()
        # The test has ended: open streams are cut.
        server.should_exit = server.force_exit = True

    async with asyncio.TaskGroup() as group:
        commands = group.create_task(read_commands())
        await server.serve(sockets=[listener])
        commands.cancel()
