"""Streamed JSON lists: each item is created and sent before the next one. Together, the items may exceed the memory,
and encoding them all at once would block the event loop."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Protocol

from litestar import Response

from babelgate.adapters.kit.aside import TimeSlice

_WHOLE: Final = 64 * 1024
"""Maximum size of a response that is sent at once, with its length, in bytes. Chosen."""
_PIECE: Final = 32 * 1024
"""Minimum size of a chunk, in bytes. Chosen: a client that reads nothing holds three times as much in memory."""


class Large(Protocol):
    """Interface of an item that is encoded piece by piece while it is sent."""

    def pieces(self) -> AsyncGenerator[bytes]:
        """Yield the JSON of the item in pieces."""
        ...


async def list_response(
    shell: bytes,
    items: AsyncGenerator[bytes | Large] | AsyncGenerator[bytes],
    *,
    name: str | None = None,
    headers: Mapping[str, str] | None = None,
    more_headers: Callable[[], Awaitable[Mapping[str, str]]] | None = None,
    media_type: str = "application/json",
) -> Response[Any]:
    """Return a response with a JSON list of `items`, each of which is JSON. If an item within the first 64 KiB raises
    an exception, it is raised here.

    `shell` is the response without items: `[]`, or an object whose member `name` is `[]`. `more_headers` is called
    after the first items, and its headers are added to `headers`.
    """
    head, empty, tail = shell.partition(b"[]" if name is None else b'"%b":[]' % name.encode())
    assert empty, shell
    pieces = _pieces(head + empty[:-1], items, b"]" + tail)
    first_pieces: list[bytes] = []
    size = 0
    try:
        async for piece in pieces:
            first_pieces.append(piece)
            size += len(piece)
            if size > _WHOLE:
                break
        all_headers = {**(headers or {}), **(await more_headers() if more_headers is not None else {})}
    except BaseException:
        await pieces.aclose()
        raise
    if size <= _WHOLE:
        return Response(b"".join(first_pieces), media_type=media_type, headers=all_headers)
    return Pieces(_after(first_pieces, pieces), all_headers, media_type=media_type)


async def each(items: Iterable[bytes | Large]) -> AsyncGenerator[bytes | Large]:
    """Yield the items of a list in memory, as the asynchronous generator that `list_response` takes."""
    for item in items:
        yield item


async def _pieces(
    head: bytes, items: AsyncGenerator[bytes | Large] | AsyncGenerator[bytes], tail: bytes
) -> AsyncGenerator[bytes]:
    """Yield the JSON of the list in pieces: `head`, the items with commas between them, and `tail`."""
    time_slice = TimeSlice()
    ready, size = [head], 0
    first = True
    async with aclosing(items):
        async for item in items:
            if not first:
                ready.append(b",")
            first = False
            if not isinstance(item, bytes):
                yield b"".join(ready)
                ready, size = [], 0
                async with aclosing(item.pieces()) as pieces:
                    async for piece in pieces:
                        yield piece
                continue
            ready.append(item)
            size += len(item)
            if size > _PIECE:
                yield b"".join(ready)
                ready, size = [], 0
            if time_slice.is_used_up:
                await time_slice.pause()
    yield b"".join([*ready, tail])


async def _after(first_pieces: list[bytes], rest: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Yield the pieces `first_pieces`, which were read in advance, and then those of `rest`."""
    async with aclosing(rest):
        while first_pieces:
            yield first_pieces.pop(0)  # released while the rest is sent
        async for piece in rest:
            yield piece


class Pieces(Response[AsyncIterator[bytes]]):
    """Response that sends the pieces of a body as they arrive, and closes their iterator when the reader
    disconnects."""

    def __init__(
        self,
        pieces: AsyncIterator[bytes],
        headers: Mapping[str, str],
        *,
        status: int = 200,
        media_type: str = "application/json",
    ) -> None:
        super().__init__(pieces, status_code=status, media_type=media_type, headers=dict(headers))
        self._status = status
        self._pieces = pieces
        self._media_type = media_type

    def to_asgi_response(self, *_: Any, headers: Mapping[str, str] | None = None, **__: Any) -> Any:
        return _Body(self._pieces, self._status, {**(headers or {}), **self.headers, "content-type": self._media_type})


@dataclass(frozen=True, slots=True)
class _Body:
    pieces: Any
    status: int
    headers: Mapping[str, str]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        # ASGI 3.0, http.response.start: names in lower case.
        head = [(name.lower().encode(), value.encode("latin-1")) for name, value in self.headers.items()]
        async with aclosing(self.pieces):
            await send({"type": "http.response.start", "status": self.status, "headers": head})
            sending = asyncio.ensure_future(self._send(send))
            leaving = asyncio.ensure_future(_wait_for_disconnect(receive))
            try:
                await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            finally:
                # Both tasks have ended before the pieces are closed: an iterator that a task waits for cannot be
                # closed.
                over = sending.done()
                sending.cancel()
                leaving.cancel()
                await asyncio.wait((sending, leaving))
            if over:
                sending.result()

    async def _send(self, send: Any) -> None:
        async for piece in self.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _wait_for_disconnect(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
