"""HTTP/1.1 client on bare sockets: a client library would cost more than the measured work."""

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Self

from bench.rpc import RpcStreams


class KeepAliveConnection:
    """Keep-alive connection that makes one call after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.waited = 0.0
        """Seconds from the last request to the first bytes of the response body, if that came in chunks."""
        self._sent_at = 0.0
        self._is_socket = False
        self._calls: RpcStreams | None = None

    @classmethod
    async def open(cls, port: int, host: str = "127.0.0.1") -> Self:
        return cls(*await asyncio.open_connection(host, port, limit=2**22))

    async def get(self, path: str) -> bytes:
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        return await self._read(path)

    async def post(self, path: str, body: bytes, headers: str = "") -> bytes:
        """Send a request and return the response body. `headers` are lines, each ended by CR LF. Exits if the response
        is not successful."""
        self._send(path, body, headers)
        return await self._read(path)

    async def _read(self, path: str) -> bytes:
        length = await self._head(path)
        if length is not None:
            return await self._reader.readexactly(length)
        return b"".join([piece async for piece in self._chunks()])

    async def follow(self, method: str, path: str, body: bytes = b"", headers: str = "") -> AsyncGenerator[bytes]:
        """Yield the pieces of a stream as they arrive. `headers` are given as for `post`."""
        self._send(path, body, headers, method)
        if await self._head(path) is not None:
            raise SystemExit(f"{path}: not a stream")
        async for piece in self._chunks():
            yield piece

    # WebSocket (RFC 6455): text frames that are not fragmented, as the gateway sends them

    async def upgrade(self, path: str) -> bool:
        """Turn the connection into a WebSocket. Return False if it is one already. Exits if the server refuses."""
        if self._is_socket:
            return False
        head = (
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        self._writer.write(head.encode())
        answer = await self._reader.readuntil(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 101"):
            raise SystemExit(f"{path}: {answer.decode()}")
        self._is_socket = True
        return True

    def send_text(self, text: bytes) -> None:
        """Send a text frame. Its masking key is zero, so that masking costs nothing."""
        size = len(text)
        length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
        self._sent_at = time.perf_counter()
        self._writer.write(b"\x81" + length + b"\0\0\0\0" + text)

    async def receive_text(self) -> bytes:
        """Return the content of the next frame. Exits if it is not a text frame."""
        first, size = await self._reader.readexactly(2)
        if size > 125:
            size = int.from_bytes(await self._reader.readexactly(2 if size == 126 else 8), "big")
        content = await self._reader.readexactly(size)
        if first != 0x81:
            raise SystemExit(f"a frame of another kind: {first:#x} {content!r}")
        return content

    async def call(self, path: str, message: bytes) -> bytes:
        """Make a call of gRPC, and return the messages of its response with their prefixes. The connection must be one
        to a gRPC server, and has only such calls. Exits if the call fails."""
        if self._calls is None:
            self._calls = RpcStreams(self._reader, self._writer)
        return await self._calls.call(path, message)

    async def read_until(self, path: str, body: bytes, headers: str, wanted: bytes) -> None:
        """Read a stream until a piece contains `wanted`. The connection cannot be used afterwards."""
        self._send(path, body, headers)
        if await self._head(path) is not None:
            raise SystemExit(f"{path}: not a stream")
        async for piece in self._chunks():
            if wanted in piece:
                return
        raise SystemExit(f"{path}: the stream ended before {wanted.decode()}")

    def close(self) -> None:
        self._writer.close()

    def _send(self, path: str, body: bytes, headers: str, method: str = "POST") -> None:
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{headers}"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._sent_at = time.perf_counter()
        self._writer.write(head.encode() + body)

    async def _head(self, path: str) -> int | None:
        """Read the head of a response. Return the length of the body in bytes, or None if the body comes in chunks (RFC
        9112, 7.1). Exits if the response is not successful; `path` names the request in the error."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        length: int | None = None
        for line in head.split(b"\r\n"):
            if line[:15].lower() == b"content-length:":
                length = int(line[15:])
        if not head.startswith(b"HTTP/1.1 2"):
            content = await self._reader.readexactly(length or 0)
            raise SystemExit(f"{path}: {head.decode()}{content.decode()}")
        return length

    async def _chunks(self) -> AsyncGenerator[bytes]:
        self.waited = 0.0
        while size := int(await self._reader.readline(), 16):
            self.waited = self.waited or time.perf_counter() - self._sent_at
            yield (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readexactly(2)
