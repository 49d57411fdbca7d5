"""Host header check (DNS rebinding): the names under which the gateway answers.

A page of evil.example may have its own name lead to this machine (DNS rebinding). To the browser the gateway is then
the page's own site: no origin tells it from the user, and it may read every answer. But Host says evil.example.
"""

import ipaddress
import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from babelgate.gateway.settings.model import Settings

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:/?#@\s]+?)\.?(:\d*)?")
"""A name or an address, and a port, which does not matter (RFC 9110 §7.2)."""
_LONGEST: Final = 300
"""Of a name there are 253 at most (RFC 1035 §2.3.4)."""


class Hosts:
    """`names`: in lower case; `*` for all, `*.example.com` for all below it."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)
        self._below = tuple(name[1:] for name in names if name.startswith("*."))

    @classmethod
    def of(cls, settings: Settings) -> "Hosts":
        """Where there are keys, a page has none to show, and any name will do unless `hosts` says which."""
        if settings.keys and not settings.hosts:
            return cls(["*"])
        own = [settings.host.lower()]
        if settings.public_url is not None:
            own.append((urlsplit(settings.public_url).hostname or "").lower())
        return cls([*settings.hosts, *own])

    def is_permitted(self, host: str, local: str | None) -> bool:
        """Whether to answer under this Host header. `local`: the address of this machine that was connected to. No Host
        at all is what no browser sends; an address is one name that leads nowhere else."""
        if not host or "*" in self._names:
            return True
        match = _HOST.fullmatch(host)
        if match is None or len(host) > _LONGEST:
            return False
        name = match[1].strip("[]").lower()
        if name in self._names or name == "localhost" or name.endswith((".localhost", *self._below)):
            return True
        address = _address(name)
        return address is not None and (address.is_loopback or address == _address(local or ""))


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
