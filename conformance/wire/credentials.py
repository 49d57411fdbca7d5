"""User and password in a URL. They are sent as an `Authorization` header, and no report shows them."""

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

_USERINFO: Final = re.compile(r"(?i)(^|\b[a-z][a-z0-9+.-]*://)([^/?#\s]*)@")
"""Userinfo of a URL (RFC 3986, section 3.2.1). A password may contain an `@`, so the last one ends it."""


_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}


def credentials_header(url: str) -> dict[str, str]:
    """Return the Authorization header for the user and password in a URL (RFC 7617). Return an empty dict if the URL
    has neither."""
    userinfo = _USERINFO.match(url)
    if userinfo is None:
        return {}
    user, _, password = userinfo[2].partition(":")
    pair = f"{unquote(user)}:{unquote(password)}".encode()
    return {"Authorization": f"Basic {b64encode(pair).decode()}"}


def origin_of(url: str) -> str:
    """Return the scheme, host and port of a URL, such as `https://example.com`. Credentials are sent only to the origin
    for which the user gave them.

    `localhost`, `127.0.0.1` and `::1` count as one host, because a server at `localhost` may call itself `127.0.0.1`.
    """
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
    """Return the text with user and password removed from all its URLs."""
    return _USERINFO.sub(r"\1", text)


def secrets_of(urls: Iterable[str], headers: Iterable[Mapping[str, str]]) -> list[str]:
    """Return the texts that a report must not show: passwords in the URLs, and the values of the headers.

    Passwords are returned as written in the URL and decoded, and header values whole and without their scheme.
    """
    return [*_passwords(urls), *_values(headers)]


def _passwords(urls: Iterable[str]) -> Iterator[str]:
    for url in urls:
        userinfo = _USERINFO.match(url)
        if userinfo is not None:
            password = userinfo[2].partition(":")[2]
            yield password
            yield unquote(password)
            yield from _values([credentials_header(url)])


def _values(headers: Iterable[Mapping[str, str]]) -> Iterator[str]:
    for each in headers:
        for value in each.values():
            yield value
            yield value.partition(" ")[2]
