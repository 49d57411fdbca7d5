"""The loop in which nobody waits for a time."""

import asyncio
import time
from typing import Final

import pytest

from tests.conformance.hasty import HastyLoop

LOOPS: Final = {"hasty": HastyLoop}


async def test_a_time_that_nobody_needs_is_there_at_once() -> None:
    loop, began = asyncio.get_running_loop(), time.monotonic()
    before = loop.time()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1000):
            await asyncio.Event().wait()
    assert loop.time() - before >= 1000
    assert time.monotonic() - began < 500


async def test_what_comes_earlier_comes_first() -> None:
    async def after(seconds: int) -> None:
        await asyncio.sleep(seconds)
        came.append(seconds)

    came: list[int] = []
    await asyncio.gather(*(after(seconds) for seconds in (300, 100, 200)))
    assert came == [100, 200, 300]


async def test_who_is_answered_has_waited_for_no_time() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()
        await writer.wait_closed()
        gone.set()

    gone = asyncio.Event()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        async with asyncio.timeout(1000):
            for _ in range(1000):
                writer.write(b"hello\n")
                assert await reader.readline() == b"hello\n"
        writer.close()
        await writer.wait_closed()
        await gone.wait()


async def test_a_thread_has_all_the_time_it_needs() -> None:
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    def work() -> str:
        loop.call_soon_threadsafe(began.set)
        time.sleep(0.3)  # noqa: TID251 - a thread that takes longer than the loop is patient
        return "done"

    async with asyncio.timeout(1000):
        assert await asyncio.to_thread(work) == "done"
    assert began.is_set()
