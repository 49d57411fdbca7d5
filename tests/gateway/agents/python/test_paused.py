"""Tests of paused generators: limits of their number and lifetime."""

import asyncio

import pytest

from babelgate.gateway.agents.python.paused import PausedGenerators
from tests.gateway.talk import within


class Call:
    def __init__(self, name: str = "", error: Exception | None = None) -> None:
        self.name = name
        self.error = error
        self.closed = asyncio.Event()

    async def close(self) -> None:
        self.closed.set()
        if self.error is not None:
            raise self.error


async def test_a_parked_call_can_be_resumed_once():
    paused: PausedGenerators[Call] = PausedGenerators(2, 60)
    call = Call()
    paused.park("o", "t", call)
    assert paused.take("o", "t") is call
    assert paused.take("o", "t") is None
    assert not call.closed.is_set()


async def test_another_owners_call_cannot_be_resumed():
    paused: PausedGenerators[Call] = PausedGenerators(2, 60)
    paused.park("o", "t", Call())
    assert paused.take("p", "t") is None
    await paused.close()


async def test_the_oldest_call_is_closed_when_the_store_is_full():
    paused: PausedGenerators[Call] = PausedGenerators(2, 60)
    calls = [Call(str(number)) for number in range(3)]
    for call in calls:
        paused.park("o", call.name, call)
    await within(calls[0].closed.wait())
    assert paused.take("o", "0") is None
    assert paused.take("o", "1") is calls[1]
    assert len(paused) == 1
    await paused.close()


async def test_calls_expire_in_the_order_of_their_age():
    paused: PausedGenerators[Call] = PausedGenerators(10, 0.02)
    first, second = Call(), Call()
    paused.park("o", "1", first)
    paused.park("o", "2", second)
    await within(first.closed.wait())
    await within(second.closed.wait())
    assert len(paused) == 0
    third = Call()
    paused.park("o", "3", third)
    await within(third.closed.wait())


async def test_parking_a_call_again_restarts_its_timeout():
    loop = asyncio.get_running_loop()
    paused: PausedGenerators[Call] = PausedGenerators(10, 0.05)
    call = Call()
    paused.park("o", "1", call)
    resumed = paused.take("o", "1")
    assert resumed is call
    again = loop.time()
    paused.park("o", "1", call)
    await within(call.closed.wait())
    assert loop.time() - again >= 0.04


async def test_another_call_of_the_same_task_replaces_it():
    paused: PausedGenerators[Call] = PausedGenerators(2, 60)
    old, new = Call(), Call()
    paused.park("o", "t", old)
    paused.park("o", "t", new)
    await within(old.closed.wait())
    assert paused.take("o", "t") is new


async def test_closing_closes_all_and_waits_for_them():
    paused: PausedGenerators[Call] = PausedGenerators(5, 60)
    calls = [Call(str(number)) for number in range(3)]
    for call in calls:
        paused.park("o", call.name, call)
    await within(paused.close())
    assert all(call.closed.is_set() for call in calls)
    assert len(asyncio.all_tasks()) == 1


async def test_a_call_that_fails_to_close_is_only_logged(caplog: pytest.LogCaptureFixture):
    paused: PausedGenerators[Call] = PausedGenerators(5, 60)
    bad, good = Call(error=RuntimeError("no")), Call()
    paused.park("o", "1", bad)
    paused.park("o", "2", good)
    await within(paused.close())
    assert good.closed.is_set()
    assert "paused agent not closed" in [record.message for record in caplog.records]
