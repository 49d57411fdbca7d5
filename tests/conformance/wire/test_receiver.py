"""Deliveries of agents to the receiver of the judge."""

import asyncio
from urllib.parse import urlsplit

from babelgate.conformance.wire.http import Wire
from babelgate.conformance.wire.receiver import receiver

BODY = b'{"kind":"task"}'


async def deliver(url: str, body: bytes, length: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(b"POST %s HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (parts.path.encode(), length, body))
    await writer.drain()
    return reader, writer


async def test_delivery_is_recorded() -> None:
    async with Wire() as wire, receiver(wire, "127.0.0.1", None) as hook:
        reader, writer = await deliver(hook.url, BODY, len(BODY))
        assert await hook.wait(1, 5)
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        assert [each.content for each in hook.deliveries] == [b""]
        assert [each.body for each in hook.deliveries] == [BODY]
        writer.close()


async def test_unfinished_delivery_is_closed_when_the_receiver_stops() -> None:
    """Prevent a connection that is still open at the end of the judge's process."""
    async with Wire() as wire:
        async with receiver(wire, "127.0.0.1", None) as hook:
            reader, writer = await deliver(hook.url, BODY[:4], len(BODY))
            assert not await hook.wait(1, 0.05)
        assert await asyncio.wait_for(reader.read(), 30) == b""
        assert hook.deliveries == []
        writer.close()
