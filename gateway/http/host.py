"""Host header check against DNS rebinding: the host names that the gateway accepts.

A page of evil.example can resolve its own name to this machine (DNS rebinding). For the browser the gateway then has
the origin of the page, and the page may read every response. But the Host header still contains evil.example.
"""

import ipaddress
import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from babelgate.gateway.settings.model import Settings

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:/?#@\s]+?)\.?(:\d*)?")
"""Host header: a name or an address, and optionally a port, which is ignored (RFC 9110 §7.2)."""
_MAX_LENGTH: Final = 300
"""Maximum length of a Host header, in characters. Chosen: a name has at most 253 (RFC 1035 §2.3.4)."""


class Hosts:
    """Host names that the gateway accepts in the Host header."""

    def __init__(self, names: Sequence[str]) -> None:
        """Create the set. `names` are in lower case: `*` accepts all, `*.example.com` all subdomains."""
        self._names = frozenset(names)
        self._below = tuple(name[1:] for name in names if name.startswith("*."))

    @property
    def is_open(self) -> bool:
        """True if every host name is accepted, so that an accepted name is no sign that the request is for this
        gateway."""
        return "*" in self._names

    @classmethod
    def of(cls, settings: Settings) -> "Hosts":
        """Return the host names that the settings accept.

        With API keys, all names are accepted unless `hosts` is set: a page has no key to send.
        """
        if settings.has_credentials and not settings.hosts:
            return cls(["*"])
        default_names = [settings.host.lower()]
        if settings.public_url is not None:
            default_names.append((urlsplit(settings.public_url).hostname or "").lower())
        return cls([*settings.hosts, *default_names])

    def is_permitted(self, host: str, local: str | None) -> bool:
        """Return True if a Host header is accepted. `local` is the address that the client connected to.

        A missing header is accepted, because every browser sends one. Loopback addresses and `local` are accepted,
        because an address cannot be rebound.
        """
        if not host or self.is_open:
            return True
        match = _HOST.fullmatch(host)
        if match is None or len(host) > _MAX_LENGTH:
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
