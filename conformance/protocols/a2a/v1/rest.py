"""REST binding of 1.0."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote, urlencode
from uuid import uuid4

from babelgate.conformance.protocols.a2a.binding import EventStream, Reply, find_subscription_method, reason_of
from babelgate.conformance.wire.exchange import Exchange, dig
from babelgate.conformance.wire.http import Wire

PATHS: Final[Mapping[str, tuple[str, str]]] = {
    "SendMessage": ("POST", "/message:send"),
    "SendStreamingMessage": ("POST", "/message:stream"),
    "GetTask": ("GET", "/tasks/{id}"),
    "ListTasks": ("GET", "/tasks"),
    "CancelTask": ("POST", "/tasks/{id}:cancel"),
    # POST is possible too: see `find_subscription_method`.
    "SubscribeToTask": ("GET", "/tasks/{id}:subscribe"),
    "CreateTaskPushNotificationConfig": ("POST", "/tasks/{taskId}/pushNotificationConfigs"),
    "GetTaskPushNotificationConfig": ("GET", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "ListTaskPushNotificationConfigs": ("GET", "/tasks/{taskId}/pushNotificationConfigs"),
    "DeleteTaskPushNotificationConfig": ("DELETE", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "GetExtendedAgentCard": ("GET", "/extendedAgentCard"),
}


class RestBinding:
    name = "HTTP+JSON"
    is_first_generation = False

    def __init__(self, wire: Wire, url: str, headers: Mapping[str, str]) -> None:
        self.wire = wire
        self.url = url.rstrip("/")
        self._subscribes_by: str | None = None
        """HTTP method of subscriptions; None until the first one."""
        self.headers = headers

    def place(self, operation: str, params: Mapping[str, Any]) -> tuple[str, str, dict[str, Any] | None]:
        """Return the method, URL and body of an operation."""
        method, path = PATHS[operation]
        rest = dict(params)
        for name in ("taskId", "id"):
            if f"{{{name}}}" in path:
                path = path.replace(f"{{{name}}}", quote(str(rest.pop(name, "")), safe=""))
        if method == "POST":
            return method, self.url + path, rest
        query = urlencode({name: _query_text(value) for name, value in rest.items()})
        return method, self.url + path + (f"?{query}" if query else ""), None

    async def call(
        self,
        operation: str,
        params: Mapping[str, Any],
        *,
        is_valid: bool = True,
        headers: Mapping[str, str] | None = None,
        is_anonymous: bool = False,
        bound: float | None = None,
    ) -> Reply:
        method, url, body = self.place(operation, params)
        exchange = await self.wire.request(
            method,
            url,
            sends=None,
            receives={2: f"{operation}.result", 4: "RestError", 5: "RestError"},
            body=body,
            headers={**self.headers, **(headers or {})},
            is_anonymous=is_anonymous,
            bound=bound,
        )
        if is_valid:
            self.wire.hold(exchange, f"{operation}.params", dict(params), is_ours=True)
        return self.reply(exchange)

    @asynccontextmanager
    async def stream(
        self,
        operation: str,
        params: Mapping[str, Any],
        *,
        is_valid: bool = True,
        headers: Mapping[str, str] | None = None,
        is_anonymous: bool = False,
    ) -> AsyncGenerator[EventStream]:
        method, url, body = self.place(operation, params)
        if operation == "SubscribeToTask":
            method = await self._subscription_method({**self.headers, **(headers or {})})
            body = dict[str, Any]() if method == "POST" else None
        async with self.wire.stream(
            method,
            url,
            sends=None,
            receives={4: "RestError", 5: "RestError"},
            events="StreamResponse",
            body=body,
            headers={"Accept": "text/event-stream", **self.headers, **(headers or {})},
            is_anonymous=is_anonymous,
        ) as stream:
            if is_valid:
                self.wire.hold(stream.exchange, f"{operation}.params", dict(params), is_ours=True)
            yield EventStream(stream, lambda frame: frame.json_or_none, self.reply)

    async def _subscription_method(self, headers: Mapping[str, str]) -> str:
        if self._subscribes_by is None:
            _, url, _ = self.place("SubscribeToTask", {"id": str(uuid4())})
            self._subscribes_by = await find_subscription_method(self.wire, url, headers)
        return self._subscribes_by

    def reply(self, exchange: Exchange) -> Reply:
        status = exchange.status or 0
        if status >= 400:
            return Reply(exchange, None, reason_of(dig(exchange.json, "error")) or f"HTTP {status}")
        return Reply(exchange, exchange.json, "" if exchange.is_json else f"HTTP {status} without JSON")


def _query_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
