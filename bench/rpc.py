"""Calls of gRPC on bare sockets, with the part of HTTP/2 (RFC 9113) that they need."""

import asyncio
import struct
from typing import Final

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
"""Types of frames."""
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
"""Flags of frames."""
_HEADER_TABLE_SIZE, _INITIAL_WINDOW_SIZE = 1, 4
"""Names of settings."""
_WINDOW: Final = 2**30
"""Bytes that the server may send without an update of the connection's window."""


class RpcStreams:
    """Calls on one connection, one after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Open HTTP/2 on a new connection."""
        self._reader = reader
        self._writer = writer
        self._next_id = 1
        self._left = _WINDOW
        settings = struct.pack(">HIHI", _HEADER_TABLE_SIZE, 0, _INITIAL_WINDOW_SIZE, 2**31 - 1)
        writer.write(_PREFACE + _frame(_SETTINGS, 0, 0, settings) + _frame(_WINDOW_UPDATE, 0, 0, _WINDOW.to_bytes(4)))

    async def call(self, path: str, message: bytes) -> bytes:
        """Make a call, and return the messages of the response with their prefixes. Exits if the server resets the call
        or sends no message, as it does for an error."""
        stream, self._next_id = self._next_id, self._next_id + 2
        head = b"\x83\x86\x04%b\x01%b\x0f\x10%b\x00%b%b" % (
            *map(_text, (path, "127.0.0.1", "application/grpc", "te", "trailers")),  # RFC 7541, 6.2.2, static table
        )
        body = b"\0" + len(message).to_bytes(4) + message
        self._writer.write(_frame(_HEADERS, _END_HEADERS, stream, head) + _frame(_DATA, _END_STREAM, stream, body))
        received: list[bytes] = []
        trailers = b""
        while True:
            kind, flags, of, content = await self._read()
            if kind == _SETTINGS and not flags & _ACK:
                self._writer.write(_frame(_SETTINGS, _ACK, 0, b""))
            elif kind == _PING and not flags & _ACK:
                self._writer.write(_frame(_PING, _ACK, 0, content))
            elif kind in (_GOAWAY, _RST_STREAM):
                raise SystemExit(f"{path}: ended by frame {kind}: {content!r}")
            elif kind == _DATA:
                received.append(content)
                self._count(len(content))
            elif kind == _HEADERS:
                trailers = content
            if of == stream and kind in (_DATA, _HEADERS) and flags & _END_STREAM:
                break
        if not received:
            raise SystemExit(f"{path}: {trailers!r}")
        return b"".join(received)

    async def _read(self) -> tuple[int, int, int, bytes]:
        """Return the type, flags, stream and content of the next frame."""
        head = await self._reader.readexactly(9)
        return head[3], head[4], int.from_bytes(head[5:]), await self._reader.readexactly(int.from_bytes(head[:3]))

    def _count(self, size: int) -> None:
        """Renew the connection's window when half of it is used."""
        self._left -= size
        if self._left < _WINDOW // 2:
            self._writer.write(_frame(_WINDOW_UPDATE, 0, 0, (_WINDOW - self._left).to_bytes(4)))
            self._left = _WINDOW


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return len(content).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + content


def _text(text: str) -> bytes:
    """Return a text as a string literal of HPACK (RFC 7541, 5.2), of at most 126 bytes."""
    assert len(text) < 127
    return bytes((len(text),)) + text.encode()
