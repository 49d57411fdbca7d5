"""Wall clock for points in time, and monotonic clock for waiting.

People and NTP set the system's clock forward and back. So a timer within one process never uses it: delayed starts,
times to live, expiring questions, retries, grace periods. Times that an earlier process stored can only be compared
with the wall clock. This happens once, when the gateway loads them. If the clock was set back meanwhile, the elapsed
time counts as zero.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _now() -> int:
    return time.time_ns() // 1000


def _steady() -> int:
    return time.monotonic_ns() // 1000


@dataclass(frozen=True, slots=True)
class Clock:
    now: Callable[[], int] = _now
    """Function that returns the wall clock in microseconds since 1970, UTC: for times that are stored and shown."""
    steady: Callable[[], int] = _steady
    """Function that returns a monotonic clock in microseconds since an arbitrary moment: for waiting. It does not jump
    when the system's time is set, and the event loop's timers use the same clock."""


def format_time(at: int | None) -> str | None:
    """Return a time in RFC 3339, in UTC, with microseconds, or None for None. `at` is in microseconds since 1970."""
    return (
        None
        if at is None
        else (_EPOCH + timedelta(microseconds=at)).isoformat(timespec="microseconds").replace("+00:00", "Z")
    )
