"""Client for JSON-RPC 2.0 over HTTP, which validates requests, responses and events.

The schema definitions of a method have the names `<method>.request`, `<method>.response` and, for streams,
`<method>.event`. A slash in the name of the method becomes a dot.
"""

import itertools
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from babelgate.conformance.wire.exchange import Exchange, dig
from babelgate.conformance.wire.http import StreamExchange, Wire


@dataclass(frozen=True, slots=True)
class JsonRpcAnswer:
    exchange: Exchange

    @property
    def body(self) -> Any:
        return self.exchange.json

    @property
    def result(self) -> Any:
        return dig(self.body, "result")

    @property
    def error(self) -> Any:
        return dig(self.body, "error")

    @property
    def code(self) -> Any:
        return dig(self.body, "error", "code")

    @property
    def is_error(self) -> bool:
        return self.error is not None


def _schema_name(method: str) -> str:
    return method.replace("/", ".")


def _of_status(schema: str) -> Mapping[int, str]:
    """Return the schema `schema` for the statuses whose body must be JSON-RPC: 2xx, 400 and 5xx.

    Other statuses, such as 401, are sent by HTTP servers before they read the JSON-RPC request.
    """
    return dict.fromkeys((2, 400, 5), schema)


class JsonRpc:
    def __init__(self, wire: Wire, url: str, headers: Mapping[str, str] | None = None) -> None:
        self.wire = wire
        self.url = url
        self.headers = dict(headers or {})
        self._ids = itertools.count(1)

    async def call(
        self,
        method: str,
        params: Any = None,
        *,
        is_valid: bool = True,
        id: Any = None,
        headers: Mapping[str, str] | None = None,
        is_anonymous: bool = False,
        bound: float | None = None,
    ) -> JsonRpcAnswer:
        """Call a method and return its answer. With `is_valid=False`, the request is intentionally invalid or its
        method unknown, so only the envelope of the response is validated.

        `id` is the id of the request; None means a new one. The other parameters are those of `Wire.request`. Raises
        Unanswered if no complete response arrives in time.
        """
        exchange = await self.wire.request(
            "POST",
            self.url,
            sends=f"{_schema_name(method)}.request" if is_valid else None,
            receives=_of_status(f"{_schema_name(method)}.response" if is_valid else "JsonRpcResponse"),
            body=self._envelope(method, params, id),
            headers={**self.headers, **(headers or {})},
            is_anonymous=is_anonymous,
            bound=bound,
        )
        return JsonRpcAnswer(exchange)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        params: Any = None,
        *,
        is_valid: bool = True,
        id: Any = None,
        headers: Mapping[str, str] | None = None,
        is_anonymous: bool = False,
    ) -> AsyncGenerator[StreamExchange]:
        async with self.wire.stream(
            "POST",
            self.url,
            sends=f"{_schema_name(method)}.request" if is_valid else None,
            receives=_of_status("JsonRpcResponse"),
            events=f"{_schema_name(method)}.event",
            body=self._envelope(method, params, id),
            headers={"Accept": "text/event-stream", **self.headers, **(headers or {})},
            is_anonymous=is_anonymous,
        ) as stream:
            yield stream

    async def post(self, content: Any) -> JsonRpcAnswer:
        """Post content that is not a valid JSON-RPC request: bytes unchanged, anything else as JSON. Return the answer.
        Raises Unanswered if no complete response arrives in time."""
        exchange = await self.wire.request(
            "POST",
            self.url,
            sends=None,
            receives=_of_status("JsonRpcResponse"),
            body=None if isinstance(content, bytes) else content,
            content=content if isinstance(content, bytes) else None,
            headers={"Content-Type": "application/json", **self.headers},
        )
        return JsonRpcAnswer(exchange)

    def _envelope(self, method: str, params: Any, id: Any) -> dict[str, Any]:
        request: dict[str, Any] = {"jsonrpc": "2.0", "id": next(self._ids) if id is None else id, "method": method}
        return request if params is None else {**request, "params": params}
