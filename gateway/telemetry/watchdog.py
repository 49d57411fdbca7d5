"""Watchdog of the event loop: it logs when an agent in Python blocks all other callers, and which line of its code
does.

Its thread sleeps while no run is active. Otherwise it schedules a callback on the event loop, the heartbeat, and waits
until that was called."""

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from babelgate.gateway.observe import RUN, GatewayObserver, RunContext

log = logging.getLogger("babelgate.agent")

BLOCKED: Final = 0.5
"""Seconds without a heartbeat after which the event loop counts as blocked. Chosen."""
_PAUSE: Final = 0.1
"""Seconds between two heartbeats. Chosen: a block is found at most this much later."""
_LOG_EVERY: Final = 60.0
"""Minimum seconds between two log lines about the same line of code. Chosen."""
_FRAMES: Final = 30
"""Maximum number of stack frames in a log line, the innermost ones. Chosen."""

_RUNNERS: Final = ("asyncio/runners.py", "asyncio/base_events.py", "asyncio/events.py")
"""Endings of the paths of the asyncio files that run the event loop. Frames outside of them are not logged."""

FindRun = Callable[["asyncio.Task[Any]"], RunContext | None]
"""Function that returns the run whose agent executes in an asyncio task, or None. Called on the watchdog's thread."""


class Watchdog(GatewayObserver):
    """Watchdog of one event loop. It watches while runs are active, and otherwise sleeps."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._find_run: FindRun = lambda _: None
        self._is_busy: Callable[[], bool] = lambda: False
        self._armed = threading.Event()
        self._beaten = threading.Event()
        self._stopped = False
        self._has_runs = False
        self._logged: dict[tuple[str, str, int], float] = {}
        """Time of the last log line for each agent, file and line, in seconds of the monotonic clock."""

    def start(self, find_run: FindRun, is_busy: Callable[[], bool]) -> None:
        """Start the thread that watches the running event loop.

        `find_run` maps a task to its run. `is_busy` returns True while runs are active, and is called on the event
        loop."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._find_run, self._is_busy = find_run, is_busy
        threading.Thread(target=self._watch, name="babelgate-watchdog", daemon=True).start()

    def stop(self) -> None:
        self._stopped = True
        self._armed.set()

    def arm(self) -> None:
        """Wake the thread, because a run starts. It watches until no run is active."""
        if not self._armed.is_set():
            self._armed.set()

    def note_run_started(self, agent: str, waited: float | None) -> None:
        del agent, waited
        self.arm()

    def _watch(self) -> None:
        assert self._loop is not None
        while True:
            self._armed.wait()
            if self._stopped:
                return
            self._beaten.clear()
            try:
                self._loop.call_soon_threadsafe(self._beat)
            except RuntimeError:  # the loop is closed
                return
            if not self._beaten.wait(BLOCKED):
                self._log_block()
                self._beaten.wait()
            if self._has_runs:
                self._beaten.clear()
                self._beaten.wait(_PAUSE)

    def _beat(self) -> None:
        self._has_runs = self._is_busy()
        if not self._has_runs and not self._stopped:
            self._armed.clear()
        self._beaten.set()

    def _log_block(self) -> None:
        run, frame = self._running()
        if run is None or frame is None:
            return
        place = run.agent, frame.f_code.co_filename, frame.f_lineno
        now = time.monotonic()
        if now - self._logged.get(place, -_LOG_EVERY) < _LOG_EVERY:
            return
        self._logged[place] = now
        RUN.set(run)
        message = (
            "agent blocks the event loop, so all callers wait: use await, or a function without async "
            "agent=%s run=%s blocked_for=%.1fs"
        )
        stack = "".join(traceback.StackSummary.from_list(_frames_of_task(frame)).format())
        # With the stack of another thread, which the methods of a logger do not take.
        record = log.makeRecord(
            log.name, logging.WARNING, __file__, 0, message, (run.agent, run.run, BLOCKED), None, sinfo=stack.rstrip()
        )
        log.handle(record)

    def _running(self) -> tuple[RunContext | None, FrameType | None]:
        """Return the run whose agent occupies the event loop now, or None, and the innermost frame of the loop's
        thread."""
        task = asyncio.current_task(self._loop)
        run = None if task is None else self._find_run(task)
        return run, sys._current_frames().get(self._loop_thread)  # pyright: ignore[reportPrivateUsage]


def _frames_of_task(frame: FrameType) -> list[traceback.FrameSummary]:
    """Return up to `_FRAMES` of the innermost frames of a stack, without those of asyncio and its callers."""
    frames = traceback.extract_stack(frame)
    outer = [number for number, each in enumerate(frames) if each.filename.endswith(_RUNNERS)]
    return frames[outer[-1] + 1 if outer else 0 :][-_FRAMES:]
