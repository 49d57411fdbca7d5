"""HTTP calls of an A2A server. Each is given a whole URL: a card may name several."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing

import httpx

from adapters._body import parse_json
from adapters._http import REFUSAL_LIMIT, Calls, read_bytes
from adapters._refusal import refusal
from adapters._sse import read_frames
from adapters.a2a.fault import decode_error
from canonical import FaultCode, FaultError
from canonical.value import Json

__all__ = ("Upstream",)


class Upstream(Calls):
    def __init__(
        self,
        headers: Mapping[str, str] | None = None,
        timeout: httpx.Timeout | float | None = None,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        super().__init__("", headers, timeout, http)

    def opened(
        self, method: str, url: str, *, accept: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[httpx.Response]:
        return self.request(method, url, {**(headers or {}), "Accept": accept}, body=body)

    async def values(self, response: httpx.Response) -> AsyncGenerator[Json]:
        """The data of each event of a stream; of an answer that is none, the answer. Raises agent_invalid."""
        if "text/event-stream" not in response.headers.get("content-type", ""):
            yield await self.json(response)
            return
        async with aclosing(read_frames(response)) as frames:
            async for frame in frames:
                if frame.data.strip() not in (b"", b"[DONE]"):
                    yield _parsed(frame.data)

    async def refused(self, response: httpx.Response) -> FaultError:
        try:
            answer = parse_json(await read_bytes(response, REFUSAL_LIMIT))
        except FaultError:  # a proxy's page, say
            answer = None
        return refusal(decode_error(answer, response.status_code).fault, response)


def _parsed(raw: bytes) -> Json:
    try:
        return parse_json(raw)
    except FaultError as error:
        raise FaultError(
            FaultCode.AGENT_INVALID, f"The agent breaks its protocol: an event is no JSON ({error.fault.message})"
        ) from error
