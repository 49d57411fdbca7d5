"""SSRF guard for requests to URLs that callers name: webhooks, and messages of a session that other servers store.

A caller must not use the gateway to reach what only the gateway can reach. So a host name is resolved once, every
address of it is checked, and the connection is made to a checked address. A name that resolves to another address a
moment later changes nothing. Redirects are not followed, proxies of the environment are not used, and cookies are not
kept.
"""

import asyncio
import ipaddress
import re
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import httpx

from babelgate.adapters.kit.headers import content_codings
from babelgate.adapters.kit.server.encoding import LargeJson, size_of
from babelgate.canonical.fault import FaultCode, FaultError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Function that returns the addresses of a host and port. Raises OSError for a name without an address."""

_PORTS: Final = {"http": 80, "https": 443}
_HOST: Final = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")
"""Host names in ASCII form, and addresses, that a URL may contain. Zones (`fe80::1%eth0`) and percent-encoding are not
allowed."""

_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
"""Network of all addresses that IANA assigns as global IPv6 unicast. All other IPv6 addresses have special purposes."""
_SPECIAL: Final = (
    # Not global by IANA's registries of special-purpose addresses, but global in some versions of `ipaddress`.
    ipaddress.IPv4Network("192.0.0.0/24"),
    ipaddress.IPv4Network("192.88.99.0/24"),
    ipaddress.IPv6Network("2001::/23"),
    ipaddress.IPv6Network("3fff::/20"),
)
_CALL_HEADERS: Final = frozenset({"host", "connection", "accept-encoding", "content-length", "transfer-encoding"})
"""Headers that the gateway sets itself. Values that a caller gives for them are ignored."""
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class Pinned:
    """URL that may be called, with the addresses of its host. All addresses passed the check, and only these are
    connected to."""

    url: httpx.URL
    host: str
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PostResponse:
    """Response to a POST, whose body is not read."""

    status: int
    retry_after: str | None
    """Value of the header `Retry-After`, verbatim."""


async def lookup(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host name from the system's resolver, which also accepts unusual forms of an address
    (`127.1`)."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=1)  # SOCK_STREAM: each address once
    return [str(entry[4][0]) for entry in found]


def _ignore_progress(_: int) -> None:
    """Ignore the number of received bytes. Default for `received`."""


CheckUrl = Callable[[str], Awaitable[object]]
"""Function that checks, like `Fetcher.check`, that the gateway may call a URL. Raises invalid."""


class Fetcher:
    def __init__(
        self,
        allow: Sequence[str | Network] = (),
        *,
        connect_timeout: float = 5,
        total_timeout: float = 30,
        limit: int = 16 * 2**20,
        resolve: Resolve = lookup,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Create a fetcher.

        `allow` lists networks that may be called although they are not public. `limit` is the maximum size of a
        response body, in bytes, and both timeouts are in seconds. `resolve` returns the addresses of a host. `tls` has
        the trusted certificates; None uses those of the system.
        """
        self._allow = tuple(ipaddress.ip_network(network, strict=False) for network in allow)
        self._connect_timeout = connect_timeout
        self._total_timeout = total_timeout
        self._limit = limit
        self._resolve = resolve
        self._tls = tls

    def _transport(self) -> httpx.AsyncHTTPTransport:
        """Return a transport for one call.

        No connection is used twice: a pool identifies its connections by address, and one that was made for a host must
        not carry the requests of another. Closing the pool also works around httpcore 1.0.9, which does not close a
        connection if the call is cancelled while it takes a lock.
        """
        if self._tls is None:
            self._tls = httpx.create_ssl_context()  # at the first call: certificates take time to load
        return httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False)

    async def check(self, url: str) -> Pinned:
        """Resolve the host of a URL and check every address. Return the URL with the addresses. Raises invalid if the
        host is unknown or an address is not allowed."""
        parsed = _parse_url(url)
        host = parsed.raw_host.decode("ascii")
        try:
            async with asyncio.timeout(self._connect_timeout):
                addresses = tuple(dict.fromkeys(await self._resolve(host, parsed.port or _PORTS[parsed.scheme])))
        # TimeoutError is an OSError; Python raises UnicodeError for a label of 64 characters
        except (OSError, UnicodeError):
            addresses = ()
        if not addresses:
            raise FaultError(FaultCode.INVALID, f"The host of the URL cannot be found: {host}")
        if not all(self._is_permitted(address) for address in addresses):
            raise FaultError(
                FaultCode.INVALID,
                f"The host of the URL is not a public address: {host}. "
                "The gateway calls other addresses only if its setting network.allow lists them.",
            )
        return Pinned(parsed, host, addresses)

    def _is_permitted(self, text: str) -> bool:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return False
        inner = _embedded_ipv4(address)
        return _public(inner) or any(candidate in network for candidate in (address, inner) for network in self._allow)

    async def get(self, url: str, received: Callable[[int], None] = _ignore_progress) -> bytes:
        """Download a URL, and return the body of its 2xx response. `received` is called with the number of bytes as
        they arrive.

        Raises invalid for every failure, because the caller named the URL.
        """
        try:
            async with (
                self._call_deadline(url),
                self._send_request("GET", url, {"Accept": "application/json, */*"}, b"") as response,
            ):
                if not 200 <= response.status_code < 300:
                    raise FaultError(FaultCode.INVALID, f"{url} answers with the status {response.status_code}")
                if content_codings(response.headers.get("content-encoding", "")):
                    raise FaultError(FaultCode.INVALID, f"{url} answers in a content encoding that was not requested")
                return await self._body(url, response, received)
        except OSError as error:
            raise FaultError(FaultCode.INVALID, f"{url} cannot be fetched: {error}") from error

    async def post(self, url: str, headers: Mapping[str, str], body: bytes | LargeJson) -> PostResponse:
        """Post a body to a URL, and return the status of the response. Raises invalid for a URL that may not be called,
        and ConnectionError or TimeoutError if the call fails."""
        async with self._call_deadline(url), self._send_request("POST", url, headers, body) as response:
            return PostResponse(response.status_code, response.headers.get("retry-after"))

    @asynccontextmanager
    async def _call_deadline(self, url: str) -> AsyncGenerator[None]:
        """Limit the duration of a whole call, and convert errors of httpx. Other timeouts do not fire if a server sends
        a byte now and then.

        Raises TimeoutError, ConnectionError, and invalid for illegal headers.
        """
        try:
            async with asyncio.timeout(self._total_timeout):
                yield
        except (TimeoutError, httpx.TimeoutException):
            raise TimeoutError("no answer in time") from None
        except httpx.LocalProtocolError as error:
            if "header" not in str(error):
                raise ConnectionError(str(error)) from error
            raise _invalid_headers() from None  # h11 0.16 quotes the value, which may be a token
        except (httpx.TransportError, httpx.InvalidURL, ssl.SSLError) as error:
            raise ConnectionError(str(error) or type(error).__name__) from error
        except UnicodeError as error:
            raise _invalid_headers() from error

    @asynccontextmanager
    async def _send_request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | LargeJson
    ) -> AsyncGenerator[httpx.Response]:
        pinned = await self.check(url)
        async with self._transport() as transport:
            response = await self._answer(transport, pinned, method, headers, body)
            try:
                yield response
            finally:
                await response.aclose()

    async def _answer(
        self,
        transport: httpx.AsyncHTTPTransport,
        pinned: Pinned,
        method: str,
        headers: Mapping[str, str],
        body: bytes | LargeJson,
    ) -> httpx.Response:
        """Send a request to the pinned addresses in turn, and return the response of the first one that accepts a
        connection."""
        call_headers = {"Host": pinned.url.netloc.decode("ascii"), "Connection": "close", "Accept-Encoding": "identity"}
        if isinstance(body, LargeJson):
            # Otherwise httpx sends chunks, which small servers (such as those of WSGI) do not read.
            call_headers["Content-Length"] = str(await size_of(body))
        caller_headers = {name: value for name, value in headers.items() if name.lower() not in _CALL_HEADERS}
        timeouts = {"connect": self._connect_timeout}
        for number, address in enumerate(pinned.addresses, start=1):
            request = httpx.Request(
                method,
                pinned.url.copy_with(host=address),
                headers=caller_headers | call_headers,
                content=body.pieces() if isinstance(body, LargeJson) else body,
                extensions={"sni_hostname": pinned.host, "timeout": timeouts},
            )
            try:
                return await transport.handle_async_request(request)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if number == len(pinned.addresses):
                    raise
        raise AssertionError("a pinned URL has an address")

    async def _body(self, url: str, response: httpx.Response, received: Callable[[int], None]) -> bytes:
        content = bytearray()
        async for chunk in response.aiter_raw():
            received(len(chunk))
            if len(content) + len(chunk) > self._limit:
                raise FaultError(FaultCode.INVALID, f"{url} answers with more than {self._limit} bytes")
            content += chunk
        return bytes(content)


def _invalid_headers() -> FaultError:
    return FaultError(FaultCode.INVALID, "The headers of the call contain characters that HTTP does not allow")


def _parse_url(url: str) -> httpx.URL:
    """Parse a URL with the parser that the call uses, because a difference between two parsers could be exploited.
    Raises invalid for a URL that may not be called."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, UnicodeError) as error:
        raise FaultError(FaultCode.INVALID, f"Not a URL: {error}") from error
    if parsed.scheme not in _PORTS:
        raise FaultError(FaultCode.INVALID, "The URL must begin with http:// or https://")
    if parsed.userinfo:
        raise FaultError(FaultCode.INVALID, "The URL must not contain a user name or a password")
    if not _HOST.fullmatch(parsed.raw_host.decode("ascii")):
        raise FaultError(FaultCode.INVALID, "The URL names no host that can be called")
    if parsed.port is not None and not 0 < parsed.port < 65536:
        raise FaultError(FaultCode.INVALID, f"The URL has an invalid port: {parsed.port}")
    return parsed


def _embedded_ipv4(address: Address) -> Address:
    """Return the IPv4 address to which an IPv6 address leads, or the address itself if there is none.

    An IPv4 address can be mapped (RFC 4291 §2.5.5.2), or embedded by 6to4 (RFC 3056 §2) or NAT64 (RFC 6052 §2.1).
    """
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address not in _UNICAST:
        return False
    special = address.is_multicast or address.is_reserved or any(address in network for network in _SPECIAL)
    return address.is_global and not special
