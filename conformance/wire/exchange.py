"""Record of one request and its response, as evidence."""

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
"""Maximum number of characters of a body or frame that a report shows."""


class InvalidJson(ValueError):
    """Error for a text that is not JSON, contains NaN, or is not UTF-8."""


def _refuse(constant: str) -> Any:
    raise InvalidJson(f"{constant} is not JSON")


def parse_json(content: bytes | str) -> Any:
    """Return the parsed JSON. Raises InvalidJson."""
    try:
        return json.loads(content, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise InvalidJson(str(error)) from None


def json_or_none(content: bytes | str) -> Any:
    """Return the parsed JSON, or None for a text that is not JSON."""
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
    """Return the member at the path, or None if the path does not exist."""
    for step in path:
        if isinstance(step, int):
            items = as_list(value)
            value = items[step] if -len(items) <= step < len(items) else None
        else:
            value = (as_object(value) or {}).get(step)
    return value


@dataclass(frozen=True, slots=True)
class SseFrame:
    """Server-sent event."""

    at: float
    """Seconds since the request."""
    raw: str
    data: str
    event: str = ""
    id: str = ""

    @property
    def json(self) -> Any:
        """Data as parsed JSON. Raises InvalidJson."""
        return parse_json(self.data)

    @property
    def json_or_none(self) -> Any:
        """Data as parsed JSON, or None if it is not JSON."""
        return json_or_none(self.data)


@dataclass(frozen=True, slots=True)
class CheckedMessage:
    """Message of the protocol with the result of its validation."""

    is_from_check: bool
    schema: str
    violations: tuple[Violation, ...]
    definitions: frozenset[str]
    """Names of the definitions that the message was validated against."""


@dataclass(slots=True, eq=False)
class Exchange:
    number: int
    """Position among the requests of the run, from 1."""
    method: str
    url: str
    headers: list[tuple[str, str]]
    body: bytes = b""
    status: int | None = None
    """Status of the response. None until a response arrives, or if none does."""
    response_headers: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Response headers, spelled as the server sent them."""
    content: bytes = b""
    frames: list[SseFrame] = field(default_factory=list[SseFrame])
    is_ended: bool = False
    """True if the response arrived in full: the check did not close the connection, and nothing was cut off."""
    error: str = ""
    """Reason why the response is missing or incomplete."""
    seconds: float = 0.0
    messages: list[CheckedMessage] = field(default_factory=list[CheckedMessage])

    def header(self, name: str) -> str | None:
        """Return a header of the response, or None. Several of the same name are joined by a comma."""
        found = [value for key, value in self.response_headers if key.lower() == name.lower()]
        return ", ".join(found) if found else None

    def request_header(self, name: str) -> str | None:
        """Return a header of the request, or None."""
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
        return self.media_type == "text/event-stream"

    @property
    def json(self) -> Any:
        """Body of the response as parsed JSON, or None if it is not JSON. `is_json` tells null from invalid JSON."""
        return json_or_none(self.content)

    @property
    def is_json(self) -> bool:
        try:
            parse_json(self.content)
        except InvalidJson:
            return False
        return True

    def __str__(self) -> str:
        return f"#{self.number} {self.method} {self.url} → {self.status or self.error or 'no answer'}"


class Redactor:
    """Filter that removes secrets from reports: the values of secret headers, and the same texts anywhere else."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = sorted({each for each in secrets if len(each) >= 4}, key=len, reverse=True)

    def text(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "[redacted]")
        return text

    def value(self, value: Any) -> Any:
        """Return a JSON value without secrets."""
        return json.loads(self.text(json.dumps(value, default=str)))

    def headers(self, headers: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        for name, value in headers:
            yield name, "[redacted]" if name.lower() in _SECRET_HEADERS else self.text(value)

    def exchange(self, exchange: Exchange) -> dict[str, Any]:
        """Return an exchange as reports show it: as JSON, without secrets, with long texts cut."""
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
        if exchange.error:
            entry["error"] = self.text(exchange.error)
        return entry

    def _body(self, content: bytes) -> str:
        return self._cut(content.decode("utf-8", errors="backslashreplace"))

    def _cut(self, text: str) -> str:
        text = self.text(text)
        return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}… ({len(text)} characters)"
