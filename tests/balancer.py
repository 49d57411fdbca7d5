"""A load balancer for tests: callers use several gateways like one.

Requests go to one after the other, without those that do not answer.
"""

import httpx

from tests.transport import Transport


class RoundRobin(httpx.AsyncBaseTransport):
    def __init__(self) -> None:
        self._ways: dict[str, Transport] = {}
        """Transports of the gateways, by host and port."""
        self._turn = 0

    def add(self, url: httpx.URL) -> None:
        self._ways.setdefault(url.netloc.decode(), Transport())

    async def leave_out(self, url: httpx.URL) -> None:
        """Remove a gateway, and cut off the requests that wait for it."""
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
