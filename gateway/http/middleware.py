"""Authentication middleware (API keys) and CORS: what every request passes before it reaches a protocol, and every
answer on its way out.

It says who calls (by API key), how the caller sees the gateway (the base URL that answers may name), and which agent is
alone behind `/agent/<name>`. It answers CORS preflights, refuses what has no key, and writes one log line a request.
"""

import hmac
import ipaddress
import logging
import re
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, Final
from uuid import uuid4

from litestar import Request, Response

from babelgate.adapters import ADAPTERS
from babelgate.adapters.kit.headers import combine_lines, find_repeated
from babelgate.adapters.kit.server.caller import Caller
from babelgate.canonical import Fault, FaultCode, FaultError
from babelgate.gateway.exchange import enter_exchange
from babelgate.gateway.http.host import Hosts
from babelgate.gateway.settings.model import Settings

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Encode = Callable[[Fault, Request[Any, Any, Any]], Response[Any]]

log = logging.getLogger("babelgate.request")

_OPEN: Final = tuple(
    path.split("/") for path in ("/healthz", "/readyz", *(path for adapter in ADAPTERS for path in adapter.open_paths))
)
"""Answered without a key."""
_ORIGIN_CHECKED: Final = tuple(prefix for adapter in ADAPTERS if adapter.checks_origin for prefix in adapter.prefixes)
_LOOPBACK: Final = re.compile(r"^https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$")
_LOOPBACK_HOST: Final = re.compile(r"^(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$", re.IGNORECASE)
_PREFIX: Final = re.compile(r"(/[\w.-]+)*")
_TYPE_LENGTH: Final = 1024
"""Bytes of a Content-Type. Nobody's is a tenth as long, and parsers of it take a time that grows with its square."""
_EXPOSED: Final = (
    "Babelgate, Babelgate-Loss, Babelgate-Run, Babelgate-Task, Babelgate-Thread, Content-Location, ETag, Location, "
    "Run-ID, X-Pagination-Next, X-Pagination-Total, X-Request-Id"
)
_STAND_INS: Final = {"HEAD": "GET", "OPTIONS": "TRACE"}
"""HEAD is a GET whose body is kept back. No path has TRACE: the 405 to it lists a path's methods, where the framework's
own answer to OPTIONS lists those of one of the path's handlers."""
_IDS: Final = {b"babelgate-thread": "thread", b"babelgate-task": "task", b"babelgate-run": "run"}


class GatewayMiddleware:
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
    ) -> None:
        self.app = app
        """The ASGI application that the middleware wraps."""
        self._default = default_agent
        self._knows = knows
        self._encode = encode
        self._banner = lambda: f"{version}; instance={instance()}".encode()
        self._keys = [(owner, key.get_secret_value().encode()) for owner, key in settings.keys.items()]
        self._public_url = settings.public_url.rstrip("/") if settings.public_url else None
        self._proxies = settings.trusted_proxies
        self._origins = frozenset(settings.cors)
        self._public_origin = "/".join(self._public_url.split("/")[:3]).lower() if self._public_url else None
        self._hosts = Hosts.of(settings)
        self._known = {
            "body_limit": settings.limits.body,
            "values_limit": settings.limits.values,
            "has_siblings": settings.workers > 1,
        }
        self._forwarded = frozenset(name for each in settings.agents.values() for name in each.forward)

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            send = _Handshake(send, scope)
        enter_exchange(scope)
        headers = combine_lines(scope["headers"])
        answer = _ResponseWrapper(send, scope, self._banner(), self._cross_origin(headers))
        try:
            await self._pass(scope, headers, receive, answer)
        finally:
            answer.log()

    async def _pass(
        self, scope: Scope, headers: Mapping[bytes, bytes], receive: Any, answer: "_ResponseWrapper"
    ) -> None:
        inner: Scope = {**scope, "state": dict(scope.get("state") or {})}
        inner["state"] |= self._known
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
            _check_type(scope)
            self._check_host(scope, headers)
            if answer.method == "OPTIONS" and b"access-control-request-method" in headers:
                await _preflight(answer, headers, is_granted=self._is_granted(headers))
                return
            self._check_origin(scope, inner["path"], headers)
            answer.owner = owner = self._owner(inner["path"], headers)
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
        inner["state"]["caller"] = Caller(owner, base_url, agent, sent, keyed=bool(self._keys), reads_only=reads_only)
        if scope["type"] == "http":
            inner["method"] = _STAND_INS.get(answer.method, answer.method)
        await self.app(inner, receive, answer)

    def _owner(self, path: str, headers: Mapping[bytes, bytes]) -> str:
        """Whose key it is. Raises unauthenticated."""
        if not self._keys:
            return "default"
        given = headers.get(b"x-api-key", b"")
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"bearer":
            given = token.strip()
        found = ""
        for owner, key in self._keys:  # every key is compared, so that time tells nothing
            if hmac.compare_digest(given, key):
                found = owner
        if found or _is_open(path):
            return found
        raise FaultError(
            FaultCode.UNAUTHENTICATED, "An API key is needed: send Authorization: Bearer <key>, or X-Api-Key: <key>."
        )

    def _check_host(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        """Raises forbidden. What a trusted proxy says of the caller's Host must be right, too: it may be the caller's
        word that it passes on."""
        local = (scope.get("server") or (None,))[0]
        for each in self._called_hosts(scope, headers):
            host = each.decode("latin-1")
            if not self._hosts.is_permitted(host, local):
                raise FaultError(
                    FaultCode.FORBIDDEN,
                    f"The gateway is not called {host[:100]!r}: add the name to hosts in the settings, "
                    "or set public_url.",
                )

    def _called_hosts(self, scope: Scope, headers: Mapping[bytes, bytes]) -> list[bytes]:
        """Under which names, with ports, the gateway is called."""
        said = [headers.get(b"host", b"")]
        if self._is_proxied(scope):
            said.append(headers.get(b"x-forwarded-host", b"").split(b",")[0].strip())
        return said

    def _is_foreign(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether it may come from a page that must not call. A GET for an image, or for another window, has no Origin,
        but browsers say whether the gateway's own page wants it (Fetch Metadata §2.3)."""
        if self._keys or b"origin" in headers:
            return False
        return headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin")

    def _check_origin(self, scope: Scope, path: str, headers: Mapping[bytes, bytes]) -> None:
        """Without keys, whoever can reach the gateway may call it, and so could every page that is open in a browser on
        this machine: a POST of plain text needs no preflight. But browsers say whose page it is. With keys a page has
        none of its own to send, and the origin is looked at where the protocol says so: there the gateway's own pages,
        which come from the host that they call, may call, too. Raises unauthenticated, whose `reason` is `origin`."""
        origin = headers.get(b"origin")
        if origin is None or self._is_permitted(origin.decode("latin-1")):
            return
        if self._keys and not (_checks_origin(path) and self._is_elsewhere(scope, headers, origin)):
            return
        raise FaultError(
            FaultCode.UNAUTHENTICATED,
            "Pages of this origin may not call the gateway: add it to cors in the settings.",
            reason="origin",
        )

    def _is_elsewhere(self, scope: Scope, headers: Mapping[bytes, bytes], origin: bytes) -> bool:
        host = origin.partition(b"://")[2].lower()
        return not host or host not in (each.lower() for each in self._called_hosts(scope, headers))

    def _base_url(self, scope: Scope, headers: Mapping[bytes, bytes]) -> str:
        """Where the caller reached us. The Host header is believed only if it names loopback, or comes through a
        trusted proxy: answers must not carry addresses that a stranger chose."""
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
        # Said of every answer: a cache that kept one to nobody's page would give it to a page, without the rest.
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
    if isinstance(parsed, ipaddress.IPv6Address):  # of a socket that takes both, 10.0.0.1 comes as ::ffff:10.0.0.1
        parsed = parsed.ipv4_mapped or parsed
    return any(parsed in network for network in networks)


async def _preflight(answer: "_ResponseWrapper", headers: Mapping[bytes, bytes], *, is_granted: bool) -> None:
    granted: list[tuple[bytes, bytes]] = [
        (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE, OPTIONS"),
        (b"access-control-allow-headers", headers.get(b"access-control-request-headers", b"*")),
        (b"access-control-max-age", b"600"),
    ]
    # Chromium asks this before a public page reaches a private address (WICG, Private Network Access, section 3.1).
    if is_granted and headers.get(b"access-control-request-private-network") == b"true":
        granted.append((b"access-control-allow-private-network", b"true"))
    await answer({"type": "http.response.start", "status": 204, "headers": granted})
    await answer({"type": "http.response.body", "body": b""})


def _with_head(allow: bytes) -> bytes:
    methods = {method.strip() for method in allow.split(b",")} - {b"websocket"}  # the framework's word for no method
    return b", ".join(sorted(methods | {b"HEAD", b"OPTIONS"} if b"GET" in methods else methods | {b"OPTIONS"}))


class _Handshake:
    """`send` of a WebSocket, for which an answer over HTTP is a refusal to open it."""

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
    """`send`, with the headers that every answer has, and what the log line needs."""

    def __init__(self, send: Any, scope: Scope, banner: bytes, cross_origin: list[tuple[bytes, bytes]]) -> None:
        self.owner = ""
        self._send = send
        self._began = time.perf_counter()
        self._status = 0
        self._ids: dict[str, str] = {}
        self._request_id = uuid4().hex[:16] if log.isEnabledFor(logging.INFO) else ""
        self._headers = [(b"babelgate", banner), *cross_origin]
        self.method: str = scope.get("method", "GET")  # a WebSocket is opened by a GET
        self._bodiless = self.method == "HEAD"
        # As it was sent, percent-encoded: a line feed in a path would begin a log line of the caller's own.
        self._path = (scope.get("raw_path") or scope["path"].encode()).decode("ascii", "backslashreplace")

    async def __call__(self, message: Message) -> None:
        if message["type"] == "websocket.accept":
            self._status = 101
            await self._send({**message, "headers": [*message.get("headers", ()), *self._response_headers()]})
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
        if self._bodiless:  # ended here: a stream would go on for as long as the run does
            await self._send({"type": "http.response.body", "body": b""})

    def _response_headers(self) -> list[tuple[bytes, bytes]]:
        """The headers of every answer."""
        return [*self._headers, (b"x-request-id", self._request_id.encode())] if self._request_id else self._headers

    def log(self) -> None:
        """One line: no bodies, no query (it may hold a secret), no header values but our own ids."""
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


def _checks_origin(path: str) -> bool:
    return any(path == prefix or path.startswith(f"{prefix}/") for prefix in _ORIGIN_CHECKED)


def _is_open(path: str) -> bool:
    """Whether it is one of `open_paths`, where `{agent}` stands for any name."""
    given = path.split("/")
    return any(
        len(given) == len(open_path)
        and all(part == there or (part == "{agent}" and there) for part, there in zip(open_path, given, strict=True))
        for open_path in _OPEN
    )
