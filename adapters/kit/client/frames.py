"""Streams of events of an agent's server (text/event-stream): their frames one by one, whatever ends them."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import httpx

from babelgate.adapters.kit.client.answers import ANSWER_LIMIT, pieces
from babelgate.adapters.kit.client.sse import Frame, Frames
from babelgate.adapters.kit.headers import media_type_of
from babelgate.canonical import FaultError

DRAIN: Final = 0.2
"""Seconds that a server has to end its stream after the run has stopped."""

_SLICE: Final = 16 * 1024
"""Bytes that are cut into lines at once."""


def is_stream(response: httpx.Response) -> bool:
    return media_type_of(response.headers.get("content-type", "")) == "text/event-stream"


class FrameStream:
    """The frames of an answer, to be closed. A connection that breaks is a stream that ends, and `broken` its error.

    Raises agent_invalid for a frame that is larger than `limit` bytes, and httpx.TimeoutException.
    """

    def __init__(self, response: httpx.Response, *, limit: int = ANSWER_LIMIT) -> None:
        self.broken: httpx.TransportError | None = None
        self._chunks = pieces(response)
        self._frames = Frames(limit)
        self._found: Iterator[Frame] = iter(())
        self._chunk = b""
        self._at = 0
        """Where in the chunk the next slice begins."""

    def __aiter__(self) -> "FrameStream":
        return self

    async def __anext__(self) -> Frame:
        while (found := next(self._found, None)) is None:
            if self._at < len(self._chunk):
                await asyncio.sleep(0)  # others come in between: a chunk may be of thousands of lines
            else:
                self._chunk, self._at = await self._read_chunk(), 0
            self._found = self._frames.feed(self._chunk[self._at : self._at + _SLICE])
            self._at += _SLICE
        return found

    async def _read_chunk(self) -> bytes:
        try:
            return await anext(self._chunks)
        except httpx.TimeoutException:
            raise
        except httpx.TransportError as error:
            self.broken = error
            raise StopAsyncIteration from error

    async def drain(self, seconds: float) -> None:
        """Read to its end, a connection can be used again; after so many seconds it is given up."""
        with suppress(TimeoutError, FaultError, httpx.HTTPError):
            async with asyncio.timeout(seconds):
                async for _ in self:
                    pass

    async def aclose(self) -> None:
        await self._chunks.aclose()
