"""Event streams of other servers."""

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


async def test_frames_are_independent_of_chunk_boundaries() -> None:
    async with aclosing(
        FrameStream(answer(b"data: 1\n\nda", b"ta: 2\n\n: ping\n\ndata: 3\n\n", b"data: unfinished"))
    ) as frames:
        assert await data_of(frames) == [b"1", b"2", b"3"]
        assert frames.broken is None


async def test_a_chunk_with_many_frames_does_not_block_the_loop() -> None:
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


async def test_a_broken_connection_ends_its_stream() -> None:
    async with aclosing(FrameStream(answer(b"data: 1\n\n", error=httpx.ReadError("reset")))) as frames:
        assert await data_of(frames) == [b"1"]
        assert isinstance(frames.broken, httpx.ReadError)


async def test_a_read_timeout_is_raised() -> None:
    async with aclosing(FrameStream(answer(b"data: 1\n\n", error=httpx.ReadTimeout("slow")))) as frames:
        with pytest.raises(httpx.ReadTimeout):
            await data_of(frames)


async def test_a_frame_over_the_limit_is_the_agents_fault() -> None:
    async with aclosing(FrameStream(answer(b"data: 123456789\n\n"), limit=8)) as frames:
        with pytest.raises(FaultError) as error:
            await data_of(frames)
    assert error.value.fault.code is FaultCode.AGENT_INVALID


@pytest.mark.parametrize("error", [None, httpx.ReadError("reset"), httpx.ReadTimeout("slow")])
async def test_drain_reads_the_rest_and_ignores_errors(error: Exception | None) -> None:
    async with aclosing(FrameStream(answer(b"data: 1\n\n", b"data: 2\n\n", error=error), limit=64)) as frames:
        assert (await anext(frames)).data == b"1"
        await frames.drain(BOUND)
        assert await data_of(frames) == []


async def test_drain_gives_up_on_an_endless_stream() -> None:
    async def body() -> AsyncGenerator[bytes]:
        yield b"data: 1\n\n"
        await asyncio.Event().wait()

    async with asyncio.timeout(BOUND), aclosing(FrameStream(httpx.Response(200, content=body()))) as frames:
        assert (await anext(frames)).data == b"1"
        await frames.drain(0.01)
