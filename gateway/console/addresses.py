"""Internal addresses in the exchanges with agents' servers, which only operators see."""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import urlsplit

HIDDEN: Final = "***"
"""Text in place of an address."""
_AUTHORITY: Final = re.compile(
    r"""((?::|%3A)(?:\\?/|\\u002f|%2F){2})(?:(?!\\|%2F|%3F|%23)[^\s/?#"'<>,;(){}|`])+""", re.IGNORECASE
)
"""Authority of a URL (RFC 3986, 3.2), also if JSON or another URL has escaped it. Group 1 is the text before it."""
_INNER: Final = re.compile(r"[\w.-]")
"""Character of a host's name."""
_IPV4: Final = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\.\d)(:\d{1,5})?")


class AddressFilter:
    """Replaces the hosts of all URLs, the addresses of agents' servers, and internal IPv4 addresses in texts."""

    def __init__(self, urls: Iterable[str]) -> None:
        """Create the filter. `urls` are those of agents' servers."""
        names = {name.lower() for url in urls for name in _names_of(url)}
        self._names = sorted(names, key=len, reverse=True)

    def hide(self, text: str) -> str:
        """Return a text with `***` in place of each address."""
        text = _AUTHORITY.sub(rf"\1{HIDDEN}", text)
        for name in self._names:
            text = _hide_name(text, name)
        return _IPV4.sub(_hide_internal, text)

    def hide_headers(self, headers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return headers without addresses. The value of Host is one."""
        return [(name, HIDDEN if name.lower() == "host" else self.hide(value)) for name, value in headers]


def _names_of(url: str) -> Iterable[str]:
    """Yield the texts that name the host of a URL. A word such as `agent` is a name only together with a port,
    because it is also a word of messages."""
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
    """Return a text without a name, in lower or upper case, where it is not a part of a longer name."""
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
