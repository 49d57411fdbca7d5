"""Calls of an ACP server: what goes wrong on the way becomes a fault, and no answer grows beyond its limit."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import quote

import httpx

from adapters._body import parse_json, validate
from adapters._upstream import FORWARDED
from adapters.acp import wire as w
from adapters.acp.fault import decode_error
from canonical import FaultCode, FaultError
from canonical.value import Json

__all__ = ("DEFAULT_TIMEOUT", "Upstream", "run_path")

log = logging.getLogger("babelgate.acp")

ANSWER_LIMIT: Final = 64 * 1024 * 1024
"""Bytes of one answer."""
REFUSAL_LIMIT: Final = 64 * 1024
CANCEL_TIMEOUT: Final = 3.0
"""Seconds that telling of a cancel may take."""
DEFAULT_TIMEOUT: Final = httpx.Timeout(connect=5.0, read=None, write=60.0, pool=None)
"""Nothing bounds the silence of an agent at work but the gateway's own limit on runs."""

_GONE: Final = frozenset({502, 503, 504})


def run_path(run_id: str) -> str:
    return f"/runs/{quote(run_id, safe='')}"


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
            self._own = httpx.AsyncClient(limits=limits)
        return self._own

    @asynccontextmanager
    async def opened(self, method: str, path: str, body: bytes | None = None) -> AsyncGenerator[httpx.Response]:
        """An answer whose body is still to be read. Raises agent_unreachable, agent_timeout, agent_failed."""
        # Only a POST may be answered by a stream: the list of a run's events is one too where it is asked for as one.
        accept = "application/json" if method == "GET" else "text/event-stream, application/json"
        headers = {**self._headers, **FORWARDED.get(), "Accept": accept}
        if body is not None:  # the official client leaves it out, and newer servers of its own kind refuse that
            headers["Content-Type"] = "application/json"
        try:
            async with self._http.stream(
                method, self._url + path, content=body, headers=headers, timeout=self._timeout
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
        async with self.opened("GET", path) as response:
            return await self.json(response)

    async def json(self, response: httpx.Response) -> Json:
        """Raises agent_invalid."""
        raw = await _body(response, ANSWER_LIMIT)
        try:
            return parse_json(raw)
        except FaultError as error:
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server did not answer with JSON") from error

    async def cancel(self, run_id: str) -> None:
        """Ask for the end of a run. Whether the server hears it or not, nobody waits for the run any longer."""
        try:
            async with asyncio.timeout(CANCEL_TIMEOUT), self.opened("POST", run_path(run_id) + "/cancel"):
                pass
        except (FaultError, TimeoutError) as error:
            log.info("an agent's server was not told of a cancel, or refused it: %s", error)


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
    code = FaultCode.AGENT_UNREACHABLE if response.status_code in _GONE else FaultCode.AGENT_FAILED
    told = f"The agent's server answered {response.status_code}"
    try:
        error = validate(w.Error, parse_json(await _body(response, REFUSAL_LIMIT)))
    except FaultError:  # a proxy's page, say
        return FaultError(code, told)
    return FaultError(code, f"{told}: {error.message}", **decode_error(error).details)
