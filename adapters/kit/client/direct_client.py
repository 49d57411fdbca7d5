"""HTTP client for the requests of runs: it passes them straight to its transport.

httpx itself runs a request through an authentication flow and a loop for redirects, and searches each response for
cookies. The clients of agents use none of these, and they took as much CPU time as sending the request.
"""

from collections.abc import Mapping
from typing import Any

import httpx


class DirectClient(httpx.AsyncClient):
    """HTTP client that sends some requests without the steps of httpx: those whose response is streamed, and whose
    caller follows redirects itself. All other requests are sent as httpx sends them."""

    def __init__(
        self,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        mounts: Mapping[str, httpx.AsyncBaseTransport | None] | None = None,
        **options: Any,
    ) -> None:
        """Create the client. The arguments are those of `httpx.AsyncClient`. The keys of `mounts` are schemes, such as
        `grpc://`."""
        super().__init__(transport=transport, mounts=mounts, **options)
        self._direct: dict[str, httpx.AsyncBaseTransport | None] = {"http": transport, "https": transport}
        self._direct |= {scheme.removesuffix("://"): mounted for scheme, mounted in (mounts or {}).items()}

    async def send(
        self,
        request: httpx.Request,
        *,
        stream: bool = False,
        follow_redirects: Any = httpx.USE_CLIENT_DEFAULT,
        **options: Any,
    ) -> httpx.Response:
        """Send a request. Raises the exceptions of httpx."""
        transport = self._direct.get(request.url.scheme)
        is_plain = stream and follow_redirects is False and self.auth is None and not options
        # httpx sends the user name and password of a URL as a header.
        if transport is None or not is_plain or request.url.userinfo or self.is_closed:
            return await super().send(request, stream=stream, follow_redirects=follow_redirects, **options)
        for hook in self.event_hooks["request"]:
            await hook(request)
        response = await transport.handle_async_request(request)
        response.request = request
        try:
            for hook in self.event_hooks["response"]:
                await hook(response)
        except BaseException:
            await response.aclose()
            raise
        return response
