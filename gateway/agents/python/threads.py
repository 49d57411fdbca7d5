"""Thread pool: the threads of synchronous agents, off the event loop.

One call has one thread for all its steps, so that what a generator opens in one step (a database connection, say) it
may use in the next, and one context, so that its context variables stay. After the call, another gets the thread.
"""

import asyncio
import inspect
from collections.abc import Callable
from contextvars import Context, copy_context
from queue import SimpleQueue
from threading import Thread
from typing import Any

from babelgate.canonical.agent import DETACH


class _Job:
    __slots__ = ("_done", "arguments", "context", "error", "function", "loop", "over", "value")

    def __init__(self, context: Context, function: Callable[..., Any], arguments: tuple[object, ...]) -> None:
        self.context = context
        self.function = function
        self.arguments = arguments
        self.loop = asyncio.get_running_loop()
        self.over = False
        self.value: Any = None
        self.error: BaseException | None = None
        self._done: asyncio.Future[None] = self.loop.create_future()

    async def wait(self) -> None:
        """Until it is over; a cancellation that comes meanwhile is raised then. A gateway that stops does not wait.
        Raises CancelledError."""
        cancelled: asyncio.CancelledError | None = None
        while not self.over:
            try:
                await self._done
            except asyncio.CancelledError as error:  # it took the future with it
                if error.args == (DETACH,):
                    raise
                cancelled = error
                self._done = self.loop.create_future()
        if cancelled is not None:
            if inspect.iscoroutine(self.value):
                self.value.close()  # nobody will await it
            raise cancelled

    def finish(self) -> None:
        self.over = True
        if not self._done.done():
            self._done.set_result(None)


class _Thread:
    """Does jobs until it is told to end. A daemon: a function that never returns does not keep the process."""

    def __init__(self, name: str) -> None:
        self.jobs: SimpleQueue[_Job | None] = SimpleQueue()
        Thread(target=_work, args=(self.jobs,), name=name, daemon=True).start()


def _work(jobs: "SimpleQueue[_Job | None]") -> None:
    while (job := jobs.get()) is not None:
        try:
            job.value = job.context.run(job.function, *job.arguments)
        except BaseException as error:  # handed to the caller, whatever it is
            job.error = error
        try:
            job.loop.call_soon_threadsafe(job.finish)
        except RuntimeError:  # the loop is closed: nobody waits any more
            return
        del job


class Workers:
    """The threads of one agent: as many as calls are active, and a few that are idle between calls."""

    def __init__(self, name: str, idle: int = 8) -> None:
        self._name = name
        self._most_idle = idle
        self._idle: list[_Thread] = []

    def worker(self) -> "Worker":
        return Worker(self)

    def take(self) -> _Thread:
        return self._idle.pop() if self._idle else _Thread(self._name)

    def give_back(self, thread: _Thread) -> None:
        if len(self._idle) < self._most_idle:
            self._idle.append(thread)
        else:
            thread.jobs.put(None)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().jobs.put(None)

    def __del__(self) -> None:
        self.close()


class Worker:
    """Of one call. It has a thread from its first job on."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._context = copy_context()
        self._thread: _Thread | None = None
        self._job: _Job | None = None

    @property
    def has_started(self) -> bool:
        return self._thread is not None

    @property
    def is_busy(self) -> bool:
        """With a job that nobody waits for any more, because the gateway stops."""
        return self._job is not None and not self._job.over

    async def do(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Call it in the thread. A thread cannot be stopped: if the caller is cancelled, this returns only when the
        function has ended, and then raises the cancellation. Raises what the function does."""
        if self._thread is None:
            self._thread = self._workers.take()
        self._job = job = _Job(self._context, function, arguments)
        self._thread.jobs.put(job)
        await job.wait()
        if job.error is not None:
            raise job.error
        return job.value

    def stop(self) -> None:
        """No more jobs."""
        if self._thread is None:
            return
        if self.is_busy:
            self._thread.jobs.put(None)
        else:
            self._workers.give_back(self._thread)
        self._thread = None

    def __del__(self) -> None:
        self.stop()
