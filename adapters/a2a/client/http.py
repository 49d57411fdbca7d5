"""HTTP client of an A2A server. Each call has a whole URL, because a card may have several."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

import httpx

from babelgate.adapters.a2a.errors import decode_error
from babelgate.adapters.kit.client.answers import ERROR_RESPONSE_LIMIT
from babelgate.adapters.kit.client.calls import Calls
from babelgate.adapters.kit.client.error_response import response_error
from babelgate.canonical import FaultError


class HttpClient(Calls):
    def open_response(
        self, method: str, url: str, *, accept: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[httpx.Response]:
        return self.request(method, url, {**(headers or {}), "Accept": accept}, body=body)

    async def read_error_response(self, response: httpx.Response) -> FaultError:
        try:
            answer = await self.json(response, ERROR_RESPONSE_LIMIT)
        except FaultError:  # for example, an HTML page of a proxy
            answer = None
        return response_error(decode_error(answer, response.status_code).fault, response)
