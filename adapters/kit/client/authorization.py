"""Bearer tokens of requests to an agent's server: an HTTP client that adds them to the requests of every protocol."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

import httpx

from babelgate.adapters.kit.client.direct_client import DirectClient

_REFUSED: Final = (401, 403)
_RPC_SCHEMES: Final = {"http": "grpc", "https": "grpcs"}
"""Scheme of the gRPC URLs of a server, by the scheme of its configured URL: gRPC has TLS if the URL has."""


class AuthorizationNeeded(Exception):
    """Raised if a call of an agent needs an authorization by the user. The gateway then asks the user for it, and calls
    the agent again."""

    def __init__(self, scopes: Sequence[str] = ()) -> None:
        """Create the exception. `scopes` are those that the agent's server requires, if it has named any."""
        super().__init__("the call needs an authorization by the user")
        self.scopes = tuple(scopes)


class TokenSource(Protocol):
    """Source of the tokens for the servers of one agent. The user on whose behalf a request is made is in a context
    variable."""

    async def get(self) -> str | None:
        """Return the token for the next request, or None if the request is sent without one. If no token can be
        obtained, raises an exception with the reason."""
        ...

    async def replace(self, refused: str) -> str | None:
        """Return a new token after the server has answered 401 to the token `refused`, or None if there is none. If no
        token can be obtained, raises an exception with the reason."""
        ...

    def handle_refusal(self, response: httpx.Response) -> None:
        """Handle a response with status 401 or 403 to a request with a token. Raises AuthorizationNeeded if the user
        can be asked for an authorization. Otherwise the caller gets the response as an error."""
        ...


class AuthorizedClient(DirectClient):
    """HTTP client that sends a bearer token to the origins of an agent's servers, and to no other.

    If a server answers 401, the client repeats the request once with another token. The repetition is safe, because the
    server has refused the first request before it began any work.
    """

    def __init__(self, tokens: TokenSource, urls: Iterable[str], **options: Any) -> None:
        """Create the client. `urls` are the URLs of the agent's servers, and `options` the arguments of
        `httpx.AsyncClient`."""
        super().__init__(**options)
        self._tokens = tokens
        self._origins = frozenset(_origin(httpx.URL(url)) for url in urls)
        self._rpc_hosts = frozenset((_RPC_SCHEMES[scheme], host) for scheme, host, _ in self._origins)

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """Send a request, with a token if it goes to one of the agent's servers. Raises the exceptions of the token
        source and of HTTPX."""
        token = await self._tokens.get() if self._is_trusted(request.url) else None
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

    def _is_trusted(self, url: httpx.URL) -> bool:
        """Return True if a URL is on one of the agent's servers. gRPC has another port of the same host."""
        return _origin(url) in self._origins or (url.scheme, url.host) in self._rpc_hosts

    async def _send_with(self, token: str, request: httpx.Request, options: Any) -> httpx.Response:
        request.headers["Authorization"] = f"Bearer {token}"
        return await super().send(request, **options)

    async def _replace(self, token: str, request: httpx.Request, response: httpx.Response) -> str | None:
        """Return another token after `response` has refused `token`, and close the response. Return None if the body of
        the request cannot be sent a second time, or if there is no other token."""
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
