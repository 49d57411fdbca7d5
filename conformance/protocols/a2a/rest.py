"""REST binding of A2A: what 0.3 and 1.0 have in common."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Final
from urllib.parse import quote, urlencode
from uuid import uuid4

from babelgate.conformance.protocols.a2a.binding import A2aEventStream, A2aReply, find_subscription_method
from babelgate.conformance.wire.exchange import Exchange, InvalidJson, SseFrame
from babelgate.conformance.wire.http import Wire

PATHS: Final[Mapping[str, tuple[str, str]]] = {
    "SendMessage": ("POST", "/message:send"),
    "SendStreamingMessage": ("POST", "/message:stream"),
    "GetTask": ("GET", "/tasks/{id}"),
    "CancelTask": ("POST", "/tasks/{id}:cancel"),
    # POST is possible too: see `find_subscription_method`.
    "SubscribeToTask": ("GET", "/tasks/{id}:subscribe"),
    "CreateTaskPushNotificationConfig": ("POST", "/tasks/{taskId}/pushNotificationConfigs"),
    "GetTaskPushNotificationConfig": ("GET", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "ListTaskPushNotificationConfigs": ("GET", "/tasks/{taskId}/pushNotificationConfigs"),
    "DeleteTaskPushNotificationConfig": ("DELETE", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
}
"""HTTP method and path of the operations that are the same in 0.3 and 1.0."""


class RestBinding(ABC):
    name = "HTTP+JSON"
    is_first_generation: bool
    paths: ClassVar[Mapping[str, tuple[str, str]]]
    """HTTP method and path of each operation, by its name; paths are below `root`."""
    errors: ClassVar[Mapping[int, str]]
    """Name of the schema definition of error bodies, by the first digit of the status."""
    event: ClassVar[str]
    """Name of the schema definition of stream events."""

    def __init__(self, wire: Wire, url: str, headers: Mapping[str, str]) -> None:
        self.wire = wire
        self.url = url.rstrip("/")
        self.headers = headers
        self._subscribes_by: str | None = None
        """HTTP method by which the server accepts subscriptions (`find_subscription_method`); None until the first
        subscription."""

    @property
    def root(self) -> str:
        """URL to which the paths are appended."""
        return self.url

    @abstractmethod
    def body(self, operation: str, params: Mapping[str, Any], rest: dict[str, Any]) -> dict[str, Any]:
        """Return the JSON body of the POST request for an operation, in the form of this version of A2A (0.3 or 1.0).
        `params` are all parameters of the operation, and `rest` those that the path does not contain."""

    @abstractmethod
    def result(self, operation: str) -> str | None:
        """Return the name of the schema definition of an operation's result, or None if the schema has none."""

    @abstractmethod
    def hold(self, exchange: Exchange, operation: str, params: Mapping[str, Any], body: Any) -> None:
        """Validate the parameters or the body of a request that the check has sent, against the schema of its
        operation."""

    @abstractmethod
    def reply(self, operation: str, exchange: Exchange) -> A2aReply: ...

    @abstractmethod
    def event_of(self, event: Any) -> Any:
        """Return the StreamResponse of 1.0 for the JSON of a stream event, or None if the event cannot be
        translated."""

    def place(self, operation: str, params: Mapping[str, Any]) -> tuple[str, str, dict[str, Any] | None]:
        """Return the HTTP method, the URL and the body of the request for an operation. The body is None for methods
        other than POST."""
        method, path = self.paths[operation]
        rest = dict(params)
        for name in ("taskId", "id"):
            if f"{{{name}}}" in path:
                path = path.replace(f"{{{name}}}", quote(str(rest.pop(name, "")), safe=""))
        if method == "POST":
            return method, self.root + path, self.body(operation, params, rest)
        query = urlencode({name: _query_text(value) for name, value in rest.items()})
        return method, self.root + path + (f"?{query}" if query else ""), None

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
        result = self.result(operation)
        exchange = await self.wire.request(
            method,
            url,
            sends=None,
            receives={**({2: result} if result else {}), **self.errors},
            body=body,
            headers={**self.headers, **(headers or {})},
            is_anonymous=is_anonymous,
            bound=bound,
        )
        if is_valid:
            self.hold(exchange, operation, params, body)
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
            method = await self._subscription_method({**self.headers, **(headers or {})})
            body = dict[str, Any]() if method == "POST" else None
        async with self.wire.stream(
            method,
            url,
            sends=None,
            receives=self.errors,
            events=self.event,
            body=body,
            headers={"Accept": "text/event-stream", **self.headers, **(headers or {})},
            is_anonymous=is_anonymous,
        ) as stream:
            if is_valid:
                self.hold(stream.exchange, operation, params, body)
            yield A2aEventStream(stream, self._payload, lambda exchange: self.reply(operation, exchange))

    async def _subscription_method(self, headers: Mapping[str, str]) -> str:
        if self._subscribes_by is None:
            _, url, _ = self.place("SubscribeToTask", {"id": str(uuid4())})
            self._subscribes_by = await find_subscription_method(self.wire, url, headers)
        return self._subscribes_by

    def _payload(self, frame: SseFrame) -> Any:
        try:
            return self.event_of(frame.json)
        except InvalidJson:
            return None


def _query_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
