"""HTTP calls of an agent's server: what goes wrong on the way becomes a fault, and no answer grows beyond its limit."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from http.cookiejar import CookieJar, DefaultCookiePolicy
from types import MappingProxyType
from typing import Any, Final, Self, TypedDict
from urllib.request import getproxies

import httpx

from babelgate.adapters.kit.client.answers import ANSWER_LIMIT, read_answer
from babelgate.adapters.kit.client.redact import redact_fault, secrets_in
from babelgate.adapters.kit.upstream import FORWARDED
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.value import Json

DEFAULT_TIMEOUT: Final = httpx.Timeout(connect=5.0, read=None, write=60.0, pool=None)
"""Nothing bounds the silence of an agent at work but the gateway's own limit on runs."""
_LIMITS: Final = httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=4.0)
"""Many a server (uvicorn, Node's) hangs up after 5 seconds: a request that is sent in that moment is lost."""

EVENT_HOOKS: Final[ContextVar[Mapping[str, Sequence[Callable[[Any], Awaitable[None]]]]]] = ContextVar(
    "event_hooks", default=MappingProxyType({})
)
"""httpx's, of the connections that are opened in this context: they see every request and every answer."""


_REDIRECTS: Final = 3
"""Redirects of one call that are followed. Chosen: a server adds a slash, or changes a version, once."""
_KEEP_METHOD: Final = (307, 308)
"""Statuses of redirects after which every method is repeated (RFC 9110, sections 15.4.8 and 15.4.9)."""
_REPEAT_GET: Final = (301, 302, 303, *_KEEP_METHOD)
"""Statuses of redirects after which a GET is repeated."""


def _redirect_target(method: str, target: str, response: httpx.Response) -> str | None:
    """Return where a redirect leads within the same origin, or None (RFC 9110, section 15.4)."""
    location = response.headers.get("location")
    if location is None or response.status_code not in (_REPEAT_GET if method == "GET" else _KEEP_METHOD):
        return None
    called = httpx.URL(target)
    try:
        there = called.join(location)
    except httpx.InvalidURL:
        return None
    if (there.scheme, there.host, there.port) != (called.scheme, called.host, called.port):
        return None
    return str(there)


class Connection(TypedDict, total=False):
    """How a server is called, whatever its protocol: the arguments that all clients take."""

    headers: Mapping[str, str] | None
    """Of every request."""
    timeout: httpx.Timeout | float | None
    """Seconds; None = `DEFAULT_TIMEOUT`."""
    http: httpx.AsyncClient | None
    """Whose connections are used; None = connections of its own."""


class Calls(ABC):
    """Of one server. Its connections are opened with the first call, and are its own: `http` lends those of another."""

    answer_limit: int = ANSWER_LIMIT

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
        # aiohttp takes 9 MB and a tenth of a second, which a gateway of agents of its own need not have. Not with the
        # first call, which would keep everybody waiting.
        from babelgate.adapters.kit.client.transport import Transport

        self._transport = Transport
        self._given = http
        self._own: httpx.AsyncClient | None = None

    def within(self, limit: int) -> Self:
        """The same calls, whose answers may be so many bytes."""
        self.answer_limit = limit
        return self

    async def aclose(self) -> None:
        own, self._own = self._own, None
        if own is not None:
            await own.aclose()

    @property
    def _http(self) -> httpx.AsyncClient:
        if self._given is not None:
            return self._given
        if self._own is None:
            # The way through a proxy of the environment is httpx's own to know.
            transport = None if any(map(getproxies().get, ("http", "https", "all"))) else self._transport(_LIMITS)
            # No cookies: one caller's would go with the next one's calls.
            jar = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
            hooks = {name: [*each] for name, each in EVENT_HOOKS.get().items()}
            self._own = httpx.AsyncClient(transport=transport, limits=_LIMITS, cookies=jar, event_hooks=hooks)
        return self._own

    @asynccontextmanager
    async def request(
        self, method: str, url: str, headers: Mapping[str, str], *, body: bytes | None = None, **more: Any
    ) -> AsyncGenerator[httpx.Response]:
        """An answer whose body is still to be read; `url` goes behind the base. Raises agent_unreachable,
        agent_timeout, agent_invalid, and what the server answers instead. A redirect is followed only within the origin
        that was called, because the headers hold credentials, and only if it keeps the method."""
        sent = {**self._headers, **FORWARDED.get(), "Accept-Encoding": "identity"}
        if body is not None:
            sent["Content-Type"] = "application/json"
            more["content"] = body
        target = self._base + url
        try:
            for left in range(_REDIRECTS, -1, -1):
                async with self._http.stream(
                    method,
                    target,
                    headers={**sent, **headers},
                    timeout=self._timeout,
                    follow_redirects=False,
                    **more,
                ) as response:
                    if left and (there := _redirect_target(method, target, response)) is not None:
                        target = there
                        continue
                    if response.status_code >= 300:
                        raise await self._read_redacted_error(response)
                    yield response
                    return
        except httpx.TimeoutException as error:
            raise FaultError(FaultCode.AGENT_TIMEOUT, "The agent's server did not answer in time") from error
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise FaultError(
                FaultCode.AGENT_UNREACHABLE, f"The agent's server cannot be reached ({type(error).__name__})"
            ) from error

    async def _read_redacted_error(self, response: httpx.Response) -> FaultError:
        """Return the fault of an error response, without the credentials of the request."""
        error = await self.read_error_response(response)
        secrets = secrets_in((*self._headers.values(), *FORWARDED.get().values()))
        error.fault = redact_fault(error.fault, secrets)
        error.args = (error.fault.message,)
        return error

    @abstractmethod
    async def read_error_response(self, response: httpx.Response) -> FaultError:
        """What an error response, which has a status of 300 or above, says, in the protocol's own words."""
        ...

    async def json(self, response: httpx.Response, limit: int | None = None) -> Json:
        """Raises agent_invalid."""
        return await read_answer(response, self.answer_limit if limit is None else limit)
