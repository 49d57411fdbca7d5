"""Tests of workers, the threads of synchronous agents."""

import asyncio
import threading
from contextvars import ContextVar

import pytest

from babelgate.canonical.agent import DETACH
from babelgate.gateway.agents.python.threads import Workers
from tests.gateway.talk import within


async def test_all_jobs_of_a_worker_run_in_one_thread():
    worker = Workers("w").worker()
    threads = {await worker.do(threading.get_ident) for _ in range(3)}
    worker.stop()
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_results_and_exceptions_are_returned():
    worker = Workers("w").worker()
    assert await worker.do(max, 1, 2) == 2
    for error in (ValueError("x"), StopIteration(1), KeyboardInterrupt(), SystemExit(1)):

        def fail(error: BaseException = error) -> None:
            raise error

        # `pytest.raises` around `await` cannot catch a StopIteration, which Python turns into a RuntimeError.
        try:
            await worker.do(fail)
        except BaseException as raised:
            assert raised is error or raised.__cause__ is error
        else:
            pytest.fail("nothing was raised")
    worker.stop()


async def test_a_thread_is_reused_after_its_worker_stops():
    workers = Workers("agent")
    worker = workers.worker()
    assert not worker.has_started
    thread: threading.Thread = await worker.do(threading.current_thread)
    assert worker.has_started and thread.daemon and thread.name == "agent"
    other = workers.worker()
    assert await other.do(threading.current_thread) is not thread
    worker.stop()
    worker.stop()  # a second stop has no effect
    assert await workers.worker().do(threading.current_thread) is thread


async def test_the_number_of_idle_threads_is_bounded():
    workers = Workers("agent", idle=2)
    active = [workers.worker() for _ in range(5)]
    threads: list[threading.Thread] = [await worker.do(threading.current_thread) for worker in active]
    for worker in active:
        worker.stop()
    for thread in threads[2:]:
        await within(asyncio.to_thread(thread.join))
    assert all(thread.is_alive() for thread in threads[:2])
    workers.close()
    for thread in threads:
        await within(asyncio.to_thread(thread.join))


async def test_threads_without_an_owner_end():
    worker = Workers("forgotten").worker()
    thread: threading.Thread = await worker.do(threading.current_thread)
    del worker
    await within(asyncio.to_thread(thread.join))


async def test_jobs_run_in_the_context_of_the_workers_creation():
    variable: ContextVar[int] = ContextVar("variable")
    variable.set(1)
    worker = Workers("w").worker()
    variable.set(2)
    assert await worker.do(variable.get) == 1
    await worker.do(variable.set, 3)
    assert await worker.do(variable.get) == 3
    assert variable.get() == 2
    worker.stop()


async def test_a_cancelled_job_is_awaited_and_then_cancelled():
    worker = Workers("w").worker()
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


async def test_a_coroutine_returned_by_a_cancelled_job_is_closed():
    worker = Workers("w").worker()
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
        await within(run)  # without a warning that it was never awaited
    worker.stop()


def test_a_stop_does_not_wait_for_a_thread():
    started, release = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def job() -> None:
        threads.append(threading.current_thread())
        started.set()
        release.wait(5)

    async def stop() -> None:
        worker = Workers("w").worker()
        run = asyncio.ensure_future(worker.do(job))
        await within(asyncio.to_thread(started.wait))
        run.cancel(DETACH)
        with pytest.raises(asyncio.CancelledError):
            await within(run)
        assert worker.is_busy
        worker.stop()

    asyncio.run(stop())
    assert threads[0].is_alive()
    release.set()
    threads[0].join(5)
    assert not threads[0].is_alive()
