"""HTTP calls of a server of the family: what goes wrong on the way becomes a fault, and no answer grows beyond its
limit."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final

import httpx
from pydantic_core import PydanticSerializationError, to_json

from adapters._body import parse_json
from adapters._upstream import FORWARDED
from adapters.langchain.refusal import decode_refusal
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
        url: str,
        headers: Mapping[str, str] | None = None,
        timeout: httpx.Timeout | float | None = None,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._url = url.rstrip("/")
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
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None, streams: bool
    ) -> AsyncGenerator[httpx.Response]:
        """An answer whose body is still to be read. Raises agent_unreachable, agent_timeout, agent_invalid, and what
        the server answers instead. A redirect is not followed: the headers hold credentials."""
        accept = "text/event-stream" if streams else "application/json"
        sent = {**self._headers, **FORWARDED.get(), **(headers or {}), "Accept": accept}
        content = None
        if method in ("POST", "PATCH"):
            content = _encoded({} if body is None else body)
            sent["Content-Type"] = "application/json"
        try:
            async with self._http.stream(
                method, self._url + path, content=content, headers=sent, timeout=self._timeout, follow_redirects=False
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

    async def get(self, path: str) -> Json:
        return await self._json("GET", path)

    async def post(self, path: str, body: Any = None) -> Json:
        return await self._json("POST", path, body)

    async def _json(self, method: str, path: str, body: Any = None) -> Json:
        """None for an answer without a body. Raises agent_invalid."""
        async with self.opened(method, path, body, streams=False) as response:
            raw = await _body(response, ANSWER_LIMIT)
        if not raw.strip():
            return None
        try:
            return parse_json(raw)
        except FaultError as error:
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server did not answer with JSON") from error


def _encoded(body: Any) -> bytes:
    try:
        return to_json(body)
    except PydanticSerializationError as error:
        raise FaultError(FaultCode.INVALID, "The input cannot be written as JSON") from error


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
    return FaultError.of(decode_refusal(response.status_code, answer))
