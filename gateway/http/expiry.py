"""End of open streams whose caller's credential, such as an API key or a token, expires or is revoked."""

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

from babelgate.canonical.principal import Principal

_LONGEST: Final = 86_400.0
"""Maximum seconds of one timer. Chosen: the wall clock can be set meanwhile, and some event loops limit their
timers."""


class CredentialTimer:
    """Timer that ends a stream when the credential of its caller expires."""

    __slots__ = ("_clock", "_end", "_expires_at", "_timer")

    def __init__(self, expires_at: float, end: Callable[[], None], clock: Callable[[], float] = time.time) -> None:
        """Start the timer. `expires_at` is in seconds since 1970, and `clock` returns the current time in the same
        unit. `end` is called at that time, and ends the stream."""
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
    """Open stream of a caller: a response of server-sent events, or a WebSocket."""

    principal: Principal | None

    def change_expiry(self, expires_at: float | None) -> None:
        """Set the time at which the caller's credential expires, in seconds since 1970, UTC; None if it does not."""
        ...

    def revoke(self) -> None:
        """End the stream, because the credential of its caller is no longer accepted."""
        ...


class OpenStreams(set[CallerStream]):
    """Set of all open streams of a gateway."""

    def check(self, find: Callable[[Principal], Principal | None]) -> None:
        """End the streams whose caller's credential is no longer accepted, and update the time at which the others
        expire.

        `find` returns the principal that an accepted credential has now, or None if the credential is no longer
        accepted.
        """
        for stream in [*self]:
            before = stream.principal
            after = None if before is None else find(before)
            if after is None:
                stream.revoke()
            elif before is not None and after.expires_at != before.expires_at:
                stream.principal = after
                stream.change_expiry(after.expires_at)
