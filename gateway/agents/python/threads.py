"""Thread pool for synchronous agents, which must not block the event loop.

All steps of one call run in the same thread, so that a generator can use a resource across steps, such as a database
connection. They also share the context variables. After the call, another call uses the thread.
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
    """One function call that runs in a thread."""

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
        """Wait until the function has returned. If the caller is cancelled meanwhile, CancelledError is raised after
        that.

        If the gateway stops (`DETACH`), CancelledError is raised at once.
        """
        cancelled: asyncio.CancelledError | None = None
        while not self.over:
            try:
                await self._done
            except asyncio.CancelledError as error:  # this cancelled the future, too
                if error.args == (DETACH,):
                    raise
                cancelled = error
                self._done = self.loop.create_future()
        if cancelled is not None:
            if inspect.iscoroutine(self.value):
                self.value.close()  # it will not be awaited
            raise cancelled

    def finish(self) -> None:
        self.over = True
        if not self._done.done():
            self._done.set_result(None)


class _Thread:
    """Thread that runs jobs from a queue until it reads None.

    It is a daemon, so that a function that never returns does not keep the process alive.
    """

    def __init__(self, name: str) -> None:
        self.jobs: SimpleQueue[_Job | None] = SimpleQueue()
        Thread(target=_work, args=(self.jobs,), name=name, daemon=True).start()


def _work(jobs: "SimpleQueue[_Job | None]") -> None:
    while (job := jobs.get()) is not None:
        try:
            job.value = job.context.run(job.function, *job.arguments)
        except BaseException as error:  # raised in the caller
            job.error = error
        try:
            job.loop.call_soon_threadsafe(job.finish)
        except RuntimeError:  # the loop is closed, so nothing waits for the result
            return
        del job


class Workers:
    """Threads of one agent: one for each active call, and a few idle ones."""

    def __init__(self, name: str, idle: int = 8) -> None:
        self._name = name
        self._max_idle = idle
        self._idle: list[_Thread] = []

    def worker(self) -> "Worker":
        return Worker(self)

    def take(self) -> _Thread:
        return self._idle.pop() if self._idle else _Thread(self._name)

    def give_back(self, thread: _Thread) -> None:
        if len(self._idle) < self._max_idle:
            self._idle.append(thread)
        else:
            thread.jobs.put(None)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().jobs.put(None)

    def __del__(self) -> None:
        self.close()


class Worker:
    """Worker of one call, which runs its functions in one thread. It takes a thread from the pool for the first
    function."""

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
        """True if a function is still running although its caller was detached because the gateway stops."""
        return self._job is not None and not self._job.over

    async def do(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Call a function in the worker's thread, and return its result. Raises the exceptions of the function.

        A thread cannot be stopped. If the caller is cancelled, the cancellation is raised after the function has ended.
        """
        if self._thread is None:
            self._thread = self._workers.take()
        self._job = job = _Job(self._context, function, arguments)
        self._thread.jobs.put(job)
        await job.wait()
        if job.error is not None:
            raise job.error
        return job.value

    def stop(self) -> None:
        """Return the thread to the pool. No function may be called afterwards."""
        if self._thread is None:
            return
        if self.is_busy:
            self._thread.jobs.put(None)
        else:
            self._workers.give_back(self._thread)
        self._thread = None

    def __del__(self) -> None:
        self.stop()
