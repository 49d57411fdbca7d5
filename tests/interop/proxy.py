"""Proxy on loopback that cuts connections in the middle of a response, as a network failure or a deploy does."""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import urlsplit

CUT: Final = "X-Cut"
"""Request header that names a list of cuts. A client that reconnects sends it again."""

NAMED: Final = re.compile(rb"^x-cut: *(\S+)\r$", re.IGNORECASE | re.MULTILINE)
LAST_EVENT: Final = re.compile(rb"^last-event-id: *(\S+)\r$", re.IGNORECASE | re.MULTILINE)


class CuttingProxy:
    def __init__(self, upstream: str, cuts: Mapping[str, list[int]]) -> None:
        self.url = ""
        self._upstream = urlsplit(upstream)
        self.cuts = {name: list(after) for name, after in cuts.items()}
        """Remaining cuts by name: the number of body bytes after which each response is cut.

        They are in the order of the requests. The bytes are those on the wire, chunk lengths included.
        """
        self.resumed: dict[str, list[str]] = {name: [] for name in cuts}
        """Last-Event-ID of each request that had one, by the name of its cuts."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self._upstream.hostname, self._upstream.port
        up_reader, up_writer = await asyncio.open_connection(host, port)
        connection = _Connection(writer)
        async with asyncio.TaskGroup() as group:
            requests = group.create_task(self._forward_requests(connection, reader, up_writer))
            with suppress(ConnectionError):
                while data := await up_reader.read(65536):
                    if not await connection.forward(data):
                        break
            writer.close()
            up_writer.transport.abort()
            requests.cancel()

    async def _forward_requests(
        self, connection: "_Connection", reader: asyncio.StreamReader, up_writer: asyncio.StreamWriter
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                if header := NAMED.search(data):
                    name = header[1].decode()
                    if last := LAST_EVENT.search(data):
                        self.resumed[name].append(last[1].decode())
                    connection.begin(self.cuts[name].pop(0) if self.cuts[name] else None)
                up_writer.write(data)
                await up_writer.drain()
        # The caller has disconnected, and the upstream must notice.
        up_writer.transport.abort()


class _Connection:
    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._left: int | None = None
        self._head = b""
        self._in_head = False

    def begin(self, cut: int | None) -> None:
        self._left, self._head, self._in_head = cut, b"", True

    async def forward(self, data: bytes) -> bool:
        """Forward data to the caller. Return False if the connection is cut here."""
        if self._left is None:
            self._writer.write(data)
            await self._writer.drain()
            return True
        if self._in_head:
            self._head += data
            head, end, data = self._head.partition(b"\r\n\r\n")
            if not end:
                return True
            self._in_head = False
            self._writer.write(head + end)
        passed = data[: self._left]
        self._left -= len(passed)
        self._writer.write(passed)
        await self._writer.drain()
        return self._left > 0


@asynccontextmanager
async def cutting(upstream: str, cuts: Mapping[str, list[int]]) -> AsyncGenerator[CuttingProxy]:
    proxy = CuttingProxy(upstream, cuts)
    serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving[task] = writer
        try:
            await proxy.serve(reader, writer)
        finally:
            del serving[task]

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    proxy.url = f"http://{host}:{port}"
    try:
        yield proxy
    finally:
        server.close()
        for writer in serving.values():
            writer.transport.abort()
        if serving:
            await asyncio.wait(list(serving), timeout=5)
