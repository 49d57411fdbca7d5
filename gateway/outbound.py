"""SSRF guard: calls to addresses that callers name, such as webhooks, and messages of sessions on other servers.

Whoever names a URL must not reach through the gateway what only the gateway can reach. So a host name is resolved once,
every address it leads to is judged, and the connection is made to a judged address: a name that leads elsewhere a
moment later changes nothing. No redirect is followed, no proxy of the environment is asked, no cookie is kept.
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
"""(host, port) → addresses. Raises OSError for a name that leads nowhere."""

_PORTS: Final = {"http": 80, "https": 443}
_HOST: Final = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")
"""Names in their ASCII form and addresses; no zone (`fe80::1%eth0`) and nothing that is percent-encoded."""

_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
"""All that IANA gives out as global IPv6 unicast; the rest of the space is special, one way or another."""
_SPECIAL: Final = (
    # Not global by IANA's registries of special-purpose addresses; some versions of `ipaddress` take them for global.
    ipaddress.IPv4Network("192.0.0.0/24"),
    ipaddress.IPv4Network("192.88.99.0/24"),
    ipaddress.IPv6Network("2001::/23"),
    ipaddress.IPv6Network("3fff::/20"),
)
_CALL_HEADERS: Final = frozenset({"host", "connection", "accept-encoding", "content-length", "transfer-encoding"})
"""Headers that are the call's own, whatever a caller wants to send along."""
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class Pinned:
    """A URL that may be called, and where: every one of its addresses passed."""

    url: httpx.URL
    host: str
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PostResponse:
    """Response to a POST, whose body is not read."""

    status: int
    retry_after: str | None
    """The header `Retry-After`, as the receiver wrote it."""


async def lookup(host: str, port: int) -> Sequence[str]:
    """What the system's resolver says; it also knows the spellings of an address that look like none (`127.1`)."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=1)  # SOCK_STREAM: each address once
    return [str(entry[4][0]) for entry in found]


def _nothing(_: int) -> None:
    """Nobody counts."""


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
        """`allow`: networks that are not public and may be called all the same. `limit`: bytes of an answer."""
        self._allow = tuple(ipaddress.ip_network(network, strict=False) for network in allow)
        self._connect_timeout = connect_timeout
        self._total_timeout = total_timeout
        self._limit = limit
        self._resolve = resolve
        self._tls = tls

    def _transport(self) -> httpx.AsyncHTTPTransport:
        """Of one call: a connection is not used twice, because a pool knows its connections by address, and one made
        for a host must not carry the requests of another. And httpcore 1.0.9 forgets to close a connection whose call
        is cancelled while it takes a lock; closing all of the pool does."""
        if self._tls is None:
            self._tls = httpx.create_ssl_context()  # at the first call: certificates take time to load
        return httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False)

    async def check(self, url: str) -> Pinned:
        """Resolve the host and judge every address. Raises invalid."""
        parsed = _parse_url(url)
        host = parsed.raw_host.decode("ascii")
        try:
            async with asyncio.timeout(self._connect_timeout):
                addresses = tuple(dict.fromkeys(await self._resolve(host, parsed.port or _PORTS[parsed.scheme])))
        except (OSError, UnicodeError):  # TimeoutError is an OSError; a label of 64 characters is no Unicode to Python
            addresses = ()
        if not addresses:
            raise FaultError(FaultCode.INVALID, f"The host of the URL cannot be found: {host}")
        if not all(self._is_permitted(address) for address in addresses):
            raise FaultError(
                FaultCode.INVALID,
                f"The host of the URL is not a public address: {host}. "
                "The gateway calls others only where its setting network.allow names them.",
            )
        return Pinned(parsed, host, addresses)

    def _is_permitted(self, text: str) -> bool:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return False
        inner = _embedded_ipv4(address)
        return _public(inner) or any(candidate in network for candidate in (address, inner) for network in self._allow)

    async def get(self, url: str, received: Callable[[int], None] = _nothing) -> bytes:
        """The body of a 2xx answer. `received` is told of its bytes as they come. Raises invalid, for whatever else
        comes of it: the caller named the URL."""
        try:
            async with (
                self._call_deadline(url),
                self._send_request("GET", url, {"Accept": "application/json, */*"}, b"") as response,
            ):
                if not 200 <= response.status_code < 300:
                    raise FaultError(FaultCode.INVALID, f"{url} answers with the status {response.status_code}")
                if content_codings(response.headers.get("content-encoding", "")):
                    raise FaultError(FaultCode.INVALID, f"{url} answers in a content encoding that was not asked for")
                return await self._body(url, response, received)
        except OSError as error:
            raise FaultError(FaultCode.INVALID, f"{url} cannot be fetched: {error}") from error

    async def post(self, url: str, headers: Mapping[str, str], body: bytes | LargeJson) -> PostResponse:
        """Post a body, and return the response without its body. Raises invalid for a URL that may not be called, and
        ConnectionError or TimeoutError where it cannot be."""
        async with self._call_deadline(url), self._send_request("POST", url, headers, body) as response:
            return PostResponse(response.status_code, response.headers.get("retry-after"))

    @asynccontextmanager
    async def _call_deadline(self, url: str) -> AsyncGenerator[None]:
        """The bound on all of a call: a server that sends a byte now and then keeps every other timeout from firing."""
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
        """From the first address that can be connected to."""
        own = {"Host": pinned.url.netloc.decode("ascii"), "Connection": "close", "Accept-Encoding": "identity"}
        if isinstance(body, LargeJson):
            # Otherwise httpx sends chunks, which small servers do not read (those of WSGI, for one).
            own["Content-Length"] = str(await size_of(body))
        given = {name: value for name, value in headers.items() if name.lower() not in _CALL_HEADERS}
        timeouts = {"connect": self._connect_timeout}
        for number, address in enumerate(pinned.addresses, start=1):
            request = httpx.Request(
                method,
                pinned.url.copy_with(host=address),
                headers=given | own,
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
        found = bytearray()
        async for chunk in response.aiter_raw():
            received(len(chunk))
            if len(found) + len(chunk) > self._limit:
                raise FaultError(FaultCode.INVALID, f"{url} answers with more than {self._limit} bytes")
            found += chunk
        return bytes(found)


def _invalid_headers() -> FaultError:
    return FaultError(FaultCode.INVALID, "The headers of the call contain characters that HTTP does not allow")


def _parse_url(url: str) -> httpx.URL:
    """The URL, read by the same parser that the call is made with: two that differ are a way in."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, UnicodeError) as error:
        raise FaultError(FaultCode.INVALID, f"Not a URL: {error}") from error
    if parsed.scheme not in _PORTS:
        raise FaultError(FaultCode.INVALID, "The URL must begin with http:// or https://")
    if parsed.userinfo:
        raise FaultError(FaultCode.INVALID, "The URL must not hold a user name or a password")
    if not _HOST.fullmatch(parsed.raw_host.decode("ascii")):
        raise FaultError(FaultCode.INVALID, "The URL names no host that can be called")
    if parsed.port is not None and not 0 < parsed.port < 65536:
        raise FaultError(FaultCode.INVALID, f"The URL has an invalid port: {parsed.port}")
    return parsed


def _embedded_ipv4(address: Address) -> Address:
    """The IPv4 address that an IPv6 one leads to: mapped (RFC 4291 §2.5.5.2), 6to4 (RFC 3056 §2), NAT64 (RFC 6052
    §2.1)."""
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
