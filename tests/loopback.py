"""HTTP clients for servers on loopback."""

from functools import lru_cache
from typing import Any

import httpx

from tests.transport import Transport


def client(**options: Any) -> httpx.AsyncClient:
    """One that speaks plain HTTP and goes through no proxy of the environment. `options` are httpx's own."""
    return _Client(transport=Transport(), trust_env=False, **options)


class _Cookies(httpx.Cookies):
    def extract_cookies(self, response: httpx.Response) -> None:
        """Looks for none where there are none: httpx makes messages of e-mail of each request and its answer first."""
        if "set-cookie" in response.headers:
            super().extract_cookies(response)


class _Client(httpx.AsyncClient):
    """With short cuts where httpx takes a third of the time of a small request."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._cookies = _Cookies(self._cookies)
        url = self.base_url
        self._origin = f"{url.scheme}://{url.netloc.decode()}" if url.raw_path == b"/" else ""

    def _merge_url(self, url: httpx.URL | str) -> httpx.URL:
        """A path below the base URL is read once, not three times."""
        if self._origin and isinstance(url, str) and url.startswith("/") and not url.startswith("//"):
            return _read(self._origin + url)
        return super()._merge_url(url)


@lru_cache(maxsize=1000)
def _read(url: str) -> httpx.URL:
    """Nobody can change one, and many a test asks for the same over and over."""
    return httpx.URL(url)
