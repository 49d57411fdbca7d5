"""HTTP client of an A2A server. Each call has a whole URL, because a card may have several."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx

from babelgate.adapters.a2a.errors import decode_error
from babelgate.adapters.kit.client.calls import Calls
from babelgate.adapters.kit.client.rpc import CODEC, RpcCodec
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
        rpc: RpcCodec | None = None,
    ) -> AbstractAsyncContextManager[httpx.Response]:
        """Send a request and yield its response. With `rpc`, the URL is that of a gRPC method."""
        more: dict[str, Any] = {} if rpc is None else {"extensions": {CODEC: rpc}}
        sent = {**(headers or {}), "Accept": accept}
        return self.request(method, url, sent, body=body, operation=operation, **more)

    def decode_error_body(self, status: int, answer: Json) -> Fault:
        return decode_error(answer, status).fault
