"""HTTP calls of an A2A server. Each is given a whole URL: a card may name several."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing

import httpx

from adapters._client.answers import REFUSAL_LIMIT, parse_answer
from adapters._client.calls import Calls
from adapters._client.error_response import refusal
from adapters._sse import read_frames
from adapters.a2a.errors import decode_error
from canonical import FaultError
from canonical.value import Json


class HttpClient(Calls):
    def open_response(
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
                    yield await parse_answer(frame.data)

    async def read_refusal(self, response: httpx.Response) -> FaultError:
        try:
            answer = await self.json(response, REFUSAL_LIMIT)
        except FaultError:  # a proxy's page, say
            answer = None
        return refusal(decode_error(answer, response.status_code).fault, response)
