"""REST binding of 0.3, below `/v1` of an interface's URL."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote, urlencode
from uuid import uuid4

from babelgate.conformance.protocols.a2a.binding import (
    CODES,
    A2aEventStream,
    A2aReply,
    find_subscription_method,
    reason_of,
)
from babelgate.conformance.protocols.a2a.v0.proto import config_params, event_of, result_of, send_params
from babelgate.conformance.wire.exchange import Exchange, InvalidJson, SseFrame, as_object, dig
from babelgate.conformance.wire.http import Wire

PATHS: Final[Mapping[str, tuple[str, str]]] = {
    "SendMessage": ("POST", "/message:send"),
    "SendStreamingMessage": ("POST", "/message:stream"),
    "GetTask": ("GET", "/tasks/{id}"),
    "CancelTask": ("POST", "/tasks/{id}:cancel"),
    "SubscribeToTask": ("GET", "/tasks/{id}:subscribe"),
    "CreateTaskPushNotificationConfig": ("POST", "/tasks/{taskId}/pushNotificationConfigs"),
    "GetTaskPushNotificationConfig": ("GET", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "ListTaskPushNotificationConfigs": ("GET", "/tasks/{taskId}/pushNotificationConfigs"),
    "DeleteTaskPushNotificationConfig": ("DELETE", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "GetExtendedAgentCard": ("GET", "/card"),
}
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
"""Possible reasons of an error, by its status: 0.3 does not define how REST reports an error of A2A."""


class RestBinding:
    name = "HTTP+JSON"
    is_first_generation = True

    def __init__(self, wire: Wire, url: str) -> None:
        self.wire = wire
        self.url = url.rstrip("/")
        self._subscribes_by: str | None = None
        """HTTP method of subscriptions; None until the first one."""
        self.root = self.url if self.url.endswith("/v1") else f"{self.url}/v1"

    def place(self, operation: str, params: Mapping[str, Any]) -> tuple[str, str, dict[str, Any] | None]:
        """Return the method, URL and body of an operation."""
        method, path = PATHS[operation]
        rest = dict(params)
        for name in ("taskId", "id"):
            if f"{{{name}}}" in path:
                path = path.replace(f"{{{name}}}", quote(str(rest.pop(name, "")), safe=""))
        match operation:
            case "SendMessage" | "SendStreamingMessage":
                return method, self.root + path, send_params(params)
            case "CreateTaskPushNotificationConfig":
                return method, self.root + path, config_params(params)
            case _ if method == "POST":
                return method, self.root + path, {}
            case _:
                return method, f"{self.root}{path}{'?' if rest else ''}{urlencode(rest)}", None

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
        method, url, body = self.place(operation, params)
        result = _RESULTS.get(operation)
        exchange = await self.wire.request(
            method,
            url,
            sends=None,
            receives={2: result} if result else None,
            body=body,
            headers=headers,
            is_anonymous=is_anonymous,
            bound=bound,
        )
        self._hold(exchange, operation, body, is_valid=is_valid)
        return self.reply(operation, exchange)

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
        method, url, body = self.place(operation, params)
        if operation == "SubscribeToTask":
            method = await self._subscription_method(headers or {})
            body = dict[str, Any]() if method == "POST" else None
        async with self.wire.stream(
            method,
            url,
            sends=None,
            receives=None,
            events="rest.event",
            body=body,
            headers={"Accept": "text/event-stream", **(headers or {})},
            is_anonymous=is_anonymous,
        ) as stream:
            self._hold(stream.exchange, operation, body, is_valid=is_valid)
            yield A2aEventStream(stream, _payload, lambda exchange: self.reply(operation, exchange))

    async def _subscription_method(self, headers: Mapping[str, str]) -> str:
        if self._subscribes_by is None:
            _, url, _ = self.place("SubscribeToTask", {"id": str(uuid4())})
            self._subscribes_by = await find_subscription_method(self.wire, url, headers)
        return self._subscribes_by

    def _hold(self, exchange: Exchange, operation: str, body: Any, *, is_valid: bool) -> None:
        if is_valid and operation.startswith("Send"):
            self.wire.hold(exchange, "rest.send.params", body, is_ours=True)

    def reply(self, operation: str, exchange: Exchange) -> A2aReply:
        status = exchange.status or 0
        if status >= 400:
            reason = _reason(exchange.json) or f"HTTP {status}"
            return A2aReply(exchange, None, reason, may_mean=_MEANINGS.get(status, frozenset()))
        if operation == "DeleteTaskPushNotificationConfig":
            return A2aReply(exchange, None, "")
        return A2aReply(
            exchange,
            result_of(operation, exchange.json),
            "" if exchange.is_json else f"HTTP {status} without JSON",
        )


def _reason(body: Any) -> str:
    """Return the reason in an error body, by its JSON-RPC code or the ErrorInfo of 1.0, or an empty string."""
    error = as_object(dig(body, "error")) or body
    code = dig(error, "code")
    return reason_of(error) or (CODES.get(code, "") if isinstance(code, int) else "")


def _payload(frame: SseFrame) -> Any:
    try:
        return event_of(frame.json)
    except InvalidJson:
        return None
