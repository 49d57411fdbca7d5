"""Callers who leave: what happens to a run whose only reader hangs up."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from babelgate.canonical import FaultError, Hub, Receipt

log = logging.getLogger("babelgate.left")

T = TypeVar("T")
R = TypeVar("R", bound="Receipt | None")

_detached: Final[set["asyncio.Future[Any]"]] = set()
"""Cancels that nobody waits for: the loop itself would forget them."""


class DisconnectNotifier:
    """Frames, or pieces of a body, whose reader may leave before their end, which is then told."""

    def __init__(self, pieces: AsyncGenerator[bytes], left: Callable[[], None]) -> None:
        self._pieces = pieces
        self._left = left
        self._over = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._pieces)
        except StopAsyncIteration:
            self._over = True
            raise

    async def aclose(self) -> None:
        left, self._over = not self._over, True
        try:
            await self._pieces.aclose()
        finally:
            if left:
                self._left()


def canceller(hub: Hub, owner: str, run_id: str, cancels: bool) -> Callable[[], None]:
    """What is done when a run's reader leaves (`on_disconnect`, `cancel_on_disconnect`). Nobody is there to wait for
    the cancel, and nothing that happens to the request any more may lose it."""

    def cancel_run() -> None:
        if cancels:
            _detach(_cancel(hub, owner, run_id))

    return cancel_run


async def _cancel(hub: Hub, owner: str, run_id: str) -> None:
    if hub.is_stopping:  # the gateway closed the connection, and not the caller
        return
    try:
        await hub.cancel_run(owner, run_id)
    except FaultError as error:  # it had ended, most often: the reader left with the last frame
        log.debug("run %s was not cancelled: %s", run_id, error)


def task_canceller(hub: Hub, owner: str, task_id: str) -> Callable[[], None]:
    """The same, for who waits for the end of a task, also where it has stopped for a question."""

    def cancel_task() -> None:
        _detach(_cancel_task(hub, owner, task_id))

    return cancel_task


async def _cancel_task(hub: Hub, owner: str, task_id: str) -> None:
    if hub.is_stopping:
        return
    try:
        await hub.cancel(owner, task_id)
    except FaultError as error:
        log.debug("task %s was not cancelled: %s", task_id, error)


async def accept(hub: Hub, owner: str, work: Coroutine[Any, Any, R]) -> R:
    """What `work` gives, which submits or answers. It is never left half done: where its caller leaves meanwhile, the
    task is cancelled as soon as it is known."""

    async def cancel(receipt: R) -> None:
        if receipt is not None:
            await _cancel_task(hub, owner, receipt.task.task_id)

    return await finish(work, cancel)


async def finish(work: Coroutine[Any, Any, T], left: Callable[[T], Coroutine[Any, Any, None]]) -> T:
    """What `work` gives. It is never left half done: where its caller leaves meanwhile, `left` is called with what it
    gives as soon as that is there."""
    working = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        _detach(_leave(working, left))
        raise


async def _leave(working: "asyncio.Future[T]", left: Callable[[T], Coroutine[Any, Any, None]]) -> None:
    try:
        given = await working
    except FaultError as error:
        log.debug("what was to be cancelled was not accepted: %s", error)
        return
    await left(given)


def _detach(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.ensure_future(work)
    _detached.add(task)
    task.add_done_callback(_detached.discard)


async def end_or_leave(
    work: Coroutine[Any, Any, T], receive: Callable[[], Awaitable[Any]], left: Callable[[], None]
) -> T:
    """What `work` gives. Where the caller leaves before, that is told, and the work goes on to its end."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            left()
        return await working
    finally:
        leaving.cancel()
        working.cancel()


async def _wait_for_disconnect(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
