"""Listening sockets of the gateway, and the errors that explain why a port cannot be used."""

import errno
import ipaddress
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager

from babelgate.gateway.cli.errors import USAGE, CliError
from babelgate.gateway.settings.fields import split_listen


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """Return the address family and the socket address of a host and port. IPv4 is preferred if the host has both.
    Raises CliError for an unknown host."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise CliError(f"--host {host}: there is no such address on this machine", code=USAGE) from None
    family, _, _, _, address = min(addresses, key=lambda entry: entry[0] != socket.AF_INET)
    return family, (str(address[0]), port)


def is_loopback(host: str) -> bool:
    """Return True if the host is a loopback address. Raises CliError if it is not an address of this machine."""
    _, (address, _) = _resolve(host, 0)
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a socket that is bound to a port. With `shared`, other `shared` sockets can be bound to the port, too.
    Raises CliError if the host is unknown or the port is in use.

    TCP is named explicitly: only then does asyncio turn off Nagle's algorithm, which costs 40 ms per call.
    """
    family, address = _resolve(host, port)
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        _share(listener)
    with _explain_errors(host, port):
        try:
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    listener.setblocking(False)
    return listener


def claim(host: str, port: int) -> socket.socket:
    """Reserve a port for the sockets of workers, which bind to it as `shared`, so that no other program takes it.

    The returned socket does not listen, so it gets no connections. Raises CliError if the host is unknown or the port
    is in use.
    """
    listener = bind(host, port)
    _share(listener)  # only after bind: before, bind would succeed next to the workers of another gateway
    return listener


def bind_setting(name: str, value: str, *, shared: bool = False) -> socket.socket:
    """Return a socket that is bound to the address in a setting, such as `admin.listen`. `shared` is as in `bind`.
    Raises CliError if the host is unknown or the port is in use."""
    return _name_setting(bind, name, value, shared=shared)


def claim_setting(name: str, value: str) -> socket.socket:
    """Reserve the port of the address in a setting, such as `admin.listen`, for the sockets of workers. Raises CliError
    if the host is unknown or the port is in use."""
    return _name_setting(claim, name, value)


def _name_setting(bind: Callable[..., socket.socket], name: str, value: str, **options: bool) -> socket.socket:
    """Call `bind` with the address in a setting, and return the socket. Raises CliError if the host is unknown or the
    port is in use; it names the setting instead of --host and --port."""
    try:
        return bind(*split_listen(value), **options)
    except CliError as error:
        reason = getattr(error.__context__, "strerror", None) or "there is no such address on this machine"
        raise CliError(f"{name}: cannot listen on {value}: {reason}", code=error.code) from None


def _share(listener: socket.socket) -> None:
    """Let other sockets bind to the port of this one.

    The kernel gives each connection to one of the listening sockets, by a hash of both addresses (socket(7),
    SO_REUSEPORT). A closed socket gets no more connections.
    """
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)


def listen(listener: socket.socket, backlog: int = 2048) -> None:
    """Accept connections on a bound socket from now on. Raises CliError if another socket that was bound to the port
    listens already."""
    host, port = listener.getsockname()[:2]
    with _explain_errors(host, port):
        listener.listen(backlog)


@contextmanager
def _explain_errors(host: str, port: int) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise CliError(_why(host, port, error)) from None


def _why(host: str, port: int, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"port {port} of {host} is in use: stop what listens there, or choose another with --port"
        case errno.EACCES | errno.EPERM:
            return f"port {port} of {host} needs rights that this user lacks: choose another with --port, above 1023"
        case errno.EADDRNOTAVAIL:
            return f"--host {host}: there is no such address on this machine"
        case _:
            return f"cannot listen on port {port} of {host}: {error.strerror}"


def base_url(listener: socket.socket, *, is_secure: bool = False) -> str:
    """Return the URL at which programs on this machine reach the socket. `is_secure` is true if it speaks TLS."""
    host, port = listener.getsockname()[:2]
    address = ipaddress.ip_address(host.partition("%")[0])
    if address.is_unspecified:
        host = "127.0.0.1" if address.version == 4 else "::1"
    return f"{'https' if is_secure else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
