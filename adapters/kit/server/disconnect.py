"""Disconnected clients: what happens to a run whose only reader closes the connection."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from babelgate.canonical import FaultError, Hub, Principal, Receipt

log = logging.getLogger("babelgate.left")

T = TypeVar("T")
R = TypeVar("R", bound="Receipt | None")

_detached: Final[set["asyncio.Future[Any]"]] = set()
"""Background cancels. The event loop itself holds only weak references to them."""


class DisconnectNotifier:
    """Frames, or pieces of a body. If they are closed before their end, because the reader disconnected,
    `on_disconnect` is called."""

    def __init__(self, pieces: AsyncGenerator[bytes], on_disconnect: Callable[[], None]) -> None:
        self._pieces = pieces
        self._on_disconnect = on_disconnect
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
        is_early, self._over = not self._over, True
        try:
            await self._pieces.aclose()
        finally:
            if is_early:
                self._on_disconnect()


def canceller(hub: Hub, principal: Principal, run_id: str, cancels: bool) -> Callable[[], None]:
    """Return the callback for a disconnected reader of a run (`on_disconnect`, `cancel_on_disconnect`). If `cancels`,
    it cancels the run in the background, so that the end of the request cannot interrupt the cancel."""

    def cancel_run() -> None:
        if cancels:
            _detach(_cancel(hub, principal, run_id))

    return cancel_run


async def _cancel(hub: Hub, principal: Principal, run_id: str) -> None:
    if hub.is_stopping:  # the gateway closed the connection, not the caller
        return
    try:
        await hub.cancel_run(principal, run_id)
    except FaultError as error:  # mostly because the run has ended: the reader disconnected after the last frame
        log.debug("run %s was not cancelled: %s", run_id, error)


def task_canceller(hub: Hub, principal: Principal, task_id: str) -> Callable[[], None]:
    """Return the callback for a disconnected caller that waits for the end of a task. It cancels the task, even if the
    task has stopped for a question."""

    def cancel_task() -> None:
        _detach(_cancel_task(hub, principal, task_id))

    return cancel_task


async def _cancel_task(hub: Hub, principal: Principal, task_id: str) -> None:
    if hub.is_stopping:
        return
    try:
        await hub.cancel(principal, task_id)
    except FaultError as error:
        log.debug("task %s was not cancelled: %s", task_id, error)


async def accept(hub: Hub, principal: Principal, work: Coroutine[Any, Any, R]) -> R:
    """Await `work`, which submits or answers, and return its receipt. If the caller disconnects meanwhile, the work is
    still completed, and its task is then cancelled."""

    async def cancel(receipt: R) -> None:
        if receipt is not None:
            await _cancel_task(hub, principal, receipt.task.task_id)

    return await finish(work, cancel)


async def finish(work: Coroutine[Any, Any, T], on_disconnect: Callable[[T], Coroutine[Any, Any, None]]) -> T:
    """Await `work` and return its result. If the caller disconnects meanwhile, the work is still completed, and
    `on_disconnect` is then called with the result."""
    working = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        _detach(_complete(working, on_disconnect))
        raise


async def _complete(working: "asyncio.Future[T]", on_disconnect: Callable[[T], Coroutine[Any, Any, None]]) -> None:
    """Await `working`, and then call `on_disconnect` with its result, unless it fails."""
    try:
        result = await working
    except FaultError as error:
        log.debug("request of a disconnected caller rejected: nothing to cancel error=%s", error)
        return
    await on_disconnect(result)


def _detach(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in the background."""
    task = asyncio.ensure_future(work)
    _detached.add(task)
    task.add_done_callback(_detached.discard)


async def end_or_leave(
    work: Coroutine[Any, Any, T], receive: Callable[[], Awaitable[Any]], on_disconnect: Callable[[], None]
) -> T:
    """Await `work` and return its result. If the caller disconnects before, `on_disconnect` is called, and the work
    continues to its end."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            on_disconnect()
        return await working
    finally:
        leaving.cancel()
        working.cancel()


async def _wait_for_disconnect(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
