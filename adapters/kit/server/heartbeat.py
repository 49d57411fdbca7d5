"""Keep-alive of streams: heartbeats for silent streams, and disconnection of readers that receive nothing. One timer
serves all streams of an event loop, because separate tasks and timers would be most of the cost of an idle stream."""

import asyncio
import math
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

SEND_TIMEOUT: Final = 60.0
"""Seconds for which a reader may fail to accept one chunk before it is disconnected. Chosen."""
_PERIOD: Final = 1.0
"""Maximum time between two checks of a stream, in seconds. Chosen."""
_SLICE: Final = 32
"""Number of streams that are checked at once. The others follow within the period. Chosen: with 5,000 streams, about
330 heartbeats are due per second, and each is a task and a write."""


class Monitor:
    """Monitor of one open stream. The stream calls `begin_send` and `end_send` around every send."""

    __slots__ = ("_beat", "_beaten_at", "_cut", "_sending_since", "_timer", "interval")

    def __init__(self, interval: float | None, beat: Callable[[], None], cut: Callable[[], None]) -> None:
        """Create the monitor. `interval` is the number of seconds of silence between heartbeats; None = no heartbeats.
        `beat` sends a heartbeat, and `cut` ends the stream; both return at once."""
        self.interval = interval
        self._beat = beat
        self._cut = cut
        self._beaten_at = 0.0
        self._sending_since: float | None = None
        self._timer = _timer()

    def open(self) -> None:
        """Start watching the stream."""
        self._beaten_at = self._timer.now
        self._timer.add(self)

    def close(self) -> None:
        """Stop watching the stream, and drop the references to it."""
        self._timer.remove(self)
        self._beat = self._cut = _do_nothing

    def begin_send(self) -> None:
        """Record that the stream has begun to send a chunk."""
        self._sending_since = self._timer.now

    def end_send(self) -> None:
        """Record that the reader has accepted the chunk."""
        self._sending_since, self._beaten_at = None, self._timer.now

    def check(self, now: float) -> None:
        """End the stream if a send takes longer than `SEND_TIMEOUT`, or send a heartbeat if one is due. `now` is the
        time of the event loop, in seconds."""
        if self._sending_since is not None:
            if now - self._sending_since >= SEND_TIMEOUT:
                self._cut()
        elif self.interval is not None and now - self._beaten_at >= self.interval:
            self._beaten_at = now
            self._beat()


def _do_nothing() -> None:
    pass


class _Timer:
    """Timer that checks all streams of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._monitors: dict[Monitor, None] = {}
        self._rest: list[Monitor] = []
        """Monitors that are still to be checked in the current period."""
        self._handle: asyncio.TimerHandle | None = None
        self._period = _PERIOD
        self._pause = _PERIOD
        """Seconds between two slices of the streams."""

    @property
    def now(self) -> float:
        return self._loop.time()

    def add(self, monitor: Monitor) -> None:
        self._monitors[monitor] = None
        period = min(_PERIOD, monitor.interval or _PERIOD)
        if self._handle is None or period < self._period:
            self._set(period)

    def remove(self, monitor: Monitor) -> None:
        self._monitors.pop(monitor, None)
        if not self._monitors and self._handle is not None:
            self._handle.cancel()
            self._handle = None
            self._rest = []

    def _set(self, period: float) -> None:
        """Begin a period, in which each stream is checked once."""
        if self._handle is not None:
            self._handle.cancel()
        self._period = period
        self._rest = list(self._monitors)
        self._pause = period / math.ceil(len(self._rest) / _SLICE)
        self._handle = self._loop.call_later(self._pause, self._look)

    def _look(self) -> None:
        self._handle = None
        now = self.now
        checked = self._rest[-_SLICE:]
        del self._rest[-_SLICE:]
        for monitor in checked:
            if monitor in self._monitors:
                monitor.check(now)
        if not self._monitors:
            self._rest = []
        elif self._rest:
            self._handle = self._loop.call_later(self._pause, self._look)
        else:
            self._set(min(_PERIOD, *(monitor.interval or _PERIOD for monitor in self._monitors)))


_timers: "WeakKeyDictionary[asyncio.AbstractEventLoop, _Timer]" = WeakKeyDictionary()


def _timer() -> _Timer:
    loop = asyncio.get_running_loop()
    timer = _timers.get(loop)
    if timer is None:
        timer = _timers[loop] = _Timer(loop)
    return timer
