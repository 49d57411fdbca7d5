"""HTTP calls to an agent's server: transport errors become faults, and no response grows beyond its limit."""

import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from functools import lru_cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict
from urllib.request import getproxies

import httpx

from babelgate.adapters.kit.client.answers import ANSWER_LIMIT, ERROR_RESPONSE_LIMIT, read_answer
from babelgate.adapters.kit.client.direct_client import DirectClient
from babelgate.adapters.kit.client.error_response import read_excerpt, response_error
from babelgate.adapters.kit.client.redact import redact_fault, secrets_in
from babelgate.adapters.kit.client.rpc import SCHEMES, RpcTransport
from babelgate.adapters.kit.client.status import fault_code
from babelgate.adapters.kit.client.tls import ClientTls, default_context
from babelgate.adapters.kit.tracing import CALL_TRACER, CHAIN, CallTracer, TracedOperation
from babelgate.adapters.kit.upstream import FORWARDED
from babelgate.canonical import Fault, FaultCode, FaultError
from babelgate.canonical.value import Json

if TYPE_CHECKING:
    from babelgate.adapters.kit.client.transport import CheckAddress

DEFAULT_TIMEOUT: Final = httpx.Timeout(connect=5.0, read=None, write=60.0, pool=None)
"""Timeouts in seconds. There is no read timeout: an agent may be silent until the gateway's limit on runs ends it."""
_LIMITS: Final = httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=4.0)
"""Connection limits. Many servers (uvicorn, Node.js) close idle connections after 5 seconds, and a request sent at that
moment is lost."""

Hook = Callable[[Any], Awaitable[None]]
"""Event hook of httpx: a coroutine function that receives a request or a response."""
EVENT_HOOKS: Final[ContextVar[Mapping[str, Sequence[Hook]]]] = ContextVar("event_hooks", default=MappingProxyType({}))
"""Event hooks that `open_http` gives to the HTTP clients which it opens in this context, by httpx's names `request` and
`response`."""


_REDIRECTS: Final = 3
"""Maximum number of redirects that one call follows. Chosen: a server adds a slash, or changes a version, once."""
_KEEP_METHOD: Final = (307, 308)
"""Statuses of redirects after which every method is repeated (RFC 9110, sections 15.4.8 and 15.4.9)."""
_REPEAT_GET: Final = (301, 302, 303, *_KEEP_METHOD)
"""Statuses of redirects after which a GET is repeated at the new URL."""


@lru_cache(64)
def _parse_url(url: str) -> httpx.URL:
    """Return a URL as httpx parses it. Most requests go to a few URLs. Raises httpx.InvalidURL."""
    return httpx.URL(url)


def _redirect_target(method: str, target: str, response: httpx.Response) -> str | None:
    """Return the URL that a redirect names, if it has the origin of `target`. Return None if the redirect must not be
    followed (RFC 9110, section 15.4)."""
    location = response.headers.get("location")
    if location is None or response.status_code not in (_REPEAT_GET if method == "GET" else _KEEP_METHOD):
        return None
    base = httpx.URL(target)
    try:
        url = base.join(location)
    except httpx.InvalidURL:
        return None
    if (url.scheme, url.host, url.port) != (base.scheme, base.host, base.port):
        return None
    return str(url)


class Connection(TypedDict, total=False):
    """Connection arguments that the clients of all protocols accept."""

    headers: Mapping[str, str] | None
    """Headers of every request."""
    timeout: httpx.Timeout | float | None
    """Timeout of httpx, or seconds; None = `DEFAULT_TIMEOUT`."""
    http: httpx.AsyncClient | None
    """HTTP client whose connections are shared; None = the client of the protocol opens its own."""


def open_http(
    check_address: "CheckAddress | None" = None,
    *,
    timeout: httpx.Timeout | float = 5.0,
    event_hooks: Mapping[str, Sequence[Hook]] = MappingProxyType({}),
    tls: ClientTls | None = None,
    make: Callable[..., httpx.AsyncClient] = DirectClient,
) -> httpx.AsyncClient:
    """Return an HTTP client for calls to agents' servers. Raises OSError if calls go through a proxy that the
    environment sets, and a file of `tls` cannot be used.

    - `check_address` raises OSError for a forbidden address. With it no proxy is used, because the proxy would resolve
      the names.
    - `tls` has the certificates for https. By default the CAs of the system are trusted.
    - `make` creates the client.
    """
    from babelgate.adapters.kit.client.transport import HttpTransport

    rpc = RpcTransport(check_address, tls)
    # httpx itself must handle a proxy of the environment.
    is_proxied = check_address is None and any(map(getproxies().get, ("http", "https", "all")))
    return make(
        transport=None if is_proxied else HttpTransport(_LIMITS, check_address, tls),
        mounts=dict.fromkeys(SCHEMES, rpc),
        verify=_verification(tls) if is_proxied else True,
        limits=_LIMITS,
        timeout=timeout,
        # No cookies: those of one caller would be sent with another caller's requests.
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        event_hooks={name: [*each] for name, each in (event_hooks or EVENT_HOOKS.get()).items()},
    )


def _verification(tls: ClientTls | None) -> ssl.SSLContext:
    return default_context() if tls is None else tls.open_context()


class Calls:
    """Base class of the HTTP calls to one server. It opens connections with the first call, unless it was given the
    shared HTTP client `http`."""

    answer_limit: int = ANSWER_LIMIT
    """Maximum size of one response, in bytes."""

    def __init__(
        self,
        base: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        timeout: httpx.Timeout | float | None = None,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._base = base.rstrip("/")
        self._headers = dict(headers or {})
        self._timeout = DEFAULT_TIMEOUT if timeout is None else timeout
        # Importing aiohttp takes 9 MB and 0.1 s, which a gateway without remote agents does not need. Not on the first
        # call, which would block the event loop.
        import_module("babelgate.adapters.kit.client.transport")
        self._shared = http
        self._owned: httpx.AsyncClient | None = None

    def within(self, limit: int) -> Self:
        """Set the maximum size of a response, in bytes, and return self."""
        self.answer_limit = limit
        return self

    async def aclose(self) -> None:
        """Close the connections, except those of the shared client."""
        http, self._owned = self._owned, None
        if http is not None:
            await http.aclose()

    @property
    def _http(self) -> httpx.AsyncClient:
        if self._shared is not None:
            return self._shared
        if self._owned is None:
            self._owned = open_http()
        return self._owned

    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        *,
        body: bytes | None = None,
        operation: TracedOperation | None = None,
        **more: Any,
    ) -> AbstractAsyncContextManager[httpx.Response]:
        """Send a request and yield the response, whose body is still to be read. `url` is appended to the base URL.
        `operation` names the request in traces. Raises agent_unreachable, agent_timeout, agent_invalid, and the fault
        of an error response.

        A redirect is followed only within the called origin, because the headers hold credentials, and only if it keeps
        the method.
        """
        sent = {**self._headers, **FORWARDED.get(), **CHAIN.get(), "Accept-Encoding": "identity"}
        if body is not None:
            sent["Content-Type"] = "application/json"
            more["content"] = body
        tracer = CALL_TRACER.get()
        if tracer is None:
            return self._send(method, self._base + url, {**sent, **headers}, more)
        return self._send_traced(tracer, method, self._base + url, {**sent, **headers}, more, operation)

    @asynccontextmanager
    async def _send_traced(
        self,
        tracer: CallTracer,
        method: str,
        target: str,
        headers: Mapping[str, str],
        more: Mapping[str, Any],
        operation: TracedOperation | None,
    ) -> AsyncGenerator[httpx.Response]:
        """Send a request within a span. `operation` is the traced operation that the request belongs to, if any. Raises
        the faults of `request`."""
        span = tracer.start_http(method, target, operation)
        status: int | None = None
        error: str | None = None
        try:
            async with self._send(method, target, {**headers, **span.headers}, more) as response:
                status = response.status_code
                yield response
        except FaultError as failure:
            error = str(failure.fault.code)
            status = failure.fault.details.get("status", status)
            raise
        finally:
            span.end(status, error)

    @asynccontextmanager
    async def _send(
        self, method: str, target: str, headers: Mapping[str, str], more: Mapping[str, Any]
    ) -> AsyncGenerator[httpx.Response]:
        """Send a request to a URL, and follow its redirects. `more` are further arguments of HTTPX, such as the body.

        Raises agent_timeout, agent_unreachable, and the fault of an error response.
        """
        try:
            for left in range(_REDIRECTS, -1, -1):
                request = self._http.build_request(
                    method, _parse_url(target), headers=headers, timeout=self._timeout, **more
                )
                response = await self._http.send(request, stream=True, follow_redirects=False)
                try:
                    if left and (redirected := _redirect_target(method, target, response)) is not None:
                        target = redirected
                        continue
                    if response.status_code >= 300:
                        raise await self._read_redacted_error(response)
                    yield response
                    return
                finally:
                    await response.aclose()
        except httpx.TimeoutException as error:
            raise FaultError(FaultCode.AGENT_TIMEOUT, "The agent's server did not answer in time") from error
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise FaultError(
                FaultCode.AGENT_UNREACHABLE, f"The agent's server cannot be reached ({type(error).__name__})"
            ) from error

    async def _read_redacted_error(self, response: httpx.Response) -> FaultError:
        """Return the fault of an error response, without the credentials of the request. Its details get the beginning
        of the response as `body`, because frameworks put the reason there."""
        error = await self.read_error_response(response)
        token = response.request.headers.get("authorization", "")
        secrets = secrets_in((*self._headers.values(), *FORWARDED.get().values(), token))
        fault, body = redact_fault(error.fault, secrets), read_excerpt(response, secrets)
        error.fault = fault.replace(details={**fault.details, "body": body}) if body else fault
        error.args = (error.fault.message,)
        return error

    async def read_error_response(self, response: httpx.Response) -> FaultError:
        """Return the fault of an error response (status 300 or higher)."""
        try:
            answer = await self.json(response, ERROR_RESPONSE_LIMIT)
        except FaultError:  # for example, the HTML page of a proxy
            answer = None
        return response_error(self.decode_error_body(response.status_code, answer), response)

    def decode_error_body(self, status: int, answer: Json) -> Fault:
        """Return the fault that the body of an error response describes, as the protocol defines it. `answer` is the
        body as JSON, or None if it is not JSON. This base class derives the fault from the status alone."""
        return Fault(code=fault_code(status), message=f"The agent's server answered {status}")

    async def json(self, response: httpx.Response, limit: int | None = None) -> Json:
        """Return the body of a response as JSON. `limit` is its maximum size in bytes; the default is `answer_limit`.
        Raises agent_invalid for a body that is too large or not JSON."""
        return await read_answer(response, self.answer_limit if limit is None else limit)
