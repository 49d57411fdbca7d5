"""Authentication by API keys and tokens, and CORS: the middleware around all protocols.

For each request it determines three things:

- the caller, by its API key or token;
- the base URL under which the caller reaches the gateway, for URLs in responses;
- the agent, if the path begins with `/agent/<name>`.

It answers CORS preflights, refuses requests without a valid credential, and writes one log line per request.
"""

import ipaddress
import logging
import re
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

from litestar import Request, Response

from babelgate.adapters import ADAPTERS
from babelgate.adapters.kit.headers import combine_lines, find_repeated
from babelgate.adapters.kit.server.caller import Authentication, Caller, Issuer
from babelgate.adapters.kit.server.websocket import GOING_AWAY
from babelgate.canonical import Fault, FaultCode, FaultError, Principal
from babelgate.gateway.background import Tasks
from babelgate.gateway.exchange import SCOPE_KEY, enter_exchange
from babelgate.gateway.http.expiry import Expiry
from babelgate.gateway.http.host import Hosts
from babelgate.gateway.http.verifier import ANONYMOUS, Verifier
from babelgate.gateway.settings.model import Settings

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Encode = Callable[[Fault, Request[Any, Any, Any]], Response[Any]]

log = logging.getLogger("babelgate.request")

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
_CLOSING: Final = Tasks()
"""Tasks that close WebSockets."""
_IDS: Final = {b"babelgate-thread": "thread", b"babelgate-task": "task", b"babelgate-run": "run"}


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
    ) -> None:
        self.app = app
        """The ASGI application that the middleware wraps."""
        self._default = default_agent
        self._knows = knows
        self._encode = encode
        self._banner = lambda: f"{version}; instance={instance()}".encode()
        self._verifier = verifier or Verifier(settings)
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
            send = _Handshake(send, scope)
        enter_exchange(scope)
        headers = combine_lines(scope["headers"])
        answer = _ResponseWrapper(send, scope, self._banner(), self._cross_origin(headers))
        try:
            await self._pass(scope, headers, receive, answer)
        finally:
            answer.end()

    async def _pass(
        self, scope: Scope, headers: Mapping[bytes, bytes], receive: Any, answer: "_ResponseWrapper"
    ) -> None:
        inner: Scope = {**scope, "state": dict(scope.get("state") or {})}
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
            if match is not None and (inner["path"].startswith("/agent/") or not self._knows(agent or "")):
                raise FaultError(FaultCode.NOT_FOUND, f"There is no agent {match[1][:100]!r} here.")
        except FaultError as error:
            inner = {**inner, "type": "http", "method": answer.method}
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


async def _preflight(answer: "_ResponseWrapper", headers: Mapping[bytes, bytes], *, is_granted: bool) -> None:
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


def _with_head(allow: bytes) -> bytes:
    methods = {method.strip() for method in allow.split(b",")} - {b"websocket"}  # the framework lists it as a method
    return b", ".join(sorted(methods | {b"HEAD", b"OPTIONS"} if b"GET" in methods else methods | {b"OPTIONS"}))


class _Handshake:
    """ASGI `send` of a WebSocket handshake. It converts an HTTP response into a rejection of the handshake."""

    def __init__(self, send: Any, scope: Scope) -> None:
        self._send = send
        self._answers = "websocket.http.response" in (scope.get("extensions") or {})

    async def __call__(self, message: Message) -> None:
        if not message["type"].startswith("http."):
            await self._send(message)
        elif self._answers:
            await self._send({**message, "type": f"websocket.{message['type']}"})
        elif message["type"] == "http.response.start":
            await self._send({"type": "websocket.close", "code": 1008})


class _ResponseWrapper:
    """ASGI `send` that adds the headers of all responses, and collects the data of the log line."""

    def __init__(self, send: Any, scope: Scope, banner: bytes, cross_origin: list[tuple[bytes, bytes]]) -> None:
        self.owner = ""
        self.expires_at: float | None = None
        """Time at which the caller's credential expires, in seconds since 1970, UTC."""
        self._send = send
        self._hang_up: Callable[[], None] | None = scope.get(SCOPE_KEY)
        self._expiry: Expiry | None = None
        self._began = time.perf_counter()
        self._status = 0
        self._ids: dict[str, str] = {}
        self._request_id = uuid4().hex[:16] if log.isEnabledFor(logging.INFO) else ""
        self._headers = [(b"babelgate", banner), *cross_origin]
        self.method: str = scope.get("method", "GET")  # a WebSocket handshake is a GET
        self._bodiless = self.method == "HEAD"
        # Percent-encoded, as sent: otherwise a line feed in a path could forge a log line.
        self._path = (scope.get("raw_path") or scope["path"].encode()).decode("ascii", "backslashreplace")

    async def __call__(self, message: Message) -> None:
        if message["type"] == "websocket.accept":
            self._status = 101
            await self._send({**message, "headers": [*message.get("headers", ()), *self._response_headers()]})
            if self.expires_at is not None:
                self._expiry = Expiry(self.expires_at, self._close_socket)
            return
        if message["type"] != "http.response.start":
            if message["type"] == "websocket.close" and not self._status:
                self._status = 403
            if not self._bodiless:
                await self._send(message)
            return
        status, headers = message["status"], list(message.get("headers", ()))
        if status == 405:
            headers = [(name, _with_head(value) if name.lower() == b"allow" else value) for name, value in headers]
            if self.method == "OPTIONS":
                self._bodiless, status = True, 204
                headers = [(name, value) for name, value in headers if name.lower() == b"allow"]
        self._status = status
        headers += self._response_headers()
        for name, value in headers:
            if name in _IDS:
                self._ids[_IDS[name]] = value.decode("latin-1")
        await self._send({**message, "status": status, "headers": headers})
        if self.expires_at is not None and self._hang_up is not None and _is_stream(headers):
            self._expiry = Expiry(self.expires_at, self._hang_up)
        if self._bodiless:  # a stream would otherwise stay open until the run ends
            await self._send({"type": "http.response.body", "body": b""})

    def _response_headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers that every response has."""
        return [*self._headers, (b"x-request-id", self._request_id.encode())] if self._request_id else self._headers

    def _close_socket(self) -> None:
        close = {"type": "websocket.close", "code": GOING_AWAY, "reason": "The credential has expired."}
        _CLOSING.spawn(self._close(close), "close of an expired WebSocket")

    async def _close(self, message: Message) -> None:
        with suppress(OSError, RuntimeError):  # the socket is closed
            await self._send(message)

    def end(self) -> None:
        """Stop the timer of the response, and write its log line."""
        if self._expiry is not None:
            self._expiry.stop()
        self.log()

    def log(self) -> None:
        """Write the log line of the request: no body, no query (it may contain a secret), no headers except our ids."""
        if self._request_id:
            milliseconds = (time.perf_counter() - self._began) * 1000
            ids = "".join(f" {name}={value}" for name, value in self._ids.items())
            log.info(
                "%s %s %s %d %.1fms owner=%s%s",
                self._request_id,
                self.method,
                self._path,
                self._status,
                milliseconds,
                self.owner or "-",
                ids,
            )


def _is_stream(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Return True for a stream of events. Its client reconnects if the connection is lost."""
    return any(name.lower() == b"content-type" and value.startswith(b"text/event-stream") for name, value in headers)


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
