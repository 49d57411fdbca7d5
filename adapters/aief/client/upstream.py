"""HTTP calls of an AIEF server: what goes wrong on the way becomes a fault, and no answer grows beyond its limit."""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final, cast

import httpx
from pydantic_core import to_json

from adapters._body import parse_json
from adapters._upstream import FORWARDED
from canonical import FaultCode, FaultError
from canonical.value import Json, JsonObject

__all__ = ("DEFAULT_TIMEOUT", "Upstream", "root_of")

ANSWER_LIMIT: Final = 64 * 1024 * 1024
"""Bytes of one answer."""
REFUSAL_LIMIT: Final = 64 * 1024
WORDS_LIMIT: Final = 500
"""Characters of what a server says of its refusal."""
DEFAULT_TIMEOUT: Final = httpx.Timeout(connect=5.0, read=None, write=60.0, pool=None)
"""Nothing bounds the silence of an agent at work but the limit of its run."""

_GONE: Final = frozenset({429, 502, 503, 504})
_KNOWN: Final = re.compile(r"/ap/v1(/agent(/tasks)?)?$")


def root_of(url: str) -> str:
    """What comes before `/ap/v1`: operators give the server, or as much of the path as they know."""
    return _KNOWN.sub("", url.rstrip("/"))


class Upstream:
    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        timeout: httpx.Timeout | float | None = None,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._root = root_of(url)
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

    async def get(self, path: str, until: float | None = None) -> Json:
        async with _before(until), self._opened("GET", path) as response:
            return await _json(response)

    async def post(self, path: str, body: JsonObject, until: float | None = None) -> Json:
        content = to_json(body)
        # Its connection is not used again: the Python SDK's server hangs up after a step that failed.
        headers = {"Content-Type": "application/json", "Connection": "close"}
        async with _before(until), self._opened("POST", path, headers, content=content) as response:
            return await _json(response)

    async def upload(self, path: str, name: str, content: bytes, until: float | None = None) -> Json:
        files = {"file": (name, content, "application/octet-stream")}
        async with _before(until), self._opened("POST", path, files=files) as response:
            return await _json(response)

    async def download(self, path: str, limit: int, until: float | None = None) -> bytes:
        """Raises too_large."""
        async with _before(until), self._opened("GET", path, {"Accept": "*/*"}) as response:
            return await _read(response, limit)

    @asynccontextmanager
    async def _opened(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, **more: Any
    ) -> AsyncGenerator[httpx.Response]:
        """An answer whose body is still to be read. Raises agent_unreachable, agent_timeout, agent_invalid,
        agent_failed. A redirect is not followed: the headers hold credentials."""
        sent = {**self._headers, **FORWARDED.get(), "Accept": "application/json", **(headers or {})}
        try:
            async with self._http.stream(
                method, self._root + path, headers=sent, timeout=self._timeout, follow_redirects=False, **more
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


@asynccontextmanager
async def _before(until: float | None) -> AsyncGenerator[None]:
    """`until` = on the loop's clock."""
    bound = asyncio.timeout_at(until)
    try:
        async with bound:
            yield
    except TimeoutError as error:
        raise FaultError(FaultCode.AGENT_TIMEOUT, "The agent took longer than its run may last") from error


async def _read(response: httpx.Response, limit: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > limit:
            raise FaultError(FaultCode.TOO_LARGE, f"The agent's server answered with more than {limit} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


async def _json(response: httpx.Response) -> Json:
    try:
        return parse_json(await _read(response, ANSWER_LIMIT))
    except FaultError as error:
        large = error.fault.code is FaultCode.TOO_LARGE
        words = error.fault.message if large else "The agent's server did not answer with JSON"
        raise FaultError(FaultCode.AGENT_INVALID, words) from error


async def _refusal(response: httpx.Response) -> FaultError:
    status = response.status_code
    code = FaultCode.AGENT_UNREACHABLE if status in _GONE else FaultCode.AGENT_FAILED
    told = f"The agent's server answered {status}"
    words = "" if status in (401, 403) else await _words(response)
    return FaultError(code, f"{told}: {words}" if words else told, status=status)


async def _words(response: httpx.Response) -> str:
    """What it says of it: a `message` by the document, an `error` by the JavaScript SDK, a `detail` by the Python one.
    A page is nobody's words."""
    try:
        raw = await _read(response, REFUSAL_LIMIT)
        answer = parse_json(raw)
    except FaultError:
        return ""
    if not isinstance(answer, dict):
        return ""
    said = cast("dict[str, Any]", answer)
    for name in ("message", "error", "detail"):
        if isinstance(said.get(name), str):
            return " ".join(said[name].split())[:WORDS_LIMIT]
    return ""
