"""Authentication by API keys and tokens, and CORS: the middleware around all protocols.

For each request it determines three things:

- the caller, by its API key or token;
- the base URL under which the caller reaches the gateway, for URLs in responses;
- the agent, if the path begins with `/agent/<name>`.

It answers CORS preflights, refuses requests without a valid credential, and writes one log line per request.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from litestar import Request, Response

from babelgate.adapters import ADAPTERS
from babelgate.adapters.kit.headers import combine_lines, find_repeated
from babelgate.adapters.kit.server.caller import Authentication, Caller, Issuer
from babelgate.canonical import Fault, FaultCode, FaultError, Principal
from babelgate.gateway.exchange import enter_exchange
from babelgate.gateway.http.host import Hosts
from babelgate.gateway.http.response import Handshake, RequestReports, ResponseWrapper, Scope
from babelgate.gateway.http.verifier import ANONYMOUS, Verifier
from babelgate.gateway.observe import NO_OBSERVER, GatewayObserver
from babelgate.gateway.settings.model import Settings

Encode = Callable[[Fault, Request[Any, Any, Any]], Response[Any]]

_OPEN: Final = tuple(
    path.split("/") for path in ("/healthz", "/readyz", *(path for adapter in ADAPTERS for path in adapter.open_paths))
)
"""Paths that need no credential, split into segments."""
_LOGIN: Final = tuple(path.split("/") for adapter in ADAPTERS for path in adapter.login_paths)
"""Paths that need no credential if the gateway accepts tokens."""
_ORIGIN_CHECKED: Final = tuple(prefix for adapter in ADAPTERS if adapter.checks_origin for prefix in adapter.prefixes)
_LOOPBACK: Final = re.compile(r"^https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$")
_LOOPBACK_HOST: Final = re.compile(r"^(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$", re.IGNORECASE)
_PREFIX: Final = re.compile(r"(/[\w.-]+)*")
_TYPE_LENGTH: Final = 1024
"""Maximum length of a Content-Type, in bytes.

Real ones are less than a tenth as long, and the time of their parsers grows with the square of the length.
"""
_EXPOSED: Final = (
    "Babelgate, Babelgate-Loss, Babelgate-Run, Babelgate-Task, Babelgate-Thread, Content-Location, ETag, Location, "
    "RateLimit, RateLimit-Policy, Retry-After, Run-ID, WWW-Authenticate, X-Pagination-Next, X-Pagination-Total, "
    "X-Request-Id"
)
_STAND_INS: Final = {"HEAD": "GET", "OPTIONS": "TRACE"}
"""Method by which the application handles another method.

HEAD is a GET whose body is dropped. No path has TRACE, so the 405 response to it lists all methods of the path. The
framework's own response to OPTIONS lists the methods of only one handler.
"""


class GatewayMiddleware:
    """ASGI middleware that authenticates callers and adds the headers of all responses."""

    def __init__(
        self,
        app: Any,
        settings: Settings,
        *,
        default_agent: str | None,
        knows: Callable[[str], bool],
        encode: Encode,
        version: str,
        instance: Callable[[], str],
        verifier: Verifier | None = None,
        observer: GatewayObserver = NO_OBSERVER,
    ) -> None:
        self.app = app
        """The ASGI application that the middleware wraps."""
        self._default = default_agent
        self._knows = knows
        self._encode = encode
        self._banner = lambda: f"{version}; instance={instance()}".encode()
        self._verifier = verifier or Verifier(settings)
        self._reports = RequestReports(observer, has_context=settings.log_format == "json")
        self._public_url = settings.public_url.rstrip("/") if settings.public_url else None
        self._proxies = settings.trusted_proxies
        self._origins = frozenset(settings.cors)
        self._public_origin = "/".join(self._public_url.split("/")[:3]).lower() if self._public_url else None
        self._hosts = Hosts.of(settings)
        self._authentication = _authentication_of(settings)
        self._open_paths = [*_OPEN, *(_LOGIN if settings.issuers else ())]
        self._shared_state = {
            "body_limit": settings.limits.body,
            "values_limit": settings.limits.values,
            "has_siblings": settings.workers > 1,
            "authentication": self._authentication,
        }
        self._forwarded = frozenset(name for agent in settings.agents.values() for name in agent.forward)

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            await self._verifier.aclose()
            return
        if scope["type"] == "websocket":
            send = Handshake(send, scope)
        enter_exchange(scope)
        headers = combine_lines(scope["headers"])
        answer = ResponseWrapper(send, scope, self._banner(), self._cross_origin(headers), self._reports)
        self._reports.begin(answer, headers)
        try:
            await self._pass(scope, headers, receive, answer)
        finally:
            self._reports.end(answer, headers)
            answer.end()

    async def _pass(self, scope: Scope, headers: Mapping[bytes, bytes], receive: Any, answer: ResponseWrapper) -> None:
        inner: Scope = {**scope, "state": dict(scope.get("state") or {})}
        answer.scope = inner
        inner["state"] |= self._shared_state
        try:
            if len(headers) < len(scope["headers"]) and (repeated := find_repeated(scope["headers"])) is not None:
                raise FaultError(FaultCode.INVALID, f"The header {repeated} has two different values. Send it once.")
            base_url = self._base_url(scope, headers)
            agent = self._default
            match = re.match(r"^/agent/([^/]+)(/.*)?$", scope["path"])
            if match is not None:
                agent, path = match.group(1), match.group(2) or "/"
                inner["path"] = path
                inner["raw_path"] = path.encode()
                base_url = f"{base_url}/agent/{agent}"
            inner["state"]["base_url"] = base_url
            _check_type(scope)
            self._check_host(scope, headers)
            if answer.method == "OPTIONS" and b"access-control-request-method" in headers:
                await _preflight(answer, headers, is_granted=self._is_granted(headers))
                return
            self._check_origin(scope, inner["path"], headers)
            principal = await self._principal(inner["path"], headers)
            answer.owner = principal.owner
            answer.expires_at = principal.expires_at
            self._reports.note_caller(answer, principal, agent if match is not None else None, headers)
            if match is not None and (inner["path"].startswith("/agent/") or not self._knows(agent or "")):
                raise FaultError(FaultCode.NOT_FOUND, f"There is no agent {match[1][:100]!r} here.")
        except FaultError as error:
            inner = {**inner, "type": "http", "method": answer.method}
            answer.scope = inner
            request: Request[Any, Any, Any] = Request(inner)  # type: ignore[arg-type]
            response = self._encode(error.fault, request)
            await response.to_asgi_response(None, request)(inner, receive, answer)  # type: ignore[arg-type]
            return
        sent = {name: headers[name.encode()].decode("latin-1") for name in self._forwarded if name.encode() in headers}
        reads_only = answer.method == "HEAD" or self._is_foreign(headers)
        inner["state"]["caller"] = Caller(
            principal, base_url, agent, sent, authentication=self._authentication, reads_only=reads_only
        )
        if scope["type"] == "http":
            inner["method"] = _STAND_INS.get(answer.method, answer.method)
        await self.app(inner, receive, answer)

    async def _principal(self, path: str, headers: Mapping[bytes, bytes]) -> Principal:
        """Return the principal of the request's credential. Raises unauthenticated or unavailable."""
        try:
            return await self._verifier.verify(headers)
        except FaultError:
            if _is_open(path, self._open_paths):
                return ANONYMOUS
            raise

    def _check_host(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        """Raise forbidden if the gateway does not accept the host names of the request.

        A host that a trusted proxy forwards is checked, too: the proxy may pass on a header of the caller.
        """
        local = (scope.get("server") or (None,))[0]
        for raw_host in self._called_hosts(scope, headers):
            host = raw_host.decode("latin-1")
            if not self._hosts.is_permitted(host, local):
                raise FaultError(
                    FaultCode.FORBIDDEN,
                    f"Unknown host {host[:100]!r}: add it to hosts in the settings, or set public_url.",
                )

    def _called_hosts(self, scope: Scope, headers: Mapping[bytes, bytes]) -> list[bytes]:
        """Return the host names of the request, with ports: of Host, and of X-Forwarded-Host from a trusted proxy."""
        hosts = [headers.get(b"host", b"")]
        if self._is_proxied(scope):
            hosts.append(headers.get(b"x-forwarded-host", b"").split(b",")[0].strip())
        return hosts

    def _is_foreign(self, headers: Mapping[bytes, bytes]) -> bool:
        """Return True if the request may come from a page that is not allowed to call the gateway.

        A GET for an image or for a new window has no Origin. But browsers send whether it comes from the same origin
        (Fetch Metadata §2.3).
        """
        if self._verifier.is_required or b"origin" in headers:
            return False
        return headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin")

    def _check_origin(self, scope: Scope, path: str, headers: Mapping[bytes, bytes]) -> None:
        """Raise unauthenticated, with the `reason` `origin`, if a page of this origin may not call the gateway.

        Without API keys, every page that is open in a browser on this machine could call the gateway, because a POST of
        plain text needs no preflight. But browsers send the page's origin.

        With API keys, a page has no key to send. The origin is checked only for protocols that require it. There, pages
        from the host that they call are allowed, too.
        """
        origin = headers.get(b"origin")
        if origin is None or self._is_permitted(origin.decode("latin-1")):
            return
        if self._verifier.is_required and not (_checks_origin(path) and self._is_elsewhere(scope, headers, origin)):
            return
        raise FaultError(
            FaultCode.UNAUTHENTICATED,
            "Pages of this origin may not call the gateway: add it to cors in the settings.",
            reason="origin",
        )

    def _is_elsewhere(self, scope: Scope, headers: Mapping[bytes, bytes], origin: bytes) -> bool:
        """Return True if an origin has another host than the request."""
        host = origin.partition(b"://")[2].lower()
        return not host or host not in (called.lower() for called in self._called_hosts(scope, headers))

    def _base_url(self, scope: Scope, headers: Mapping[bytes, bytes]) -> str:
        """Return the base URL under which the caller reaches the gateway.

        The Host header is trusted only if it names loopback, or comes through a trusted proxy: responses must not
        contain addresses that an untrusted client chose.
        """
        if self._public_url is not None:
            return self._public_url
        scheme = scope.get("scheme", "http")
        host = headers.get(b"host", b"").decode("latin-1")
        if self._is_proxied(scope):
            proto = headers.get(b"x-forwarded-proto", scheme.encode()).decode("latin-1").split(",")[0].strip()
            forwarded = headers.get(b"x-forwarded-host", host.encode("latin-1")).decode("latin-1").split(",")[0].strip()
            prefix = headers.get(b"x-forwarded-prefix", b"").decode("latin-1").rstrip("/")
            if proto in ("http", "https") and re.fullmatch(r"[\w.\-\[\]:]+", forwarded):
                return f"{proto}://{forwarded}{prefix if _PREFIX.fullmatch(prefix) else ''}"
        if _LOOPBACK_HOST.match(host):
            return f"{scheme}://{host}"
        address, port = scope.get("server") or ("127.0.0.1", None)
        return f"{scheme}://{f'[{address}]' if ':' in address else address}{f':{port}' if port else ''}"

    def _is_proxied(self, scope: Scope) -> bool:
        client = scope.get("client")
        return bool(self._proxies and client and _within(client[0], self._proxies))

    def _cross_origin(self, headers: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
        # Every response varies by Origin. Otherwise a cache could serve a page one without the CORS headers.
        if not self._is_granted(headers):
            return [(b"vary", b"Origin")]
        return [
            (b"access-control-allow-origin", headers[b"origin"]),
            (b"access-control-expose-headers", _EXPOSED.encode()),
            (b"vary", b"Origin"),
        ]

    def _is_granted(self, headers: Mapping[bytes, bytes]) -> bool:
        origin = headers.get(b"origin")
        return origin is not None and self._is_permitted(origin.decode("latin-1"))

    def _is_permitted(self, origin: str) -> bool:
        if origin == self._public_origin:
            return True
        if self._origins:
            return origin in self._origins or "*" in self._origins
        return _LOOPBACK.fullmatch(origin) is not None


def _check_type(scope: Scope) -> None:
    if any(name == b"content-type" and len(value) > _TYPE_LENGTH for name, value in scope["headers"]):
        raise FaultError(FaultCode.INVALID, f"The Content-Type is longer than {_TYPE_LENGTH} bytes.")


def _within(address: str, networks: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):  # a dual-stack socket reports 10.0.0.1 as ::ffff:10.0.0.1
        parsed = parsed.ipv4_mapped or parsed
    return any(parsed in network for network in networks)


async def _preflight(answer: ResponseWrapper, headers: Mapping[bytes, bytes], *, is_granted: bool) -> None:
    grants: list[tuple[bytes, bytes]] = [
        (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE, OPTIONS"),
        (b"access-control-allow-headers", headers.get(b"access-control-request-headers", b"*")),
        (b"access-control-max-age", b"600"),
    ]
    # Chromium sends this before a public page reaches a private address (WICG, Private Network Access, section 3.1).
    if is_granted and headers.get(b"access-control-request-private-network") == b"true":
        grants.append((b"access-control-allow-private-network", b"true"))
    await answer({"type": "http.response.start", "status": 204, "headers": grants})
    await answer({"type": "http.response.body", "body": b""})


def _checks_origin(path: str) -> bool:
    return any(path == prefix or path.startswith(f"{prefix}/") for prefix in _ORIGIN_CHECKED)


def _authentication_of(settings: Settings) -> Authentication:
    issuers = [Issuer(name, each.issuer, each.discovery_url, each.audience) for name, each in settings.issuers.items()]
    return Authentication(accepts_keys=bool(settings.keys), issuers=tuple(issuers))


def _is_open(path: str, open_paths: Sequence[Sequence[str]]) -> bool:
    """Return True if a path needs no credential. `{agent}` in `open_paths` matches any name."""
    segments = path.split("/")
    return any(
        len(segments) == len(open_path)
        and all(part == sent or (part == "{agent}" and sent) for part, sent in zip(open_path, segments, strict=True))
        for open_path in open_paths
    )
