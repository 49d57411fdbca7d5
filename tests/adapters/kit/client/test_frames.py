"""Streams of events that other servers send."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import httpx
import pytest

from babelgate.adapters.kit.client.frames import FrameStream
from babelgate.adapters.kit.client.sse import Frame
from babelgate.canonical import FaultCode, FaultError
from tests.driving import BOUND, all_of


def answer(*chunks: bytes, error: Exception | None = None) -> httpx.Response:
    async def body() -> AsyncGenerator[bytes]:
        for chunk in chunks:
            yield chunk
        if error is not None:
            raise error

    return httpx.Response(200, content=body())


async def data_of(frames: AsyncIterator[Frame]) -> list[bytes]:
    return [frame.data for frame in await all_of(frames)]


async def test_frames_come_one_by_one_however_they_are_cut() -> None:
    async with aclosing(
        FrameStream(answer(b"data: 1\n\nda", b"ta: 2\n\n: ping\n\ndata: 3\n\n", b"data: unfinished"))
    ) as frames:
        assert await data_of(frames) == [b"1", b"2", b"3"]
        assert frames.broken is None


async def test_a_chunk_may_hold_thousands_of_frames_and_others_come_in_between() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    async with aclosing(FrameStream(answer(b"data: 1\n\n" * 20_000))) as frames:
        assert len(await data_of(frames)) == 20_000
    counting.cancel()
    assert turns > 5


async def test_a_connection_that_breaks_ends_its_stream() -> None:
    async with aclosing(FrameStream(answer(b"data: 1\n\n", error=httpx.ReadError("reset")))) as frames:
        assert await data_of(frames) == [b"1"]
        assert isinstance(frames.broken, httpx.ReadError)


async def test_silence_that_is_too_long_is_no_end() -> None:
    async with aclosing(FrameStream(answer(b"data: 1\n\n", error=httpx.ReadTimeout("slow")))) as frames:
        with pytest.raises(httpx.ReadTimeout):
            await data_of(frames)


async def test_a_frame_that_is_too_large_is_the_servers_fault() -> None:
    async with aclosing(FrameStream(answer(b"data: 123456789\n\n"), limit=8)) as frames:
        with pytest.raises(FaultError) as error:
            await data_of(frames)
    assert error.value.fault.code is FaultCode.AGENT_INVALID


@pytest.mark.parametrize("error", [None, httpx.ReadError("reset"), httpx.ReadTimeout("slow")])
async def test_what_is_left_of_a_stream_is_read_whatever_it_is(error: Exception | None) -> None:
    async with aclosing(FrameStream(answer(b"data: 1\n\n", b"data: 2\n\n", error=error), limit=64)) as frames:
        assert (await anext(frames)).data == b"1"
        await frames.drain(BOUND)
        assert await data_of(frames) == []


async def test_a_stream_that_does_not_end_is_given_up() -> None:
    async def body() -> AsyncGenerator[bytes]:
        yield b"data: 1\n\n"
        await asyncio.Event().wait()

    async with asyncio.timeout(BOUND), aclosing(FrameStream(httpx.Response(200, content=body()))) as frames:
        assert (await anext(frames)).data == b"1"
        await frames.drain(0.01)
