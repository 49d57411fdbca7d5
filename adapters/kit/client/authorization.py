"""Tokens of requests to an agent's server: an HTTP client that adds them in every protocol."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

import httpx

_REFUSED: Final = (401, 403)


class AuthorizationNeeded(Exception):
    """The call needs an authorization by the user. The gateway then asks for it, and calls the agent again."""

    def __init__(self, scopes: Sequence[str] = ()) -> None:
        """Create the exception. `scopes` are those that the agent's server requires, if it has named any."""
        super().__init__("the call needs an authorization by the user")
        self.scopes = tuple(scopes)


class TokenSource(Protocol):
    """Source of the tokens for the server of one agent. It knows from the context on whose behalf a request is made."""

    async def get(self) -> str | None:
        """Return the token for the next request, or None if it needs none. Raises the reason why there is no token."""
        ...

    async def replace(self, refused: str) -> str | None:
        """Return another token than one that the server has refused. Raises the reason why there is none."""
        ...

    def handle_refusal(self, response: httpx.Response) -> None:
        """Handle a response that refuses a fresh token. May raise what keeps the call from failing with it."""
        ...


class AuthorizedClient(httpx.AsyncClient):
    """HTTP client that sends a bearer token to the origins of an agent's servers, and to no other.

    If a server answers 401, the client repeats the request one time with another token. Nothing has begun by then: the
    head of the response is the first that the caller sees.
    """

    def __init__(self, tokens: TokenSource, urls: Iterable[str], **options: Any) -> None:
        """Create the client. `urls` are those of the agent's servers, and `options` those of HTTPX."""
        super().__init__(**options)
        self._tokens = tokens
        self._origins = frozenset(_origin(httpx.URL(url)) for url in urls)

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """Send a request with a token. Raises the exceptions of the source and of HTTPX."""
        token = await self._tokens.get() if _origin(request.url) in self._origins else None
        if token is None:
            return await super().send(request, **options)
        response = await self._send_with(token, request, options)
        if response.status_code == 401:
            other = await self._replace(token, request, response)
            if other is not None:
                response = await self._send_with(other, request, options)
        if response.status_code in _REFUSED:
            try:
                self._tokens.handle_refusal(response)
            except BaseException:
                await response.aclose()
                raise
        return response

    async def _send_with(self, token: str, request: httpx.Request, options: Any) -> httpx.Response:
        request.headers["Authorization"] = f"Bearer {token}"
        return await super().send(request, **options)

    async def _replace(self, token: str, request: httpx.Request, response: httpx.Response) -> str | None:
        """Return another token, or None if the request cannot be repeated or there is no other one."""
        try:
            other = await self._tokens.replace(token)
        except BaseException:
            await response.aclose()
            raise
        # The body of other streams was read when it was sent.
        if other is None or other == token or not isinstance(request.stream, httpx.ByteStream):
            return None
        await response.aclose()
        return other


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port
