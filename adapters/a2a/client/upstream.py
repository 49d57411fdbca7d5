"""HTTP calls of an A2A server: what goes wrong on the way becomes a fault, and no answer grows beyond its limit."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Final

import httpx

from adapters._body import parse_json
from adapters._sse import read_frames
from adapters._upstream import FORWARDED
from adapters.a2a.fault import decode_error
from canonical import FaultCode, FaultError
from canonical.value import Json

__all__ = ("DEFAULT_TIMEOUT", "Upstream")

ANSWER_LIMIT: Final = 64 * 1024 * 1024
"""Bytes of one answer."""
REFUSAL_LIMIT: Final = 64 * 1024
DEFAULT_TIMEOUT: Final = httpx.Timeout(connect=5.0, read=None, write=60.0, pool=None)
"""Nothing bounds the silence of an agent at work but the gateway's own limit on runs."""


class Upstream:
    def __init__(
        self,
        headers: Mapping[str, str] | None = None,
        timeout: httpx.Timeout | float | None = None,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._headers = dict(headers or {})
        self._timeout = DEFAULT_TIMEOUT if timeout is None else timeout
        self._given = http
        self._own: httpx.AsyncClient | None = None

    async def aclose(self) -> None:
        own, self._own = self._own, None
        if own is not None:
            await own.aclose()

    @property
    def _http(self) -> httpx.AsyncClient:
        if self._given is not None:
            return self._given
        if self._own is None:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
            # No cookies: one caller's would go with the next one's calls.
            jar = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
            self._own = httpx.AsyncClient(limits=limits, cookies=jar)
        return self._own

    @asynccontextmanager
    async def opened(
        self, method: str, url: str, *, accept: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[httpx.Response]:
        """An answer whose body is still to be read. Raises agent_unreachable, agent_timeout, agent_invalid, and what
        the server answers instead (`fault.decode_error`). A redirect is not followed: the headers hold credentials."""
        sent = {**self._headers, **FORWARDED.get(), **(headers or {}), "Accept": accept}
        if body is not None:
            sent["Content-Type"] = "application/json"
        try:
            async with self._http.stream(
                method, url, content=body, headers=sent, timeout=self._timeout, follow_redirects=False
            ) as response:
                if response.status_code >= 300:
                    raise await _refusal(response)
                yield response
        except httpx.TimeoutException as error:
            raise FaultError(FaultCode.AGENT_TIMEOUT, "The agent's server did not answer in time") from error
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise FaultError(
                FaultCode.AGENT_UNREACHABLE, f"The agent's server cannot be reached ({type(error).__name__})"
            ) from error
        except httpx.RequestError as error:  # a content encoding that does not decode, say
            raise FaultError(
                FaultCode.AGENT_INVALID,
                f"The agent's server gave an answer that cannot be read ({type(error).__name__})",
            ) from error

    async def json(self, response: httpx.Response, limit: int = ANSWER_LIMIT) -> Json:
        """Raises agent_invalid."""
        raw = await _body(response, limit)
        try:
            return parse_json(raw)
        except FaultError as error:
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server did not answer with JSON") from error

    async def values(self, response: httpx.Response) -> AsyncGenerator[Json]:
        """The data of each event of a stream; of an answer that is none, the answer. Raises agent_invalid."""
        if "text/event-stream" not in response.headers.get("content-type", ""):
            yield await self.json(response)
            return
        async with aclosing(read_frames(response)) as frames:
            async for frame in frames:
                if frame.data.strip() not in (b"", b"[DONE]"):
                    yield _parsed(frame.data)


def _parsed(raw: bytes) -> Json:
    try:
        return parse_json(raw)
    except FaultError as error:
        raise FaultError(
            FaultCode.AGENT_INVALID, f"The agent breaks its protocol: an event is no JSON ({error.fault.message})"
        ) from error


async def _body(response: httpx.Response, limit: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > limit:
            raise FaultError(FaultCode.AGENT_INVALID, f"The agent's server answered with more than {limit} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


async def _refusal(response: httpx.Response) -> FaultError:
    try:
        answer = parse_json(await _body(response, REFUSAL_LIMIT))
    except FaultError:  # a proxy's page, say
        answer = None
    return decode_error(answer, response.status_code)
