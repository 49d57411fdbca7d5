"""Reader of event streams (text/event-stream) of agents' servers: yields the frames, and records how the stream
ended."""

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
"""Bytes that are split into lines in one step."""


def is_stream(response: httpx.Response) -> bool:
    """Return True if a response is an event stream."""
    return media_type_of(response.headers.get("content-type", "")) == "text/event-stream"


class FrameStream:
    """Frames of one response. A lost connection ends the stream, and `broken` holds its error. Call `aclose` at the
    end.

    Raises agent_invalid for a frame that is larger than `limit` bytes, and httpx.TimeoutException.
    """

    def __init__(self, response: httpx.Response, *, limit: int = ANSWER_LIMIT) -> None:
        self.broken: httpx.TransportError | None = None
        """The error of a lost connection."""
        self._chunks = pieces(response)
        self._frames = Frames(limit)
        self._ready: Iterator[Frame] = iter(())
        self._chunk = b""
        self._at = 0
        """Position of the next slice in the chunk."""

    def __aiter__(self) -> "FrameStream":
        return self

    async def __anext__(self) -> Frame:
        while (frame := next(self._ready, None)) is None:
            if self._at < len(self._chunk):
                await asyncio.sleep(0)  # other tasks run in between: a chunk may hold thousands of lines
            else:
                self._chunk, self._at = await self._read_chunk(), 0
            self._ready = self._frames.feed(self._chunk[self._at : self._at + _SLICE])
            self._at += _SLICE
        return frame

    async def _read_chunk(self) -> bytes:
        try:
            return await anext(self._chunks)
        except httpx.TimeoutException:
            raise
        except httpx.TransportError as error:
            self.broken = error
            raise StopAsyncIteration from error

    async def drain(self, seconds: float) -> None:
        """Read the stream to its end, so that its connection can be reused. Give up after `seconds`."""
        with suppress(TimeoutError, FaultError, httpx.HTTPError):
            async with asyncio.timeout(seconds):
                async for _ in self:
                    pass

    async def aclose(self) -> None:
        """Stop reading the response."""
        await self._chunks.aclose()
