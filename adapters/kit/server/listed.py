"""Streamed JSON lists: each entry is made and sent before the next one is. Together they may be larger than the memory,
and all of them at once would block the event loop for everybody else."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Protocol

from litestar import Response

from babelgate.adapters.kit.aside import Turns

_WHOLE: Final = 64 * 1024
"""Bytes up to which an answer is sent whole, and with its length."""
_PIECE: Final = 32 * 1024
"""Bytes that are sent at once, at least. A client that reads nothing has three times as much in memory."""


class Large(Protocol):
    """An entry that is made while it is sent."""

    def pieces(self) -> AsyncGenerator[bytes]: ...


async def list_response(
    shell: bytes,
    items: AsyncGenerator[bytes | Large] | AsyncGenerator[bytes],
    *,
    name: str | None = None,
    headers: Mapping[str, str] | None = None,
    more_headers: Callable[[], Awaitable[Mapping[str, str]]] | None = None,
    media_type: str = "application/json",
) -> Response[Any]:
    """A JSON answer with the `items`, each one JSON, in its list. `shell` = the answer without any: `[]`, or the object
    whose member `name` is `[]`. What goes wrong with the first items is raised here; `more_headers` is asked when these
    are made."""
    head, empty, tail = shell.partition(b"[]" if name is None else b'"%b":[]' % name.encode())
    assert empty, shell
    pieces = _pieces(head + empty[:-1], items, b"]" + tail)
    begun: list[bytes] = []
    size = 0
    try:
        async for piece in pieces:
            begun.append(piece)
            size += len(piece)
            if size > _WHOLE:
                break
        told = {**(headers or {}), **(await more_headers() if more_headers is not None else {})}
    except BaseException:
        await pieces.aclose()
        raise
    if size <= _WHOLE:
        return Response(b"".join(begun), media_type=media_type, headers=told)
    return Pieces(_after(begun, pieces), told, media_type=media_type)


async def each(items: Iterable[bytes | Large]) -> AsyncGenerator[bytes | Large]:
    """For things that are at hand, and become JSON one by one."""
    for item in items:
        yield item


async def _pieces(
    head: bytes, items: AsyncGenerator[bytes | Large] | AsyncGenerator[bytes], tail: bytes
) -> AsyncGenerator[bytes]:
    turns = Turns()
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
            if turns.is_over:
                await turns.give()
    yield b"".join([*ready, tail])


async def _after(begun: list[bytes], rest: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    async with aclosing(rest):
        while begun:
            yield begun.pop(0)  # which is not held while the rest is sent
        async for piece in rest:
            yield piece


class Pieces(Response[AsyncIterator[bytes]]):
    """Answers with pieces of a body as they come, and closes their iterator when the reader leaves."""

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
                # Both have ended when the pieces are closed: an iterator that somebody waits for cannot be.
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
