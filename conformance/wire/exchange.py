"""Record of one HTTP request and its response, which reports show as evidence. Helpers for reading JSON of unknown form
are here, too."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, cast

from babelgate.conformance.wire.schema import Violation

_SECRET_HEADERS: Final = frozenset(
    {
        *("authorization", "proxy-authorization", "cookie", "set-cookie"),
        *("x-api-key", "api-key", "x-a2a-notification-token"),
    }
)
_MAX_TEXT: Final = 20_000
"""Maximum number of characters that a report shows of a body or an event. Chosen."""


class InvalidJson(ValueError):
    """Error for content that is not JSON: it is not UTF-8, contains NaN or infinity, or has a syntax error."""


def _refuse(constant: str) -> Any:
    raise InvalidJson(f"{constant} is not JSON")


def parse_json(content: bytes | str) -> Any:
    """Return the value of a JSON text. Raises InvalidJson for a text that is not JSON."""
    try:
        return json.loads(content, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise InvalidJson(str(error)) from None


def json_or_none(content: bytes | str) -> Any:
    """Return the value of a JSON text, or None if it is not JSON."""
    try:
        return parse_json(content)
    except InvalidJson:
        return None


def as_object(value: Any) -> dict[str, Any] | None:
    """Return the value if it is a JSON object, otherwise None."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def as_list(value: Any) -> list[Any]:
    """Return the value if it is a JSON array, otherwise an empty list."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def dig(value: Any, *path: str | int) -> Any:
    """Return the value at a path of member names and indices in a JSON value, or None if the path does not exist."""
    for step in path:
        if isinstance(step, int):
            items = as_list(value)
            value = items[step] if -len(items) <= step < len(items) else None
        else:
            value = (as_object(value) or {}).get(step)
    return value


@dataclass(frozen=True, slots=True)
class SseFrame:
    """One server-sent event, with its raw text."""

    at: float
    """Time at which the event arrived, in seconds after the request."""
    raw: str
    data: str
    event: str = ""
    id: str = ""

    @property
    def json(self) -> Any:
        """Data of the event as parsed JSON. Raises InvalidJson if the data is not JSON."""
        return parse_json(self.data)

    @property
    def json_or_none(self) -> Any:
        """Data of the event as parsed JSON, or None if the data is not JSON."""
        return json_or_none(self.data)


@dataclass(frozen=True, slots=True)
class CheckedMessage:
    """Result of validating one message of an exchange against a schema. `is_from_check` is true for a request of the
    check, and false for a message of the agent."""

    is_from_check: bool
    schema: str
    violations: tuple[Violation, ...]
    definitions: frozenset[str]
    """Names of all schema definitions that were used to validate the message and its parts."""


@dataclass(slots=True, eq=False)
class Exchange:
    number: int
    """Number of the request among all requests of the check, from 1."""
    method: str
    url: str
    headers: list[tuple[str, str]]
    body: bytes = b""
    status: int | None = None
    """HTTP status of the response; None if there is no response."""
    response_headers: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Response headers, spelled as the server sent them."""
    content: bytes = b""
    frames: list[SseFrame] = field(default_factory=list[SseFrame])
    is_ended: bool = False
    """True if the response arrived in full. False if the check closed the connection first, or if the response was cut
    off."""
    error: str = ""
    """Reason why the response is missing or incomplete; otherwise empty."""
    seconds: float = 0.0
    messages: list[CheckedMessage] = field(default_factory=list[CheckedMessage])
    rpc_status: str = ""
    """Name of the status of a gRPC call, such as `NOT_FOUND`; empty in HTTP. `status` is then the equivalent HTTP
    status, the bodies and events are the JSON of the messages, and the headers are the metadata."""
    is_message_stream: bool = False
    """True if the response is a stream of messages without HTTP: of a gRPC call, or of a process."""

    def header(self, name: str) -> str | None:
        """Return the value of a response header, or None if the response does not have it. Several headers of one name
        are joined by a comma."""
        found = [value for key, value in self.response_headers if key.lower() == name.lower()]
        return ", ".join(found) if found else None

    def request_header(self, name: str) -> str | None:
        """Return the value of a request header, or None if the request does not have it."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    @property
    def request_json(self) -> Any:
        """Body of the request as parsed JSON, or None if it is not JSON."""
        return json_or_none(self.body)

    @property
    def media_type(self) -> str:
        """Media type of the response, in lower case and without parameters."""
        return (self.header("content-type") or "").partition(";")[0].strip().lower()

    @property
    def is_stream(self) -> bool:
        return self.is_message_stream or self.media_type == "text/event-stream"

    @property
    def json(self) -> Any:
        """Body of the response as parsed JSON, or None if it is not JSON. `is_json` distinguishes the JSON value null
        from invalid JSON."""
        return json_or_none(self.content)

    @property
    def is_json(self) -> bool:
        try:
            parse_json(self.content)
        except InvalidJson:
            return False
        return True

    def __str__(self) -> str:
        return (
            f"#{self.number} {self.method} {self.url} → {self.rpc_status or self.status or self.error or 'no answer'}"
        )


class Redactor:
    """Filter that replaces secrets in reports: the values of headers such as Authorization, and all texts in `secrets`,
    also in bodies and URLs."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = sorted({each for each in secrets if len(each) >= 4}, key=len, reverse=True)

    def text(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "[redacted]")
        return text

    def value(self, value: Any) -> Any:
        """Return a JSON value in which secrets are replaced by `[redacted]`."""
        return json.loads(self.text(json.dumps(value, default=str)))

    def headers(self, headers: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        for name, value in headers:
            yield name, "[redacted]" if name.lower() in _SECRET_HEADERS else self.text(value)

    def exchange(self, exchange: Exchange) -> dict[str, Any]:
        """Return an exchange as a JSON object for reports, in which secrets are replaced and long texts cut."""
        entry: dict[str, Any] = {
            "number": exchange.number,
            "request": {
                "method": exchange.method,
                "url": self.text(exchange.url),
                "headers": [list(each) for each in self.headers(exchange.headers)],
                "body": self._body(exchange.body),
            },
            "seconds": round(exchange.seconds, 3),
        }
        if exchange.status is not None:
            entry["response"] = {
                "status": exchange.status,
                "headers": [list(each) for each in self.headers(exchange.response_headers)],
                "body": self._body(exchange.content),
                "events": [{"seconds": round(each.at, 3), "text": self._cut(each.raw)} for each in exchange.frames],
            }
        if exchange.rpc_status:
            entry["response"]["grpcStatus"] = exchange.rpc_status
        if exchange.error:
            entry["error"] = self.text(exchange.error)
        return entry

    def _body(self, content: bytes) -> str:
        return self._cut(content.decode("utf-8", errors="backslashreplace"))

    def _cut(self, text: str) -> str:
        text = self.text(text)
        return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}… ({len(text)} characters)"
