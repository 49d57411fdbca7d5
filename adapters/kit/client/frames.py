"""Reader of event streams (text/event-stream) of agents' servers: yields the frames, and records how the stream
ended."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

import httpx

from babelgate.adapters.kit.client.answers import ANSWER_LIMIT, Body
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

    Iteration raises the errors of `read`.
    """

    def __init__(self, response: httpx.Response, *, limit: int = ANSWER_LIMIT) -> None:
        self.broken: httpx.TransportError | None = None
        """The error of a lost connection."""
        self._body = Body(response)
        self._frames = Frames(limit)
        self._ready: Iterator[Frame] = iter(())
        self._failed: FaultError | None = None
        """Fault of a frame, to raise after the frames before it were returned."""
        self._chunk = b""
        self._at = 0
        """Position of the next slice in the chunk."""

    async def read(self) -> Sequence[Frame]:
        """Return the frames that have arrived, and wait for one if there are none. Return none at the end.

        Raises agent_invalid for a frame that is larger than `limit` bytes, and httpx.TimeoutException.
        """
        frames: list[Frame] = []
        while not frames:
            if self._failed is not None:
                raise self._failed
            if self._at < len(self._chunk):
                await asyncio.sleep(0)  # other tasks run in between: a chunk may hold thousands of lines
            else:
                self._chunk, self._at = await self._read_chunk(), 0
                if not self._chunk:
                    break
            try:
                frames.extend(self._frames.feed(self._chunk[self._at : self._at + _SLICE]))
            except FaultError as error:
                self._failed = error
            self._at += _SLICE
        return frames

    async def _read_chunk(self) -> bytes:
        try:
            return await self._body.read()
        except httpx.TimeoutException:
            raise
        except httpx.TransportError as error:
            self.broken = error
            return b""

    def __aiter__(self) -> "FrameStream":
        return self

    async def __anext__(self) -> Frame:
        frame = next(self._ready, None)
        if frame is None:
            self._ready = iter(await self.read())
            frame = next(self._ready, None)
            if frame is None:
                raise StopAsyncIteration
        return frame

    async def drain(self, seconds: float) -> None:
        """Read the stream to its end, so that its connection can be reused. Give up after `seconds`."""
        with suppress(TimeoutError, FaultError, httpx.HTTPError):
            async with asyncio.timeout(seconds):
                while await self.read():
                    pass

    async def aclose(self) -> None:
        """Stop reading the response."""
        await self._body.aclose()
