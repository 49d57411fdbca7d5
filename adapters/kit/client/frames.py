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
"""Seconds that a server has to end its stream after the run has stopped. Chosen."""

_SLICE: Final = 16 * 1024
"""Number of bytes that are split into lines in one step, before other tasks of the event loop run. Chosen."""


def is_stream(response: httpx.Response) -> bool:
    """Return True if a response is an event stream."""
    return media_type_of(response.headers.get("content-type", "")) == "text/event-stream"


class FrameStream:
    """Reader of the frames of one event stream. A lost connection ends the stream without an exception, and `broken`
    holds the error. Call `aclose` at the end.

    Iteration raises the errors of `read`.
    """

    def __init__(self, response: httpx.Response, *, limit: int = ANSWER_LIMIT) -> None:
        self.broken: httpx.TransportError | None = None
        """Error of the connection, if it was lost before the stream ended. None otherwise."""
        self._body = Body(response)
        self._frames = Frames(limit)
        self._ready: Iterator[Frame] = iter(())
        self._failed: FaultError | None = None
        """Fault of an invalid frame. It is raised by the next `read`, after the frames before it were returned."""
        self._chunk = b""
        self._at = 0
        """Number of bytes of the current chunk that were already split into lines."""

    async def read(self) -> Sequence[Frame]:
        """Return the frames that have arrived, and wait for one if there are none. Return an empty sequence at the end
        of the stream.

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
        """Stop reading the response. Its connection is not closed here."""
        await self._body.aclose()
