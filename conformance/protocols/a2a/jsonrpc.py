"""JSON-RPC binding of A2A, for both 0.3 and 1.0."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from babelgate.conformance.protocols.a2a.binding import CODES, A2aEventStream, A2aReply
from babelgate.conformance.wire.exchange import Exchange, InvalidJson, SseFrame, as_object, dig
from babelgate.conformance.wire.http import Wire
from babelgate.conformance.wire.jsonrpc import JsonRpc


@dataclass(frozen=True, slots=True)
class VersionConversion:
    """Functions that convert between the form of one protocol version on the wire and the form of A2A 1.0 that probes
    use."""

    is_first_generation: bool
    method: Callable[[str], str]
    """Function from an operation, such as `GetTask`, to the name of its JSON-RPC method."""
    params: Callable[[str, Mapping[str, Any]], dict[str, Any]]
    """Function from an operation and its parameters in the form of 1.0 to the parameters in the form of the
    protocol version."""
    result: Callable[[str, Any], Any]
    """Function from an operation and its result in the form of the protocol version to the result in the form of
    1.0."""
    event: Callable[[Any], Any]
    """Function from the result in an event of a stream to the StreamResponse of 1.0; its result is None for an invalid
    event."""


class JsonRpcBinding:
    name = "JSONRPC"

    def __init__(self, wire: Wire, url: str, dialect: VersionConversion, headers: Mapping[str, str]) -> None:
        self.wire = wire
        self.url = url
        self.dialect = dialect
        self.rpc = JsonRpc(wire, url, headers)

    @property
    def is_first_generation(self) -> bool:
        return self.dialect.is_first_generation

    async def call(
        self,
        operation: str,
        params: Mapping[str, Any],
        *,
        is_valid: bool = True,
        headers: Mapping[str, str] | None = None,
        is_anonymous: bool = False,
        bound: float | None = None,
    ) -> A2aReply:
        answer = await self.rpc.call(
            self.dialect.method(operation),
            self.dialect.params(operation, params),
            is_valid=is_valid,
            headers=headers,
            is_anonymous=is_anonymous,
            bound=bound,
        )
        return self._reply(operation, answer.exchange)

    @asynccontextmanager
    async def stream(
        self,
        operation: str,
        params: Mapping[str, Any],
        *,
        is_valid: bool = True,
        headers: Mapping[str, str] | None = None,
        is_anonymous: bool = False,
    ) -> AsyncGenerator[A2aEventStream]:
        async with self.rpc.stream(
            self.dialect.method(operation),
            self.dialect.params(operation, params),
            is_valid=is_valid,
            headers=headers,
            is_anonymous=is_anonymous,
        ) as stream:
            yield A2aEventStream(stream, self._payload, lambda exchange: self._reply(operation, exchange))

    def _payload(self, frame: SseFrame) -> Any:
        try:
            return self.dialect.event(dig(frame.json, "result"))
        except InvalidJson:
            return None

    def _reply(self, operation: str, exchange: Exchange) -> A2aReply:
        body = exchange.json
        if exchange.is_stream and exchange.frames:
            # An error of a stream may be its first event.
            body = exchange.frames[0].json_or_none
        error = dig(body, "error")
        if error is not None:
            code = dig(error, "code")
            return A2aReply(exchange, None, CODES.get(code, str(code)) if isinstance(code, int) else str(code))
        if "result" not in (as_object(body) or {}):
            return A2aReply(exchange, None, f"HTTP {exchange.status} without a result")
        return A2aReply(exchange, self.dialect.result(operation, dig(body, "result")), "")
