"""The small parts of a connection behave like those that they replace."""

import asyncio
import sys
from collections import deque
from typing import Any, cast

from babelgate.gateway.http.light import LightEvent, LightFlow, Pipeline
from tests.gateway.hubs import within


async def test_an_event_wakes_all_of_its_waiters() -> None:
    event = LightEvent()
    waiting = asyncio.gather(event.wait(), event.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    event.set()
    assert await within(waiting) == [True, True]


async def test_a_cancelled_waiter_leaves_the_event() -> None:
    event = LightEvent()
    cancelled, waiting = asyncio.ensure_future(event.wait()), asyncio.ensure_future(event.wait())
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    event.set()
    assert await within(waiting)


async def test_output_drains_when_writing_resumes() -> None:
    flow = LightFlow(cast("Any", None))
    await within(flow.drain())
    flow.pause_writing()
    draining = asyncio.ensure_future(flow.drain())
    await asyncio.sleep(0)
    assert not draining.done()
    flow.resume_writing()
    await within(draining)


def test_the_oldest_request_is_next() -> None:
    pipeline = Pipeline()
    for number in range(3):
        pipeline.appendleft(number)
    assert [pipeline.pop() for _ in range(3)] == [0, 1, 2]
    assert sys.getsizeof(Pipeline()) < sys.getsizeof(deque[int]()) / 4
