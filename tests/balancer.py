"""Several gateways as one to whoever calls them: requests go to one after the other, and not to who does not answer."""

import httpx

from tests.transport import Transport


class RoundRobin(httpx.AsyncBaseTransport):
    def __init__(self) -> None:
        self._ways: dict[str, Transport] = {}
        """By host and port."""
        self._turn = 0

    def add(self, url: httpx.URL) -> None:
        self._ways.setdefault(url.netloc.decode(), Transport())

    async def leave_out(self, url: httpx.URL) -> None:
        """Whoever waits for an answer of it is cut off."""
        way = self._ways.pop(url.netloc.decode(), None)
        if way is not None:
            await way.aclose()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        for _ in range(len(self._ways) - 1):
            try:
                return await self._ask(request)
            except httpx.ConnectError:
                continue
        return await self._ask(request)

    async def _ask(self, request: httpx.Request) -> httpx.Response:
        self._turn += 1
        place = list(self._ways)[self._turn % len(self._ways)]
        host, _, port = place.rpartition(":")
        request.url = request.url.copy_with(host=host, port=int(port))
        request.headers["host"] = place
        return await self._ways[place].handle_async_request(request)
