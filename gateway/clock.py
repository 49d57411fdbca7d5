"""Wall clock and monotonic clock: one tells the time, the other how long something has been waited for.

The system's time is set, by people and by NTP, back and forth. So nothing that waits within one life of the gateway
looks at it: delayed starts, times to live, questions that expire, retries, grace. What was stored by an earlier life
can be compared with nothing else; it is looked at once, as it is taken up, and a clock that was set back meanwhile
counts as no time at all.
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
    """Microseconds since 1970, UTC: for what is stored and shown."""
    steady: Callable[[], int] = _steady
    """Microseconds since some moment, never set, and the same that the event loop's timers go by: for what waits."""
