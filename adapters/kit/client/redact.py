"""Redaction of credentials. An agent's server may quote the credentials that the gateway sent; they must not reach
callers or logs."""

import json
import re
from collections.abc import Iterable
from typing import Any, Final, cast
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from babelgate.canonical import Fault
from babelgate.canonical.value import JsonObject

_MIN_SECRET: Final = 8
"""Minimum length of a secret, in characters. Shorter header values are not secrets, and removing them would garble
messages. Chosen."""
_CREDENTIALS: Final = re.compile(
    r"\b(bearer|basic|token)( {1,3})(?=\S{0,200}[0-9])[A-Za-z0-9._~+/=-]{16,}", re.IGNORECASE
)
"""Pattern of credentials of an `Authorization` header (RFC 9110, section 11.4), such as `Bearer eyJhbGci…`, in a
text."""
_HIDDEN: Final = "***"


def secrets_in(headers: Iterable[str]) -> list[str]:
    """Return the texts to redact for these header values: each value, its last word (the token after `Bearer`), and
    their escaped forms. The longest comes first."""
    values = {word for value in headers for word in (value, value.rpartition(" ")[2])}
    values |= {form for value in values for form in _escape(value)}
    return sorted(values, key=len, reverse=True)


def _escape(value: str) -> tuple[str, ...]:
    """Return the forms in which a server may quote a value: escaped in JSON, escaped in the JSON of PHP, and
    percent-encoded."""
    in_json = json.dumps(value)[1:-1]
    return in_json, in_json.replace("/", "\\/"), quote(value, safe=""), quote(value)


_HARMLESS: Final = frozenset(
    {
        *("accept", "accept-encoding", "accept-language", "cache-control", "connection", "content-encoding"),
        *("content-length", "content-location", "content-type", "date", "etag", "host", "keep-alive", "last-event-id"),
        *("last-modified", "location", "retry-after", "server", "traceparent", "tracestate", "transfer-encoding"),
        *("user-agent", "vary", "www-authenticate", "x-request-id", "x-accel-buffering", "idempotency-key"),
        *("a2a-version", "a2a-extensions", "x-a2a-extensions", "openai-beta", "openai-version", "openai-organization"),
    }
)
"""Names of headers whose values are not secrets, in lower case."""
_HARMLESS_PREFIXES: Final = ("babelgate-", "mcp-", "ratelimit-", "x-ratelimit-", "access-control-")
_SECRET_NAME: Final = re.compile(
    r"auth|token|secret|passw|key|cookie|session|signature|credential|^sig$", re.IGNORECASE
)
"""Pattern of the names of URL parameters whose values are secrets, such as `api_key`."""


def is_secret_header(name: str) -> bool:
    """Return True if the value of a header with this name may be a secret. Operators can configure headers with any
    name, so every header may be secret, except those that are known to be harmless."""
    lower = name.lower()
    return lower not in _HARMLESS and not lower.startswith(_HARMLESS_PREFIXES)


def hide_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the headers, as pairs of name and value, with `***` in place of values that may be secrets."""
    return [(name, _hide_value(name, value)) for name, value in headers]


def _hide_value(name: str, value: str) -> str:
    if is_secret_header(name):
        return _HIDDEN
    return hide_url(value) if name.lower() in ("location", "content-location") else value


def hide_url(url: str) -> str:
    """Return a URL without credentials and without its fragment: the user name and password are removed, and `***`
    replaces the values of parameters with names such as `api_key`."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return _HIDDEN
    netloc = parts.netloc.rpartition("@")[2]
    query = "&".join(map(_hide_parameter, parts.query.split("&"))) if parts.query else ""
    return urlunsplit((parts.scheme, netloc, parts.path, query, ""))


def _hide_parameter(parameter: str) -> str:
    name, equals, _ = parameter.partition("=")
    return f"{name}={_HIDDEN}" if equals and _SECRET_NAME.search(unquote(name)) else parameter


def hide_texts(text: str, secrets: Iterable[str]) -> str:
    """Return a text with `***` in place of the secrets, and of other credentials that have the form `Bearer …`."""
    return _redact_text(text, _select_long(secrets))


def redact_fault(fault: Fault, secrets: Iterable[str]) -> Fault:
    """Return the fault with `***` in place of the secrets in its message and details, and of other credentials that
    have the form `Bearer …`."""
    hidden = _select_long(secrets)

    def redact(value: Any) -> Any:
        if isinstance(value, dict):
            members = cast("JsonObject", value)
            return {redact(name): redact(each) for name, each in members.items()}
        if isinstance(value, list):
            return [redact(each) for each in cast("list[Any]", value)]
        if isinstance(value, str):
            return _redact_text(value, hidden)
        return value

    return fault.replace(message=redact(fault.message), details=redact(fault.details))


def redact_excerpt(text: str, secrets: Iterable[str]) -> str:
    """Return the beginning of a longer text with `***` in place of the secrets. This includes a secret of which the end
    is missing, because the text was cut there."""
    hidden = _select_long(secrets)
    text = _redact_text(text, hidden)
    for secret in hidden:
        start = text.find(secret[:_MIN_SECRET], max(0, len(text) - len(secret)))
        while start >= 0:
            if secret.startswith(text[start:]):
                return text[:start] + _HIDDEN
            start = text.find(secret[:_MIN_SECRET], start + 1)
    return text


def _select_long(secrets: Iterable[str]) -> list[str]:
    return [secret for secret in secrets if len(secret) >= _MIN_SECRET]


def _redact_text(text: str, hidden: Iterable[str]) -> str:
    for secret in hidden:
        text = text.replace(secret, _HIDDEN)
    return _CREDENTIALS.sub(lambda found: f"{found[1]}{found[2]}{_HIDDEN}", text)
