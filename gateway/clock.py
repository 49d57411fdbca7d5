"""Wall clock and monotonic clock: one for points in time, and one for waiting.

People and NTP set the system's clock forward and back. So nothing that waits within one life of the gateway uses it:
delayed starts, times to live, questions that expire, retries, grace. Times that an earlier process stored can be
compared with nothing else. They are compared with the wall clock once, when the gateway loads them. If the clock was
set back meanwhile, the elapsed time counts as zero.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass


def _now() -> int:
    return time.time_ns() // 1000


def _steady() -> int:
    return time.monotonic_ns() // 1000


@dataclass(frozen=True, slots=True)
class Clock:
    now: Callable[[], int] = _now
    """Microseconds since 1970, UTC: for times that are stored and shown."""
    steady: Callable[[], int] = _steady
    """Microseconds since an arbitrary moment: for waiting. The clock is never set, and the event loop's timers use the
    same one."""
