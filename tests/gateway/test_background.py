"""Tests of background tasks, and of threads that must not delay the shutdown."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable

import pytest

from babelgate.gateway.background import Failures, Tasks, until_ended
from tests.gateway.hubs import within


def fail(kind: type[Exception]) -> Exception:
    try:
        raise kind
    except Exception as error:
        return error


def test_each_kind_of_failure_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    failures = Failures("the sweep")
    for kind in (ZeroDivisionError, ZeroDivisionError, KeyError, ZeroDivisionError):
        failures.note(fail(kind))
    assert [type(record.exc_info[1]) for record in caplog.records if record.exc_info] == [ZeroDivisionError, KeyError]
    assert "the sweep failed and continues" in caplog.text


async def test_a_task_that_does_not_end_is_abandoned(caplog: pytest.LogCaptureFixture) -> None:
    tasks, go = Tasks(), asyncio.Event()

    async def shrug() -> None:
        while not go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await go.wait()

    shrugging = tasks.spawn(shrug(), "shrug")
    await asyncio.sleep(0)
    await within(tasks.stop(0.05))
    assert "shrug did not end" in caplog.text
    go.set()
    await within(shrugging)


def wait_for(event: threading.Event) -> Callable[[], None]:
    def wait() -> None:
        event.wait()

    return wait


async def test_a_thread_that_hangs_is_interrupted() -> None:
    go, gave_up = threading.Event(), threading.Event()

    def give_up() -> None:
        gave_up.set()
        go.set()

    assert await within(until_ended(wait_for(go), give_up, 0.05))
    assert gave_up.is_set()


async def test_a_thread_that_cannot_be_interrupted_is_abandoned() -> None:
    go = threading.Event()
    assert not await within(until_ended(wait_for(go), lambda: None, 0.05))
    go.set()


async def test_the_error_of_a_thread_is_raised() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await within(until_ended(fail, lambda: None, 60))


async def test_a_failed_task_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)

    async def fail() -> None:
        raise ZeroDivisionError

    tasks = Tasks()
    tasks.spawn(fail(), "failing")
    await within(tasks.drain(60))
    await asyncio.sleep(0)
    assert "failing failed" in caplog.text
