"""The cache of tokens: lifetimes, its limit, and one request for all who wait."""

import asyncio

import pytest

from babelgate.gateway.agents.tokens.cache import TokenCache
from babelgate.gateway.agents.tokens.endpoint import IssuedToken, TokenRefused

pytestmark = pytest.mark.asyncio


class Fetches:
    """Function that issues a new numbered token with each call. `expires_in` is the lifetime of the tokens in
    seconds."""

    def __init__(self, expires_in: float | None) -> None:
        self.count = 0
        self.expires_in = expires_in

    async def __call__(self) -> IssuedToken:
        self.count += 1
        await asyncio.sleep(0)
        return IssuedToken(f"token-{self.count}", self.expires_in)


@pytest.mark.parametrize(
    ("expires_in", "expires_at", "seconds"),
    [(600, None, 585), (600, 1100.0, 85), (60, 1500.0, 45), (None, 1200.0, 185), (None, None, 300), (10, None, 0)],
)
async def test_a_token_is_reused_until_shortly_before_its_end(
    expires_in: float | None, expires_at: float | None, seconds: float
) -> None:
    now = 50.0
    cache, fetch = TokenCache(clock=lambda: 1000.0, now=lambda: now), Fetches(expires_in)
    assert await cache.get(b"a", fetch, expires_at) == "token-1"
    now = 50 + seconds - 1
    assert await cache.get(b"a", fetch, expires_at) == ("token-1" if seconds else "token-2")
    now = 50 + seconds
    assert await cache.get(b"a", fetch, expires_at) == ("token-2" if seconds else "token-3")


async def test_concurrent_calls_share_one_request() -> None:
    cache, fetch = TokenCache(), Fetches(600)
    assert set(await asyncio.gather(*(cache.get(b"a", fetch) for _ in range(50)))) == {"token-1"}
    assert fetch.count == 1


async def test_a_cancelled_call_leaves_the_request_to_the_others() -> None:
    cache, fetch = TokenCache(), Fetches(600)
    first, second = (asyncio.ensure_future(cache.get(b"a", fetch)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == "token-1"
    assert fetch.count == 1


async def test_a_failure_is_not_cached() -> None:
    async def refuse() -> IssuedToken:
        raise TokenRefused("invalid_grant")

    cache = TokenCache()
    with pytest.raises(TokenRefused):
        await cache.get(b"a", refuse)
    assert await cache.get(b"a", Fetches(600)) == "token-1"


async def test_the_token_used_longest_ago_is_forgotten() -> None:
    cache, fetch = TokenCache(limit=2), Fetches(600)
    for key in (b"a", b"b", b"a", b"c"):
        await cache.get(key, fetch)
    assert len(cache) == 2
    assert [await cache.get(key, fetch) for key in (b"a", b"c", b"b")] == ["token-1", "token-3", "token-4"]


async def test_a_refused_token_is_forgotten_once() -> None:
    cache, fetch = TokenCache(), Fetches(600)
    await cache.get(b"a", fetch)
    cache.drop("token-1")
    assert await cache.get(b"a", fetch) == "token-2"
    cache.drop("token-1")
    assert await cache.get(b"a", fetch) == "token-2"
