"""A server program: uvicorn on a port of its own choice, and a gate that the test opens so that an agent may go on.

It says {"ready": "http://127.0.0.1:PORT"}, takes `release` and `reset` lines on stdin, and ends when stdin closes.
"""

import asyncio
import socket
from typing import Any

import uvicorn
from lines import heard, options, say


class Gate:
    """Where an agent waits in the middle of its answer: each `release` of the test lets one waiting agent go on."""

    def __init__(self) -> None:
        # A semaphore and not an event: a release that comes before the agent gets here still counts.
        self._passes = asyncio.Semaphore(0)
        self._open = not options().get("gated", True)

    async def wait(self) -> None:
        if not self._open:
            await self._passes.acquire()

    def release(self) -> None:
        self._passes.release()

    async def reset(self) -> None:
        """Take back what nobody has used."""
        while not self._passes.locked():
            await self._passes.acquire()


def listen() -> socket.socket:
    """Bound before the app is made, because an agent card names its own URL."""
    # Named TCP and not left at 0: asyncio turns Nagle off only then, and with it on each answer takes 40 ms longer.
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

    async def obey() -> None:
        async for line in heard():
            if line.strip() == "release":
                gate.release()
            elif line.strip() == "reset":
                await gate.reset()
        # The test is over: streams that are still open are cut, not waited for.
        server.should_exit = server.force_exit = True

    async with asyncio.TaskGroup() as group:
        obeying = group.create_task(obey())
        await server.serve(sockets=[listener])
        obeying.cancel()
