"""Connections to agents that were added by the administration API: each address is checked before the gateway connects
to it.

A check of the configured URL would not suffice. A host name can resolve to another address later (DNS rebinding), and a
server can refer to another host, as the card of an A2A agent does.
"""

import errno
import ipaddress
import logging
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import httpx

from babelgate.adapters.kit.client.calls import Hook, open_http
from babelgate.adapters.kit.client.tls import ClientTls, default_context
from babelgate.gateway.settings.fields import IPNetwork

log = logging.getLogger("babelgate.registry")

Networks = tuple[IPNetwork, ...]
ClientFactory = Callable[..., httpx.AsyncClient]
"""Function that creates an HTTP client from the arguments of `httpx.AsyncClient`."""


def open_client(
    networks: Networks | None,
    timeout: httpx.Timeout | float = 5.0,
    event_hooks: Mapping[str, list[Hook]] = MappingProxyType({}),
    tls: ClientTls | None = None,
    make: ClientFactory = httpx.AsyncClient,
) -> httpx.AsyncClient:
    """Return an HTTP client that connects only to addresses in `networks`, or to any address if that is None.

    `tls` has the CAs to trust for https and the client certificate to present. `make` creates the client. Raises
    OSError if the files of `tls` cannot be used.
    """
    if networks is None and tls is None and make is httpx.AsyncClient:
        return httpx.AsyncClient(timeout=timeout, event_hooks=event_hooks, verify=default_context())
    check = None if networks is None else partial(_check_connection, networks=networks)
    return open_http(check, timeout=timeout, event_hooks=event_hooks, tls=tls, make=make)


def _check_connection(address: str, networks: Networks) -> None:
    """Check an address before a connection, and log it if it is refused: callers do not see the reason. Raises
    PermissionError for an address outside `networks`."""
    try:
        check_address(address, networks)
    except PermissionError as error:
        log.warning("connection to an agent refused reason=%r", error.strerror)
        raise


def check_address(text: str, networks: Networks) -> None:
    """Check that the address of a server is in the networks. Raises PermissionError if it is not.

    An IPv4 address in an IPv6 address is checked as IPv4, because the connection is made to it (RFC 4291, section
    2.5.5.2).
    """
    address = ipaddress.ip_address(text.partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    if not any(address in network for network in networks):
        allowed = ", ".join(map(str, networks)) or "none"
        raise PermissionError(
            errno.EACCES, f"the address {address} is not in admin.agent_networks, which allows: {allowed}"
        )
