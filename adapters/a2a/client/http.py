"""HTTP client of an A2A server. Each call has a whole URL, because a card may have several."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

import httpx

from babelgate.adapters.a2a.errors import decode_error
from babelgate.adapters.kit.client.calls import Calls
from babelgate.adapters.kit.tracing import TracedOperation
from babelgate.canonical import Fault
from babelgate.canonical.value import Json


class HttpClient(Calls):
    def open_response(
        self,
        method: str,
        url: str,
        *,
        accept: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        operation: TracedOperation | None = None,
    ) -> AbstractAsyncContextManager[httpx.Response]:
        return self.request(method, url, {**(headers or {}), "Accept": accept}, body=body, operation=operation)

    def decode_error_body(self, status: int, answer: Json) -> Fault:
        return decode_error(answer, status).fault
