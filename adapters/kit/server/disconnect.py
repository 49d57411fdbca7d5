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
"""Tasks that cancel runs in the background. They are held here, because the event loop has only weak references to
them."""


class DisconnectNotifier:
    """Iterator over the pieces of a response's body. It calls `on_disconnect` if it is closed before the last piece,
    because the reader has disconnected."""

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
    """Return the function to call when the reader of a run disconnects. If `cancels` is True, it cancels the run;
    otherwise it does nothing. The cancel is a background task, so that the end of the request does not interrupt it."""

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
    """Return the function to call when a caller that waits for the end of a task disconnects. It cancels the task, even
    if the task has stopped for a question."""

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
    """Await `work`, which submits an input or an answer to the hub, and return its receipt. If the caller disconnects
    meanwhile, `work` is completed nevertheless, and then the hub's task in the receipt is cancelled."""

    async def cancel(receipt: R) -> None:
        if receipt is not None:
            await _cancel_task(hub, principal, receipt.task.task_id)

    return await finish(work, cancel)


async def finish(work: Coroutine[Any, Any, T], on_disconnect: Callable[[T], Coroutine[Any, Any, None]]) -> T:
    """Await `work` and return its result. If the caller disconnects meanwhile, `work` is completed in the background,
    and `on_disconnect` is then awaited with its result."""
    working = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        _detach(_complete(working, on_disconnect))
        raise


async def _complete(working: "asyncio.Future[T]", on_disconnect: Callable[[T], Coroutine[Any, Any, None]]) -> None:
    """Await `working`, and then `on_disconnect` with its result. Do nothing more if `working` raises a fault."""
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
    """Await `work` and return its result. Call `on_disconnect` if the caller disconnects before; `work` continues to
    its end. `receive` is the ASGI function that reports the disconnect."""
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
