"""Separate address of the administration API (`admin.listen`): which paths each listener serves.

The console is on both addresses, because callers use it, too. Its operators are on the separate address only.
"""

import ipaddress
from typing import Final

from babelgate.canonical import FaultCode, FaultError
from babelgate.gateway.admin.routes import PREFIX
from babelgate.gateway.console.pages import PREFIX as CONSOLE
from babelgate.gateway.console.pages import is_console
from babelgate.gateway.http.response import Scope

_ELSEWHERE: Final = "The administration API is not on this port: the setting admin.listen gives it a separate address."
_ONLY_ADMIN: Final = f"This is the address of admin.listen, which serves only paths below {PREFIX} and {CONSOLE}."


class AdminAddress:
    """Address on which the administration API listens. Besides it, only the console is served there."""

    def __init__(self, host: str, port: int, callers: tuple[str, int] | None = None) -> None:
        """Create the address of a bound socket. `callers` is the host and port on which the protocols are served; None
        if they are not known."""
        self._host = _address(host)
        self._port = port
        self.callers = callers
        """Host and port on which the protocols are served."""

    def check(self, scope: Scope, path: str) -> None:
        """Check that a path is served on the listener on which its request arrived. `path` has no prefix
        `/agent/<name>`. Raises not_found."""
        is_admin_path = path == PREFIX or path.startswith(f"{PREFIX}/")
        if is_admin_path != self.is_called(scope) and not is_console(path):
            raise FaultError(FaultCode.NOT_FOUND, _ELSEWHERE if is_admin_path else _ONLY_ADMIN)

    def is_called(self, scope: Scope) -> bool:
        """Return True if the request with this ASGI scope has arrived on this address."""
        host, port = scope.get("server") or ("", None)
        if port != self._port:
            return False
        # Another address may have the same port.
        return self._host is None or self._host.is_unspecified or _address(host) == self._host


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
