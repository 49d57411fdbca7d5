"""REST binding of A2A 0.3. Its paths are below `/v1` of the interface's URL."""

from collections.abc import Mapping
from typing import Any, Final

from babelgate.conformance.protocols.a2a import rest
from babelgate.conformance.protocols.a2a.binding import CODES, A2aReply, reason_of
from babelgate.conformance.protocols.a2a.v0 import proto
from babelgate.conformance.wire.exchange import Exchange, as_object, dig

_RESULTS: Final[Mapping[str, str]] = {
    "SendMessage": "rest.sent",
    "GetTask": "rest.task",
    "CancelTask": "rest.task",
    "CreateTaskPushNotificationConfig": "rest.config",
    "GetTaskPushNotificationConfig": "rest.config",
    "ListTaskPushNotificationConfigs": "rest.configs",
    "GetExtendedAgentCard": "rest.card",
}
_MEANINGS: Final[Mapping[int, frozenset[str]]] = {
    404: frozenset({"TASK_NOT_FOUND", "METHOD_NOT_FOUND", "EXTENDED_AGENT_CARD_NOT_CONFIGURED"}),
    405: frozenset({"UNSUPPORTED_OPERATION", "METHOD_NOT_FOUND"}),
    409: frozenset({"TASK_NOT_CANCELABLE", "UNSUPPORTED_OPERATION"}),
    415: frozenset({"CONTENT_TYPE_NOT_SUPPORTED"}),
    501: frozenset({"UNSUPPORTED_OPERATION", "PUSH_NOTIFICATION_NOT_SUPPORTED", "EXTENDED_AGENT_CARD_NOT_CONFIGURED"}),
    **dict.fromkeys((400, 422), frozenset(CODES.values()) - {"TASK_NOT_FOUND", "INTERNAL"}),
}
"""Reasons that an error may have, by its HTTP status, because 0.3 does not define how REST reports the reason."""


class RestBinding(rest.RestBinding):
    is_first_generation = True
    paths = {**rest.PATHS, "GetExtendedAgentCard": ("GET", "/card")}
    errors = {}
    event = "rest.event"

    @property
    def root(self) -> str:
        return self.url if self.url.endswith("/v1") else f"{self.url}/v1"

    def body(self, operation: str, params: Mapping[str, Any], rest: dict[str, Any]) -> dict[str, Any]:
        match operation:
            case "SendMessage" | "SendStreamingMessage":
                return proto.send_params(params)
            case "CreateTaskPushNotificationConfig":
                return proto.config_params(params)
            case _:
                return {}

    def result(self, operation: str) -> str | None:
        return _RESULTS.get(operation)

    def hold(self, exchange: Exchange, operation: str, params: Mapping[str, Any], body: Any) -> None:
        if operation.startswith("Send"):
            self.wire.hold(exchange, "rest.send.params", body, is_from_check=True)

    def reply(self, operation: str, exchange: Exchange) -> A2aReply:
        status = exchange.status or 0
        if status >= 400:
            reason = _reason(exchange.json) or f"HTTP {status}"
            return A2aReply(exchange, None, reason, may_mean=_MEANINGS.get(status, frozenset()))
        if operation == "DeleteTaskPushNotificationConfig":
            return A2aReply(exchange, None, "")
        return A2aReply(
            exchange,
            proto.result_of(operation, exchange.json),
            "" if exchange.is_json else f"HTTP {status} without JSON",
        )

    def event_of(self, event: Any) -> Any:
        return proto.event_of(event)


def _reason(body: Any) -> str:
    """Return the reason of an error body: that of an ErrorInfo, or the name of its JSON-RPC code. Return an empty
    string if it has neither."""
    error = as_object(dig(body, "error")) or body
    code = dig(error, "code")
    return reason_of(error) or (CODES.get(code, "") if isinstance(code, int) else "")
