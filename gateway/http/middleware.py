"""Authentication by API keys and tokens, and CORS: the middleware around all protocols.

For each request it determines three things:

- the caller, by its API key or token;
- the base URL under which the caller reaches the gateway, for URLs in responses;
- the agent, if the path begins with `/agent/<name>`.

It answers CORS preflights, refuses requests without a valid credential, and writes one log line per request.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from litestar import Request, Response
from litestar.utils import normalize_path

from babelgate.adapters import ADAPTERS
from babelgate.adapters.kit.headers import combine_lines, find_repeated
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import Caller
from babelgate.canonical import Fault, FaultCode, FaultError, Principal
from babelgate.gateway.console.gate import GATE as CONSOLE_GATE
from babelgate.gateway.console.gate import ConsoleGate
from babelgate.gateway.console.pages import is_static
from babelgate.gateway.exchange import enter_exchange
from babelgate.gateway.http.admin_address import AdminAddress
from babelgate.gateway.http.client_certificate import ClientCertificate, certificate_of
from babelgate.gateway.http.expiry import OpenStreams
from babelgate.gateway.http.front import Front
from babelgate.gateway.http.response import Handshake, RequestReports, ResponseWrapper, Scope
from babelgate.gateway.http.verifier import ANONYMOUS
from babelgate.gateway.observe import NO_OBSERVER, GatewayObserver
from babelgate.gateway.settings.tls import MTLS
from babelgate.gateway.storage.auditor import NO_AUDITOR, Auditor

Encode = Callable[[Fault, AnyRequest], Response[Any]]

_TYPE_LENGTH: Final = 1024
"""Maximum length of a Content-Type, in bytes.

Chosen: real ones are less than a tenth as long, and the time of their parsers grows with the square of the length.
"""
_EXPOSED: Final = ", ".join(
    (
        *("Babelgate", "Babelgate-Loss", "Babelgate-Run", "Babelgate-Task", "Babelgate-Thread", "ETag", "Location"),
        *("RateLimit", "RateLimit-Policy", "Retry-After", "WWW-Authenticate", "X-Request-Id"),
        *sorted({name for adapter in ADAPTERS for name in adapter.exposed_headers}),
    )
)
"""Response headers that pages of other origins may read: those of the gateway, and those that protocols declare."""
_STAND_INS: Final = {"HEAD": "GET", "OPTIONS": "TRACE"}
"""Method with which a request is passed to the application, by the method of the request.

HEAD is a GET whose body is dropped. No path has TRACE, so the 405 response to it lists all methods of the path. The
framework's own response to OPTIONS lists the methods of only one handler.
"""


class GatewayMiddleware:
    """ASGI middleware around all protocols: authenticates callers, and adds the headers that all responses have."""

    def __init__(
        self,
        app: Any,
        front: Callable[[], Front],
        *,
        can_discover: Callable[[Principal, str, str], bool],
        encode: Encode,
        version: str,
        instance: Callable[[], str],
        streams: OpenStreams | None = None,
        has_context: bool = False,
        auditor: Auditor = NO_AUDITOR,
        state: Mapping[str, Any] = MappingProxyType({}),
        observer: GatewayObserver = NO_OBSERVER,
        admin_address: AdminAddress | None = None,
    ) -> None:
        """Wrap an application.

        `front` returns the checks of the current generation. `encode` creates the response to a fault. `streams`
        collects the open streams. `has_context` is true if log lines name the request during which they were written.
        `auditor` receives failed logins. `state` is added to the state of each request. `admin_address` is the separate
        address of the administration API, if it has one.

        `version` and the result of `instance`, the gateway's instance id, are sent in the header `Babelgate` of each
        response.
        """
        self.app = app
        """The ASGI application that the middleware wraps."""
        self._front = front
        self._can_discover = can_discover
        """Function that returns True if an agent with this name exists and the principal may discover it by a request
        to this path."""
        self._auditor = auditor
        self._state = state
        self._admin_address = admin_address
        self._encode = encode
        self._banner = lambda: f"{version}; instance={instance()}".encode()
        self._streams = OpenStreams() if streams is None else streams
        self._reports = RequestReports(observer, has_context=has_context)

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            await self._front().verifier.aclose()
            return
        if scope["type"] == "websocket":
            send = Handshake(send, scope)
        # The path that the router matches. All checks use this one: otherwise //admin would not be below /admin.
        path = normalize_path(scope["path"])
        if path != scope["path"]:  # a copy of the scope takes half a kilobyte of an idle stream
            scope = {**scope, "path": path}
        headers = combine_lines(scope["headers"])
        front = self._front()
        answer = ResponseWrapper(
            send, scope, self._banner(), _cross_origin(front, scope["path"], headers), self._reports, self._streams
        )
        enter_exchange(scope, answer.describe_origin, answer.noted)
        self._reports.begin(answer, headers)
        try:
            inner = await self._admit(front, scope, headers, receive, answer)
            del front, headers  # a stream may be silent for hours
            if inner is not None:
                await self.app(inner, receive, answer)
        finally:
            self._reports.end(answer)
            answer.end()

    async def _admit(
        self, front: Front, scope: Scope, headers: Mapping[bytes, bytes], receive: Any, answer: ResponseWrapper
    ) -> Scope | None:
        """Check a request, and return its scope as the application gets it. Return None if the request was refused or
        was a preflight, and is answered."""
        inner: Scope = {**scope, "state": dict(scope.get("state") or {})}
        answer.scope = inner
        inner["state"] |= {**front.state, **self._state}
        try:
            if len(headers) < len(scope["headers"]) and (repeated := find_repeated(scope["headers"])) is not None:
                raise FaultError(FaultCode.INVALID, f"The header {repeated} has two different values. Send it once.")
            base_url = front.base_url(scope, headers)
            agent = front.registry.default
            named, inner["path"] = _split_agent(scope["path"])
            if named is not None:
                agent, base_url = named, f"{base_url}/agent/{named}"
            inner["state"]["base_url"] = base_url
            if self._admin_address is not None:  # before the credential, so that keys cannot be tried on the other port
                self._admin_address.check(scope, inner["path"])
            console: ConsoleGate | None = inner["state"].get(CONSOLE_GATE)
            if console is not None:
                console.check_path(inner["path"])
            _check_type(scope)
            front.check_host(scope, headers)
            if answer.method == "OPTIONS" and b"access-control-request-method" in headers:
                await _preflight(answer, headers, is_granted=front.is_granted(scope["path"], headers))
                return None
            certificate = certificate_of(scope)
            is_ambient = front.verifier.is_ambient(headers, certificate)
            front.check_origin(scope, inner["path"], headers, is_ambient=is_ambient)
            principal = await self._principal(front, inner["path"], headers, certificate)
            answer.principal = principal
            self._reports.note_caller(answer, principal, named, headers)
            if agent is not None and not self._can_discover(principal, agent, inner["path"]):
                agent = None
            # The static files of the console are the same for every name, and say nothing about it.
            is_unknown = agent is None and not is_static(inner["path"])
            if named is not None and (inner["path"].startswith("/agent/") or is_unknown):
                raise FaultError(FaultCode.NOT_FOUND, f"There is no agent {named[:100]!r} here.")
        except FaultError as error:
            inner = {**inner, "type": "http", "method": answer.method}
            answer.scope = inner
            request: AnyRequest = Request(inner)  # type: ignore[arg-type]
            response = self._encode(error.fault, request)
            await response.to_asgi_response(None, request)(inner, receive, answer)  # type: ignore[arg-type]
            return None
        sent = {name: headers[name.encode()].decode("latin-1") for name in front.forwarded if name.encode() in headers}
        reads_only = answer.method == "HEAD" or front.is_foreign(headers, is_ambient=is_ambient)
        inner["state"]["caller"] = Caller(
            principal,
            base_url,
            agent,
            sent,
            authentication=front.authentication,
            signer=front.signer,
            rpc_address=front.find_rpc_address(base_url),
            reads_only=reads_only,
        )
        if scope["type"] == "http":
            inner["method"] = _STAND_INS.get(answer.method, answer.method)
        return inner

    async def _principal(
        self, front: Front, path: str, headers: Mapping[bytes, bytes], certificate: ClientCertificate | None
    ) -> Principal:
        """Return the principal of the request's credential, or the anonymous one for an open path. Raises
        unauthenticated or unavailable."""
        verifier = front.verifier
        try:
            principal = await verifier.verify(headers, certificate)
        except FaultError as error:
            if front.is_open(path):
                return ANONYMOUS
            result = "unavailable" if error.fault.code is FaultCode.UNAVAILABLE else "refused"
            self._reports.note_auth(verifier.method_of(headers, certificate), result)
            if error.fault.code is FaultCode.UNAUTHENTICATED:
                self._auditor.note_failed_login(error.fault.message)
            raise
        if verifier.is_required:
            kind = "certificate" if principal.issuer == MTLS else "token" if principal.issuer else "key"
            self._reports.note_auth(kind, "accepted")
        return principal


def _split_agent(path: str) -> tuple[str | None, str]:
    """Split a path such as `/agent/weather/acp/runs` into the name of the agent and the rest. The name is None if the
    path does not begin with `/agent/`."""
    if not path.startswith("/agent/"):
        return None, path
    name, _, rest = path.removeprefix("/agent/").partition("/")
    return name, f"/{rest}"


def _cross_origin(front: Front, path: str, headers: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    # Every response varies by Origin. Otherwise a cache could serve a page one without the CORS headers.
    if not front.is_granted(path, headers):
        return [(b"vary", b"Origin")]
    return [
        (b"access-control-allow-origin", headers[b"origin"]),
        (b"access-control-expose-headers", _EXPOSED.encode()),
        (b"vary", b"Origin"),
    ]


def _check_type(scope: Scope) -> None:
    if any(name == b"content-type" and len(value) > _TYPE_LENGTH for name, value in scope["headers"]):
        raise FaultError(FaultCode.INVALID, f"The Content-Type is longer than {_TYPE_LENGTH} bytes.")


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
