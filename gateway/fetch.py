"""Calls to addresses that callers name: webhooks, and messages that a session keeps elsewhere.

Who can name an address can make the gateway knock at doors that only it can reach. So a host is resolved once, each of
its addresses must be public or allowed by the settings, the connection goes to an address that was checked and no other
(a second look at the name could give another one), and redirects are not followed.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

import httpx

from canonical.fault import FaultCode, FaultError

__all__ = ("Fetcher", "Pinned", "Resolver")

IPAddress = IPv4Address | IPv6Address
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""(host, port) → the addresses of a host, as text. Raises OSError."""

DOCUMENT: Final = 1024 * 1024
"""Bytes of a document that is fetched."""
CONNECT: Final = 5.0
TOTAL: Final = 30.0
"""Seconds until a connection stands, and until a whole call is over."""

_EMBEDDED: Final = (IPv6Network("64:ff9b::/96"), IPv6Network("::/96"))
"""IPv6 addresses that end in the IPv4 address that is meant: NAT64 (RFC 6052), and the old "compatible" form."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """A URL and the addresses that were checked: the only ones to connect to."""

    url: httpx.URL
    addresses: tuple[str, ...]


async def resolve(host: str, port: int) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Fetcher:
    def __init__(
        self,
        allow: Sequence[IPv4Network | IPv6Network] = (),
        *,
        agent: str = "Babelgate",
        resolver: Resolver = resolve,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`allow` = networks that may be reached though they are not public; `agent` = the User-Agent."""
        self._allow = tuple(allow)
        self._agent = agent
        self._resolve = resolver
        self._tls = tls
        self._client: httpx.AsyncClient | None = None

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def check(self, url: str) -> Pinned:
        """Raises invalid for a URL that must not be called, or cannot be."""
        try:
            parsed = httpx.URL(url)
        except (httpx.InvalidURL, ValueError) as error:
            raise FaultError(FaultCode.INVALID, "url: it is not a URL") from error
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise FaultError(FaultCode.INVALID, "url: only http:// and https:// URLs are called")
        if parsed.userinfo:
            raise FaultError(FaultCode.INVALID, "url: a user or password in a URL is not accepted")
        host = parsed.raw_host.decode("ascii")
        try:
            async with asyncio.timeout(CONNECT):
                addresses = await self._resolve(host, parsed.port or (443 if parsed.scheme == "https" else 80))
        except (OSError, UnicodeError) as error:
            raise FaultError(FaultCode.INVALID, f"url: the host {host} cannot be resolved") from error
        if not addresses or not all(self._allowed(address) for address in addresses):
            raise FaultError(FaultCode.INVALID, f"url: the host {host} is not public, and the settings do not allow it")
        return Pinned(parsed, tuple(addresses))

    async def get(self, url: str, limit: int = DOCUMENT) -> bytes:
        """A small document. Raises invalid, whatever goes wrong: it is the caller who named the URL."""
        pinned = await self.check(url)
        host = pinned.url.host
        try:
            async with asyncio.timeout(TOTAL), self._opened("GET", pinned, {}, None) as response:
                if response.status_code != 200:
                    raise FaultError(FaultCode.INVALID, f"url: {host} answered {response.status_code}")
                if "content-encoding" in response.headers:  # a few bytes could unpack to gigabytes
                    raise FaultError(FaultCode.INVALID, f"url: {host} answered compressed, which was not asked for")
                chunks: list[bytes] = []
                size = 0
                async for chunk in response.aiter_raw():
                    size += len(chunk)
                    if size > limit:
                        raise FaultError(FaultCode.INVALID, f"url: {host} answered with more than {limit} bytes")
                    chunks.append(chunk)
                return b"".join(chunks)
        except TimeoutError as error:
            raise FaultError(FaultCode.INVALID, f"url: {host} did not answer in time") from error
        except OSError as error:
            raise FaultError(FaultCode.INVALID, f"url: {host} cannot be reached") from error

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        """The status of the answer, of which nothing more is read. Raises invalid for a URL that must not be called,
        and OSError where no answer came."""
        pinned = await self.check(url)
        async with asyncio.timeout(TOTAL), self._opened("POST", pinned, headers, body) as response:
            return response.status_code

    @asynccontextmanager
    async def _opened(
        self, method: str, pinned: Pinned, headers: Mapping[str, str], body: bytes | None
    ) -> AsyncGenerator[httpx.Response]:
        """Raises OSError for whatever the network or the other side does."""
        try:
            response = await self._send(method, pinned, headers, body)
            try:
                yield response
            finally:
                await response.aclose()
        except httpx.TimeoutException as error:
            raise TimeoutError(str(error)) from error
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            raise ConnectionError(f"{type(error).__name__}: {error}") from error

    async def _send(self, method: str, pinned: Pinned, given: Mapping[str, str], body: bytes | None) -> httpx.Response:
        headers = httpx.Headers({"User-Agent": self._agent, "Accept-Encoding": "identity"})
        headers.update(given)
        headers["Host"] = pinned.url.netloc.decode("ascii")
        # Certificates are checked for the name, though the connection goes to a number.
        extensions = {"sni_hostname": pinned.url.raw_host.decode("ascii")}
        error: httpx.ConnectError | httpx.ConnectTimeout | None = None
        for address in pinned.addresses:
            url = pinned.url.copy_with(host=address)
            request = self._http.build_request(method, url, headers=headers, content=body, extensions=extensions)
            try:
                return await self._http.send(request, stream=True)
            except (httpx.ConnectError, httpx.ConnectTimeout) as failed:
                error = failed
        assert error is not None
        raise error

    @property
    def _http(self) -> httpx.AsyncClient:
        if self._client is None:
            # No connection is kept: hosts may share an address, and one's connection must not carry the other's call.
            # No proxies from the environment: they would resolve the name once more.
            self._client = httpx.AsyncClient(
                limits=httpx.Limits(max_connections=100, max_keepalive_connections=0),
                timeout=httpx.Timeout(TOTAL, connect=CONNECT),
                verify=self._tls or httpx.create_ssl_context(),
                trust_env=False,
                follow_redirects=False,
            )
        return self._client

    def _allowed(self, text: str) -> bool:
        try:
            addresses = list(_meant(ip_address(text)))
        except ValueError:
            return False
        if any(address in network for address in addresses for network in self._allow):
            return True
        return all(_public(address) for address in addresses)


def _meant(address: IPAddress) -> Iterator[IPAddress]:
    """The address, and the one that is wrapped in it."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            yield address.ipv4_mapped
            return
        if address.sixtofour is not None:
            yield address.sixtofour
        if any(address in network for network in _EMBEDDED):
            yield IPv4Address(int(address) & 0xFFFFFFFF)
    yield address


def _public(address: IPAddress) -> bool:
    if address.is_multicast or address.is_unspecified or address.is_loopback or address.is_link_local:
        return False
    if isinstance(address, IPv6Address) and address.is_site_local:
        return False
    return address.is_global
