"""User and password of a URL: they are sent as the header that they mean, and shown nowhere."""

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

_HELD: Final = re.compile(r"(?i)(^|\b[a-z][a-z0-9+.-]*://)([^/?#\s]*)@")
"""RFC 3986, section 3.2.1. A password may hold an `@`: the last one ends it."""


_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}


def credentials_header(url: str) -> dict[str, str]:
    """The header that user and password mean (RFC 7617); none where the URL has none."""
    held = _HELD.match(url)
    if held is None:
        return {}
    user, _, password = held[2].partition(":")
    pair = f"{unquote(user)}:{unquote(password)}".encode()
    return {"Authorization": f"Basic {b64encode(pair).decode()}"}


def origin_of(url: str) -> str:
    """Scheme, host and port. User and password of one are for no other. The names of this machine are one host: a
    server that is asked as `localhost` may call itself `127.0.0.1`."""
    parts = urlsplit(hide_credentials(url).lower())
    host = "localhost" if parts.hostname in _LOOPBACK else parts.hostname or ""
    try:
        port = parts.port
    except ValueError:
        port = None
    port = port or _PORTS.get(parts.scheme)
    return f"{parts.scheme}://{host}" + (f":{port}" if port and port != _PORTS.get(parts.scheme) else "")


def credentials_by_origin(urls: Iterable[str]) -> dict[str, dict[str, str]]:
    return {origin_of(url): header for url in urls if (header := credentials_header(url))}


def hide_credentials(text: str) -> str:
    """The text with all its URLs without user and password."""
    return _HELD.sub(r"\1", text)


def secrets_of(urls: Iterable[str], headers: Iterable[Mapping[str, str]]) -> list[str]:
    """What must not be shown: passwords of the URLs, as they stand there and as they are meant; values of the headers,
    and what follows the scheme in them."""
    return [*_passwords(urls), *_values(headers)]


def _passwords(urls: Iterable[str]) -> Iterator[str]:
    for url in urls:
        held = _HELD.match(url)
        if held is not None:
            password = held[2].partition(":")[2]
            yield password
            yield unquote(password)
            yield from _values([credentials_header(url)])


def _values(headers: Iterable[Mapping[str, str]]) -> Iterator[str]:
    for each in headers:
        for value in each.values():
            yield value
            yield value.partition(" ")[2]
