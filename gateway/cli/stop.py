"""Shutdown by signals: its deadline, and the effect of a second signal."""

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, Final

log = logging.getLogger("babelgate")

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_HANG_UP: Final = getattr(signal, "SIGHUP", None)  # not on Windows
_STOP_RESERVE: Final = 10.0
"""Maximum part of `shutdown.grace` that is reserved for stopping runs that did not end, in seconds. Chosen, not
measured."""
_HURRIED_GRACE: Final = 1.0
"""Seconds from the second signal to the end of the process. Chosen: a commit in progress is stored in that time."""
_MIN_TIMEOUT: Final = 0.001
"""Shortest timeout of a wait for signals, in seconds: a timeout of zero would not wait at all."""
_LOGGING: Final = 0.5
"""Maximum seconds to wait until the last log line is written, because another thread may hold the log's lock.
Chosen."""


class ShutdownController:
    """Controller of a gateway's shutdown: a first signal requests it, and a second one shortens it to a second.

    A separate thread handles signals and the deadline. So an agent that blocks the event loop cannot keep the process
    alive.
    """

    def __init__(self, grace: float, *, expire: Callable[[], Any] | None = None) -> None:
        """Create the controller of a shutdown that has not begun. `grace` is the time from the first signal to the
        deadline, in seconds.

        The controller's separate thread calls `expire` at the deadline, to end the process even if the event loop
        hangs. If `expire` is None, nothing happens at the deadline.
        """
        self._grace = grace
        self._expire = expire
        self._deadline: float | None = None
        """Deadline in seconds of the monotonic clock; None before the first signal."""
        self._is_hurried = False
        self._changed = asyncio.Event()
        self._hang_up: Callable[[], object] | None = None
        self._is_hung_up = False
        """True if SIGHUP has arrived, so that a listener that is set later is called at once."""

    def on_hang_up(self, listener: Callable[[], object]) -> None:
        """Call a function on the event loop after each SIGHUP, and now if one has arrived before. Without a function,
        SIGHUP has no effect."""
        self._hang_up = listener
        if self._is_hung_up:
            listener()

    def _handle_hang_up(self) -> None:
        self._is_hung_up = True
        if self._hang_up is not None:
            self._hang_up()

    @property
    def is_requested(self) -> bool:
        return self._deadline is not None

    def remaining(self) -> float:
        """Return the seconds until the deadline of the shutdown. Before the first signal, this is the whole `grace`."""
        return self._grace if self._deadline is None else max(0.0, self._deadline - monotonic())

    def until_runs_stop(self) -> float:
        """Return the seconds for which active runs may continue before they are stopped."""
        return max(0.0, self.remaining() - min(_STOP_RESERVE, self._grace / 2))

    def request(self) -> None:
        """Handle a stop signal: the first call requests the shutdown, and another call sets its deadline to one second
        from now.

        Callers on the event loop must call `notify`, too.
        """
        self._is_hurried = self._deadline is not None
        self._deadline = monotonic() + (min(_HURRIED_GRACE, self._grace) if self._is_hurried else self._grace)

    def notify(self) -> None:
        """Wake the coroutines that wait for a signal, after `request`."""
        self._changed.set()

    async def wait(self, seconds: float) -> None:
        """Wait for the first signal, at most for `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def complete(self, work: Awaitable[Any], seconds: float) -> bool:
        """Wait for `work` for at most `seconds`, or until the second signal, and then cancel it.

        Return True if it ended before that.
        """
        working = asyncio.ensure_future(work)
        until = monotonic() + seconds
        while not (working.done() or self._is_hurried) and (left := until - monotonic()) > 0:
            self._changed.clear()
            hurried = asyncio.ensure_future(self._changed.wait())
            await asyncio.wait((working, hurried), timeout=left, return_when=asyncio.FIRST_COMPLETED)
            hurried.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait((working,), timeout=_LOGGING)
            return False
        await working
        return True

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Handle SIGTERM, SIGINT and SIGHUP. Must run in the main thread, on the event loop.

        A thread reads the numbers of signals from a descriptor to which Python writes them at once. Python calls its
        own handlers only in the main thread, which an agent may block.
        """
        reads, wakes = socket.socketpair()
        wakes.setblocking(False)
        before = {number: signal.signal(number, _do_nothing) for number in _SIGNALS}
        if _HANG_UP is not None:
            before[_HANG_UP] = signal.signal(_HANG_UP, _do_nothing)
        descriptor = signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._watch, args=(reads, loop), name="babelgate-stop", daemon=True).start()
        release_hang_up()
        try:
            yield
        finally:
            signal.set_wakeup_fd(descriptor)
            for number, handler in before.items():
                signal.signal(number, handler)
            wakes.close()

    def _watch(self, reads: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        """Run the thread that reads signals from the socket `reads`, and that ends the process at the deadline."""
        with reads:
            while True:
                is_bound = self.is_requested and self._expire is not None
                reads.settimeout(max(_MIN_TIMEOUT, self.remaining()) if is_bound else None)
                try:
                    numbers = reads.recv(64)
                except TimeoutError:
                    if self.remaining() == 0:
                        self._end()
                    continue
                if not numbers:
                    return
                for _ in filter(_SIGNALS.__contains__, numbers):
                    self.request()
                with suppress(RuntimeError):  # the loop is closed
                    if self.is_requested:
                        loop.call_soon_threadsafe(self.notify)
                    if _HANG_UP is not None and _HANG_UP in numbers:
                        loop.call_soon_threadsafe(self._handle_hang_up)

    def _end(self) -> None:
        words = "the second signal" if self._is_hurried else f"shutdown.grace ({self._grace:g} s)"
        telling = threading.Thread(
            target=log.warning,
            args=(
                "the gateway did not stop in time after %s: the process ends now. Nothing acknowledged is lost",
                words,
            ),
            daemon=True,
        )
        telling.start()
        telling.join(_LOGGING)
        assert self._expire is not None
        self._expire()


def hold_hang_up() -> None:
    """Block SIGHUP until the gateway has a handler for it. By default the signal would end the process."""
    if _HANG_UP is not None:
        signal.pthread_sigmask(signal.SIG_BLOCK, (_HANG_UP,))


def release_hang_up() -> None:
    """Deliver SIGHUP again: one that `hold_hang_up` has blocked, and all later ones."""
    if _HANG_UP is not None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (_HANG_UP,))


def _do_nothing(number: int, frame: object) -> None:
    """Handle a signal by doing nothing: a thread reads its number."""
