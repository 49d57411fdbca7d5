"""Keep-alive of streams: one timer for all of an event loop, for heartbeats where nothing is said, and for cutting off
readers who take nothing. Tasks and timers of its own would be most of what an idle stream costs."""

import asyncio
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

SEND_TIMEOUT: Final = 60.0
"""Seconds for which a reader may refuse to take one chunk before it is cut off."""
_PERIOD: Final = 1.0
"""Seconds between two looks at all streams, at most."""


class Monitor:
    """Watches one stream while it is open. Tell it of every send."""

    __slots__ = ("_beat", "_beaten_at", "_cut", "_sending_since", "interval")

    def __init__(self, interval: float | None, beat: Callable[[], None], cut: Callable[[], None]) -> None:
        """`interval`: seconds of silence between heartbeats, None = never. `beat` sends one, `cut` ends the stream;
        both return at once."""
        self.interval = interval
        self._beat = beat
        self._cut = cut
        self._beaten_at = 0.0
        self._sending_since: float | None = None

    def open(self) -> None:
        timer = _timer()
        self._beaten_at = timer.now
        timer.add(self)

    def close(self) -> None:
        _timer().remove(self)

    def begin_send(self) -> None:
        self._sending_since = _timer().now

    def end_send(self) -> None:
        self._sending_since, self._beaten_at = None, _timer().now

    def look(self, now: float) -> None:
        if self._sending_since is not None:
            if now - self._sending_since >= SEND_TIMEOUT:
                self._cut()
        elif self.interval is not None and now - self._beaten_at >= self.interval:
            self._beaten_at = now
            self._beat()


class _Timer:
    """Of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._monitors: dict[Monitor, None] = {}
        self._handle: asyncio.TimerHandle | None = None
        self._period = _PERIOD

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

    def _set(self, period: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._period = period
        self._handle = self._loop.call_later(period, self._look)

    def _look(self) -> None:
        self._handle = None
        now = self.now
        for monitor in list(self._monitors):
            monitor.look(now)
        if self._monitors:
            self._set(min(_PERIOD, *(monitor.interval or _PERIOD for monitor in self._monitors)))


_timers: "WeakKeyDictionary[asyncio.AbstractEventLoop, _Timer]" = WeakKeyDictionary()


def _timer() -> _Timer:
    loop = asyncio.get_running_loop()
    found = _timers.get(loop)
    if found is None:
        found = _timers[loop] = _Timer(loop)
    return found
