"""Retry schedule of webhooks: the pause after each failed try, and the receiver's `Retry-After` header."""

import random
from collections.abc import Callable, Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

from babelgate.gateway.settings.model import RETRY_JITTER

LONGEST_RETRY_AFTER: Final = 86_400.0
"""Longest pause, in seconds, that a receiver can ask for. Chosen: a day."""
_REASON: Final = 200
"""Maximum length of a stored reason, in characters. Chosen: one line of a log."""


class RetrySchedule:
    """Pauses between the tries of a webhook delivery."""

    def __init__(self, pauses: Sequence[float], fraction: Callable[[], float] = random.random) -> None:
        """Create a schedule.

        `pauses` are in seconds, one for each retry. Each is lengthened by a random jitter: `fraction` returns its part
        of `RETRY_JITTER`, from 0 to 1.
        """
        self._pauses = tuple(pauses)
        self._fraction = fraction
        self.longest = max((*(pause * (1 + RETRY_JITTER) for pause in self._pauses), LONGEST_RETRY_AFTER))
        """Longest pause that `pause_after` returns, in seconds."""

    def pause_after(self, failures: int, retry_after: float | None = None) -> float | None:
        """Return the seconds until the next try, or None if the schedule is exhausted.

        `failures` is the number of failed tries of one body, and `retry_after` the pause that the receiver requested.
        The longer pause applies: a receiver can delay the next try, but not advance it.
        """
        if failures > len(self._pauses):
            return None
        pause = self._pauses[failures - 1] * (1 + RETRY_JITTER * self._fraction())
        return max(pause, min(retry_after or 0.0, LONGEST_RETRY_AFTER))


def parse_retry_after(value: str | None, now: int) -> float | None:
    """Return the seconds that the value of a `Retry-After` header asks for, or None if it is absent, invalid or in the
    past.

    `now` is the time of the response, in microseconds since 1970, UTC.
    """
    if value is None:
        return None
    # RFC 9110, 10.2.3: delay-seconds or an HTTP-date.
    if value.isascii() and value.isdigit():
        return float(value) if len(value) < 10 else LONGEST_RETRY_AFTER
    try:
        date = parsedate_to_datetime(value)
        # A date without a zone is in UTC (RFC 9110, 5.6.7).
        seconds = (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp() - now / 1e6
    except (ValueError, OverflowError):
        return None
    return seconds if seconds > 0 else None


def shorten_reason(reason: str) -> str:
    """Return the reason of a failed try on one line, cut to 200 characters (`_REASON`)."""
    line = " ".join(reason.split())
    return line if len(line) <= _REASON else f"{line[: _REASON - 1]}…"
