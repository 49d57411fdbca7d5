"""Workers: the threads of synchronous agents."""

import asyncio
import threading
from contextvars import ContextVar

import pytest

from gateway.worker import Worker
from tests.gateway.talk import within


async def test_all_jobs_of_a_worker_run_in_one_thread_that_is_not_the_loops():
    worker = Worker("w")
    threads = {await worker.do(threading.get_ident) for _ in range(3)}
    worker.stop()
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_results_and_exceptions_come_back():
    worker = Worker("w")
    assert await worker.do(max, 1, 2) == 2
    for error in (ValueError("x"), StopIteration(1), KeyboardInterrupt(), SystemExit(1)):

        def fail(error: BaseException = error) -> None:
            raise error

        # `pytest.raises` around `await` cannot tell a StopIteration, which Python turns into a RuntimeError.
        try:
            await worker.do(fail)
        except BaseException as raised:
            assert raised is error or raised.__cause__ is error
        else:
            pytest.fail("nothing was raised")
    worker.stop()


async def test_the_thread_starts_with_the_first_job_and_ends_when_it_is_told():
    worker = Worker("told")
    assert not worker.started
    thread: threading.Thread = await worker.do(threading.current_thread)
    assert worker.started and thread.daemon and thread.name == "told"
    worker.stop()
    await within(asyncio.to_thread(thread.join))


async def test_the_thread_of_a_worker_that_nobody_has_any_more_ends():
    worker = Worker("forgotten")
    thread: threading.Thread = await worker.do(threading.current_thread)
    del worker
    await within(asyncio.to_thread(thread.join))


async def test_jobs_see_the_context_that_the_worker_was_made_in():
    variable: ContextVar[int] = ContextVar("variable")
    variable.set(1)
    worker = Worker("w")
    variable.set(2)
    assert await worker.do(variable.get) == 1
    await worker.do(variable.set, 3)
    assert await worker.do(variable.get) == 3
    assert variable.get() == 2
    worker.stop()


async def test_a_cancelled_job_is_waited_for_and_then_cancelled():
    worker = Worker("w")
    started, release = threading.Event(), threading.Event()

    def job() -> str:
        started.set()
        release.wait(5)
        return "ignored"

    run = asyncio.ensure_future(worker.do(job))
    await within(asyncio.to_thread(started.wait))
    run.cancel()
    await asyncio.wait((run,), timeout=0.02)
    assert not run.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await within(run)
    worker.stop()


async def test_a_coroutine_that_a_cancelled_job_gave_is_closed():
    worker = Worker("w")
    started, release = threading.Event(), threading.Event()

    async def never() -> None: ...

    def job() -> object:
        started.set()
        release.wait(5)
        return never()

    run = asyncio.ensure_future(worker.do(job))
    await within(asyncio.to_thread(started.wait))
    run.cancel()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await within(run)  # and no warning that it was never awaited
    worker.stop()


def test_a_job_that_outlives_its_loop_ends_quietly():
    started, release = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def job() -> None:
        threads.append(threading.current_thread())
        started.set()
        release.wait(5)

    loop = asyncio.new_event_loop()
    run = loop.create_task(Worker("w").do(job))

    async def until_it_works() -> None:
        await asyncio.to_thread(started.wait, 5)

    loop.run_until_complete(until_it_works())
    loop.close()
    release.set()
    threads[0].join(5)
    assert not threads[0].is_alive()
    del run
