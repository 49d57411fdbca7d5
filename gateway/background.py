"""Background tasks (asyncio) that are kept alive until they end, and threads that cannot delay the end of the
process."""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, Final

log = logging.getLogger("babelgate.background")

_INTERRUPTED: Final = (0.2, 0.8)
"""Seconds that a thread has to end after its first and its second interruption. Chosen, not measured."""
STOPPING: Final = 5.0
"""Seconds that cancelled tasks have to end. Chosen, not measured."""


async def until_ended(act: Callable[[], None], give_up: Callable[[], None], seconds: float) -> bool:
    """Run `act` in a thread. If it takes longer than `seconds`, call `give_up` up to three times, which should
    interrupt it.

    Return True if the thread ended. Otherwise it is left behind, and does not keep the process alive. Raises the
    exceptions of `act`.
    """
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def run() -> None:
        error: BaseException | None = None
        try:
            act()
        except BaseException as raised:
            error = raised
        with suppress(RuntimeError):  # the loop is closed: no task waits any more
            ended.get_loop().call_soon_threadsafe(_settle, ended, error)

    # A daemon, and not one of the loop's own threads: the process does not wait for it at its end.
    threading.Thread(target=run, name="babelgate-end", daemon=True).start()
    for timeout in (seconds, *_INTERRUPTED):
        await asyncio.wait((ended,), timeout=timeout)
        if ended.done():
            await ended
            return True
        give_up()
    return False


def _settle(ended: "asyncio.Future[None]", error: BaseException | None) -> None:
    if ended.done():
        return
    if error is None:
        ended.set_result(None)
    else:
        ended.set_exception(error)


class Failures:
    """Log of unexpected exceptions of a long-running task, which continues after them. Exceptions of one type at one
    place are logged once."""

    def __init__(self, name: str) -> None:
        """Create the log. `name` is that of the task in log lines."""
        self._name = name
        self._seen: set[tuple[str, int]] = set()

    def note(self, error: Exception) -> None:
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        kind = type(error).__name__, 0 if place is None else place.tb_lineno
        if kind not in self._seen:
            self._seen.add(kind)
            log.error(
                "%s failed and continues; further failures of this kind are not logged", self._name, exc_info=error
            )


class Tasks:
    """Set of background tasks, which keeps them alive until they end and logs their failures."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._discard)
        return task

    def _discard(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("%s failed", task.get_name(), exc_info=task.exception())

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(tuple(self._tasks))

    async def drain(self, seconds: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    async def stop(self, seconds: float = STOPPING) -> None:
        """Cancel all tasks, also those that they start meanwhile. Wait for their ends for at most `seconds`."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while self._tasks and loop.time() < until:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks, timeout=max(0.0, until - loop.time()))
        for task in self._tasks:
            log.warning("%s did not end when it was cancelled", task.get_name())
