"""A worker: the thread of one call of a synchronous agent, off the event loop.

One call has one thread for all its steps, so that what a generator opens in one step (a database connection, say) it
may use in the next, and one context, so that its context variables stay.
"""

import asyncio
import inspect
from collections.abc import Callable
from contextvars import Context, copy_context
from queue import SimpleQueue
from threading import Thread
from typing import Any

__all__ = ("Worker",)

_Job = tuple[Callable[..., Any], tuple[Any, ...], asyncio.AbstractEventLoop, asyncio.Future[tuple[Any, Any]]]


class Worker:
    """Its thread starts with the first job. It is a daemon: a function that never returns does not keep the process."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._context = copy_context()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: Thread | None = None

    @property
    def started(self) -> bool:
        return self._thread is not None

    async def do(self, function: Callable[..., Any], *args: object) -> Any:
        """Call it in the thread. A thread cannot be stopped: if the caller is cancelled, this returns only when the
        function has ended, and then raises the cancellation."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[tuple[Any, Any]] = loop.create_future()
        if self._thread is None:
            self._thread = Thread(target=_work, args=(self._jobs, self._context), name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put((function, args, loop, done))
        cancelled: asyncio.CancelledError | None = None
        while not done.done():
            try:
                await asyncio.wait((done,))
            except asyncio.CancelledError as error:
                cancelled = error
        value, error = done.result()
        if cancelled is not None:
            if inspect.iscoroutine(value):
                value.close()  # nobody will await it
            raise cancelled
        if error is not None:
            raise error
        return value

    def stop(self) -> None:
        """No more jobs: the thread ends after the one it is at."""
        if self._thread is not None:
            self._jobs.put(None)

    def __del__(self) -> None:
        self.stop()


def _work(jobs: "SimpleQueue[_Job | None]", context: Context) -> None:
    """The thread. It does not hold the worker, so that one which nobody has any more can end it."""
    while (job := jobs.get()) is not None:
        function, args, loop, done = job
        value, error = None, None
        try:
            value = context.run(function, *args)
        except BaseException as raised:  # handed to the caller, whatever it is
            error = raised
        try:
            loop.call_soon_threadsafe(done.set_result, (value, error))
        except RuntimeError:  # the loop is closed: nobody waits any more
            return
        del job, function, args, done, value, error
