"""End of streams whose caller's credential expires or is revoked: an API key, or a token."""

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

from babelgate.canonical.principal import Principal

_LONGEST: Final = 86_400.0
"""Maximum seconds of one timer. The wall clock can be set, and some event loops limit their timers."""


class CredentialTimer:
    """Timer that ends a stream when the credential of its caller expires."""

    __slots__ = ("_clock", "_end", "_expires_at", "_timer")

    def __init__(self, expires_at: float, end: Callable[[], None], clock: Callable[[], float] = time.time) -> None:
        """Start the timer. `expires_at` and `clock` are in seconds since 1970; `end` ends the stream."""
        self._expires_at = expires_at
        self._end = end
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._look()

    def stop(self) -> None:
        """Stop the timer, because the stream has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        remaining = max(self._expires_at - self._clock(), 0.0)
        then = self._end if remaining <= _LONGEST else self._look
        self._timer = asyncio.get_running_loop().call_later(min(remaining, _LONGEST), then)


class CallerStream(Protocol):
    """Open stream of a caller."""

    principal: Principal | None

    def change_expiry(self, expires_at: float | None) -> None:
        """Set the time at which the credential expires, in seconds since 1970, UTC; None if it does not."""
        ...

    def revoke(self) -> None:
        """End the stream, because the credential of its caller is no longer accepted."""
        ...


class OpenStreams(set[CallerStream]):
    """Open streams of a gateway."""

    def check(self, find: Callable[[Principal], Principal | None]) -> None:
        """End the streams whose credential is no longer accepted. `find` returns the principal that a caller has now,
        or None."""
        for stream in [*self]:
            before = stream.principal
            after = None if before is None else find(before)
            if after is None:
                stream.revoke()
            elif before is not None and after.expires_at != before.expires_at:
                stream.principal = after
                stream.change_expiry(after.expires_at)
