"""HTTP server of a check that receives webhooks (push notifications). It records each delivery and validates it against
a schema."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from babelgate.conformance.wire.exchange import Exchange
from babelgate.conformance.wire.http import EXCHANGES, Wire

_MAX_DELIVERY: Final = 8 * 2**20
"""Maximum size of the body of one delivery, in bytes. Chosen."""
_ACCEPT_ITERATIONS: Final = 5
"""Number of iterations of the event loop in which asyncio turns accepted sockets into connections before the server is
closed. Chosen: more than asyncio needs."""
_TIMEOUT: Final = 10.0
"""Timeout for receiving one delivery, in seconds. Chosen."""


@dataclass(slots=True, eq=False)
class Hook:
    """Webhook of a check: its URL, and the deliveries that it has received so far."""

    url: str
    deliveries: list[Exchange] = field(default_factory=list[Exchange])
    """Recorded deliveries. `headers` and `body` are those of the agent's request, and `status` is the status that the
    check returned."""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    status: int = 200
    """HTTP status that the check returns for a delivery."""

    async def wait(self, number: int, bound: float) -> bool:
        """Wait until there are `number` deliveries. Return False if there are fewer after `bound` seconds."""
        deadline = asyncio.get_running_loop().time() + bound
        while len(self.deliveries) < number:
            self.arrived.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self.arrived.wait()
            except TimeoutError:
                return False
        return True


@asynccontextmanager
async def receiver(wire: Wire, host: str, schema: str | None) -> AsyncGenerator[Hook]:
    """Start a webhook server on this machine and yield its webhook; stop the server on exit. Deliveries are validated
    against `schema`, unless it is None."""
    path = f"/{uuid4().hex}"
    exchanges = EXCHANGES.get([])
    connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT):
                await _serve(reader, writer)
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, OSError):
            pass  # A delivery that did not arrive in full is not recorded.

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Not `serve` itself: a task that is cancelled before its first step would never close its connection.
        task = asyncio.create_task(serve(reader, writer))  # noqa: TID251 - held in `connections`, awaited by `_close`
        connections[task] = writer
        task.add_done_callback(lambda ended: connections.pop(ended).close())

    async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ", 2)
        headers = [
            (name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in head[1:] if line)
        ]
        body = await _body(reader, {name.lower(): value for name, value in headers})
        status = hook.status if target == path else 404
        writer.write(f"HTTP/1.1 {status} {'OK' if status < 300 else 'No'}\r\n".encode())
        writer.write(b"Content-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        if target == path:
            hooked = Exchange(len(wire.exchanges) + 1, method, hook.url, headers, body, status, is_ended=True)
            wire.exchanges.append(hooked)
            exchanges.append(hooked)
            if schema is not None:
                wire.hold_text(hooked, schema, body)
            hook.deliveries.append(hooked)
            hook.arrived.set()

    server = await asyncio.start_server(accept, host, 0, limit=64 * 2**10)
    hook = Hook(f"http://{host}:{server.sockets[0].getsockname()[1]}{path}")
    try:
        yield hook
    finally:
        # asyncio loses a connection that was accepted shortly before its server is closed (3.11, `Server._attach`). So
        # accepting stops first, accepted sockets become connections, and only then the server is closed.
        for listener in server.sockets:
            asyncio.get_running_loop().remove_reader(listener)
        for _ in range(_ACCEPT_ITERATIONS):
            await asyncio.sleep(0)
        server.close()
        await _close(connections)


async def _close(connections: Mapping[asyncio.Task[None], asyncio.StreamWriter]) -> None:
    """Cancel the deliveries that are still being received, and wait until their connections are closed."""
    open_ones = dict(connections)
    for task in open_ones:
        task.cancel()
    await asyncio.gather(*open_ones, return_exceptions=True)
    for writer in open_ones.values():
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = b""
        while size := int((await reader.readline()).split(b";")[0], 16):
            body += await reader.readexactly(size)
            await reader.readline()
            if len(body) > _MAX_DELIVERY:
                raise ValueError("a delivery without an end")
        return body
    length = int(headers.get("content-length", "0"))
    if length > _MAX_DELIVERY:
        raise ValueError("a delivery too large")
    return await reader.readexactly(length)
