"""REST binding of A2A 1.0."""

from collections.abc import Mapping
from typing import Any

from babelgate.conformance.protocols.a2a import rest
from babelgate.conformance.protocols.a2a.binding import A2aReply, reason_of
from babelgate.conformance.wire.exchange import Exchange, dig


class RestBinding(rest.RestBinding):
    is_first_generation = False
    paths = {**rest.PATHS, "ListTasks": ("GET", "/tasks"), "GetExtendedAgentCard": ("GET", "/extendedAgentCard")}
    errors = {4: "RestError", 5: "RestError"}
    event = "StreamResponse"

    def body(self, operation: str, params: Mapping[str, Any], rest: dict[str, Any]) -> dict[str, Any]:
        return rest

    def result(self, operation: str) -> str:
        return f"{operation}.result"

    def hold(self, exchange: Exchange, operation: str, params: Mapping[str, Any], body: Any) -> None:
        self.wire.hold(exchange, f"{operation}.params", dict(params), is_from_check=True)

    def reply(self, operation: str, exchange: Exchange) -> A2aReply:
        status = exchange.status or 0
        if status >= 400:
            return A2aReply(exchange, None, reason_of(dig(exchange.json, "error")) or f"HTTP {status}")
        return A2aReply(exchange, exchange.json, "" if exchange.is_json else f"HTTP {status} without JSON")

    def event_of(self, event: Any) -> Any:
        return event
