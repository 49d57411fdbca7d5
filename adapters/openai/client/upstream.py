"""Calls of an OpenAI-compatible server: what goes wrong on the way becomes a fault, and no answer grows beyond its
limit. No fault repeats a header that was sent: one of them is the key."""

import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import httpx

from adapters._body import parse_json, validate
from adapters._upstream import FORWARDED
from adapters.openai import wire as w
from adapters.openai.fault import decode_refusal, without
from canonical import Fault, FaultCode, FaultError
from canonical.value import Json, JsonObject

__all__ = ("DEFAULT_TIMEOUT", "Upstream", "base_of")

ANSWER_LIMIT: Final = 64 * 1024 * 1024
"""Bytes of one answer."""
REFUSAL_LIMIT: Final = 64 * 1024
DEFAULT_TIMEOUT: Final = httpx.Timeout(connect=5.0, read=None, write=60.0, pool=None)
"""Nothing bounds the silence of a model at work but the gateway's own limit on runs."""

_VERSIONED: Final = re.compile(r"/(v\d+\w*|openai)$")


def base_of(url: str) -> str:
    """Where the API begins: operators give the server, or what its own documents call the base URL."""
    url = url.rstrip("/")
    return url if _VERSIONED.search(url) else f"{url}/v1"


class Upstream:
    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        timeout: httpx.Timeout | float | None = None,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._base = base_of(url)
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
            self._own = httpx.AsyncClient(limits=limits)
        return self._own

    @asynccontextmanager
    async def opened(self, method: str, path: str, body: JsonObject | None = None) -> AsyncGenerator[httpx.Response]:
        """An answer whose body is still to be read. Raises agent_unreachable, agent_timeout, agent_failed."""
        headers = {
            **self._headers,
            **FORWARDED.get(),
            "Accept": "application/json" if body is None else "text/event-stream",
        }
        content = None
        if body is not None:
            headers = {**headers, "Accept": "text/event-stream, application/json", "Content-Type": "application/json"}
            content = _encoded(body)
        try:
            async with self._http.stream(
                method, self._base + path, content=content, headers=headers, timeout=self._timeout
            ) as response:
                if response.status_code >= 300:
                    raise FaultError.of(self.covered(await _refusal(response)))
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

    def covered(self, fault: Fault) -> Fault:
        """In words that hold nothing of what was sent to be let in."""
        words = (word for value in self._headers.values() for word in (value, value.rpartition(" ")[2]))
        return without(fault, sorted(words, key=len, reverse=True))

    async def get(self, path: str) -> Json:
        async with self.opened("GET", path) as response:
            return await self.json(response)

    async def json(self, response: httpx.Response) -> Json:
        """Raises agent_invalid."""
        raw = await _body(response, ANSWER_LIMIT)
        try:
            return parse_json(raw)
        except FaultError as error:
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server did not answer with JSON") from error


def _encoded(body: JsonObject) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
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


async def _refusal(response: httpx.Response) -> Fault:
    error: w.Error | str | None = None
    try:
        answer = parse_json(await _body(response, REFUSAL_LIMIT))
        # Not all wrap it: FastAPI says {"detail"}, and some give the members of the error themselves.
        error = validate(w.ErrorBody, answer).error or validate(w.Error, answer)
    except FaultError:  # a proxy's page, say
        pass
    return decode_refusal(response.status_code, error, response.headers.get("retry-after"))
