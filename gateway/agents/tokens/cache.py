"""Cache of tokens. A token is fetched once for all runs that need it, and removed before it expires."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from babelgate.gateway.agents.tokens.endpoint import IssuedToken

MAX_TOKENS: Final = 8192
"""Maximum number of tokens in a cache. Chosen: some 16 MB of tokens of 2 KiB."""
MARGIN: Final = 15.0
"""Seconds before the expiry of a token from which on it is not used any more. Chosen: requests take time, and clocks
differ."""
DEFAULT_LIFETIME: Final = 300.0
"""Lifetime in the cache of a token whose provider does not state its lifetime, in seconds. Chosen."""


class TokenCache:
    """Cache of tokens, by a digest of everything on which the token depends, such as the caller and the scopes."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        now: Callable[[], float] = time.monotonic,
        limit: int = MAX_TOKENS,
    ) -> None:
        """Create the cache. `clock` returns the time in seconds since 1970, and `now` is a steady clock in seconds.
        `limit` is the maximum number of tokens."""
        self._clock = clock
        self._now = now
        self._limit = limit
        self._tokens: OrderedDict[bytes, tuple[str, float]] = OrderedDict()
        """Tokens by key, each with the time on the steady clock at which it is removed. The most recently used is the
        last."""
        self._flights: dict[bytes, asyncio.Future[str]] = {}
        """Requests for tokens that have not been answered yet, by key."""

    def __len__(self) -> int:
        return len(self._tokens)

    async def get(
        self, key: bytes, fetch: Callable[[], Awaitable[IssuedToken]], expires_at: float | None = None
    ) -> str:
        """Return the token for a key from the cache. If it is not cached, call `fetch`. Concurrent calls for one key
        share one request.

        `expires_at` is the expiry of the caller's token in seconds since 1970, after which the fetched token is not
        used. Raises the exceptions of `fetch`.
        """
        stored = self._tokens.get(key)
        if stored is not None and self._now() < stored[1]:
            self._tokens.move_to_end(key)
            return stored[0]
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = asyncio.ensure_future(self._fetch(key, fetch, expires_at))
            flight.add_done_callback(lambda done: self._land(key, done))
        # Shielded: the end of one run must not take the token from the others.
        return await asyncio.shield(flight)

    def drop(self, token: str) -> None:
        """Remove a token from the cache, because a server has refused it. This is rare, so all entries are searched for
        the token."""
        for key in [key for key, (stored, _) in self._tokens.items() if stored == token]:
            del self._tokens[key]

    async def _fetch(self, key: bytes, fetch: Callable[[], Awaitable[IssuedToken]], expires_at: float | None) -> str:
        began = self._now()
        issued = await fetch()
        lifetimes = [issued.expires_in, None if expires_at is None else expires_at - self._clock()]
        lifetime = min((each for each in lifetimes if each is not None), default=None)
        seconds = DEFAULT_LIFETIME if lifetime is None else lifetime - MARGIN
        if seconds > 0:
            self._tokens[key] = issued.access_token, began + seconds
            self._tokens.move_to_end(key)
            if len(self._tokens) > self._limit:
                self._tokens.popitem(last=False)
        return issued.access_token

    def _land(self, key: bytes, flight: "asyncio.Future[str]") -> None:
        del self._flights[key]
        if not flight.cancelled():
            flight.exception()  # otherwise asyncio warns if all callers were cancelled
