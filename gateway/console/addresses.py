"""Filter of internal addresses in recorded exchanges with agents' servers: only operators see these addresses."""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import urlsplit

HIDDEN: Final = "***"
"""Text that replaces a hidden address."""
_AUTHORITY: Final = re.compile(
    r"""((?::|%3A)(?:\\?/|\\u002f|%2F){2})(?:(?!\\|%2F|%3F|%23)[^\s/?#"'<>,;(){}|`])+""", re.IGNORECASE
)
"""Authority of a URL (RFC 3986, 3.2), also if the URL is escaped in JSON or in another URL. Group 1 is the text before
it."""
_INNER: Final = re.compile(r"[\w.-]")
"""Character that can be part of a host name, so that the text around it is a longer name."""
_IPV4: Final = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\.\d)(:\d{1,5})?")


class AddressFilter:
    """Filter that replaces addresses in texts: the hosts of all URLs, the names of agents' servers, and internal IPv4
    addresses."""

    def __init__(self, urls: Iterable[str]) -> None:
        """Create the filter. `urls` are those of agents' servers, whose names are hidden outside of URLs, too."""
        names = {name.lower() for url in urls for name in _names_of(url)}
        self._names = sorted(names, key=len, reverse=True)

    def hide(self, text: str) -> str:
        """Return a text with `***` in place of each address."""
        text = _AUTHORITY.sub(rf"\1{HIDDEN}", text)
        for name in self._names:
            text = _hide_name(text, name)
        return _IPV4.sub(_hide_internal, text)

    def hide_headers(self, headers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return headers with `***` in place of each address. The whole value of `Host` is an address."""
        return [(name, HIDDEN if name.lower() == "host" else self.hide(value)) for name, value in headers]


def _names_of(url: str) -> Iterable[str]:
    """Yield the texts that name the host of a URL: with its port, and alone if it has a dot or colon.

    A single word such as `agent` is hidden only together with a port, because messages may contain the word.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return
    if not host:
        return
    if "." in host or ":" in host:
        yield host
    default = {"http": 80, "https": 443}.get(parts.scheme)
    yield f"{f'[{host}]' if ':' in host else host}:{port or default}"


def _hide_name(text: str, name: str) -> str:
    """Return a text in which a name, in any case, is replaced where it is not a part of a longer name."""
    lower, pieces, end, at = text.lower(), list[str](), 0, -1
    if len(lower) != len(text):  # some letters are longer in lower case: their positions would not match
        lower = text
    while (at := lower.find(name, at + 1)) >= 0:
        after = at + len(name)
        is_whole = not _INNER.match(text[at - 1 : at]) and not _INNER.match(text[after : after + 1].replace(".", ""))
        if is_whole and at >= end:
            pieces += [text[end:at], HIDDEN]
            end = after
    return "".join([*pieces, text[end:]])


def _hide_internal(found: re.Match[str]) -> str:
    try:
        is_public = ipaddress.ip_address(found[0].partition(":")[0]).is_global
    except ValueError:  # no address, such as 1.2.3.999
        return found[0]
    return found[0] if is_public else HIDDEN
