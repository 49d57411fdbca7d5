"""HTTP calls of a server of the family."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx
from pydantic_core import PydanticSerializationError, to_json

from adapters._body import parse_json
from adapters._http import REFUSAL_LIMIT, Calls, read_bytes
from adapters._refusal import refusal
from adapters.langchain.refusal import decode_refusal
from canonical import FaultCode, FaultError
from canonical.value import Json

__all__ = ("Upstream",)


class Upstream(Calls):
    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        timeout: httpx.Timeout | float | None = None,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        super().__init__(url.rstrip("/"), headers, timeout, http)

    def opened(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None, streams: bool
    ) -> AbstractAsyncContextManager[httpx.Response]:
        accept = "text/event-stream" if streams else "application/json"
        content = _encoded({} if body is None else body) if method in ("POST", "PATCH") else None
        return self.request(method, path, {**(headers or {}), "Accept": accept}, body=content)

    async def get(self, path: str) -> Json:
        return await self._asked("GET", path)

    async def post(self, path: str, body: Any = None) -> Json:
        return await self._asked("POST", path, body)

    async def _asked(self, method: str, path: str, body: Any = None) -> Json:
        """None for an answer without a body. Raises agent_invalid."""
        async with self.opened(method, path, body, streams=False) as response:
            raw = await read_bytes(response, self.answer_limit)
        if not raw.strip():
            return None
        try:
            return parse_json(raw)
        except FaultError as error:
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server did not answer with JSON") from error

    async def refused(self, response: httpx.Response) -> FaultError:
        try:
            answer = parse_json(await read_bytes(response, REFUSAL_LIMIT))
        except FaultError:  # a proxy's page, say
            answer = None
        return refusal(decode_refusal(response.status_code, answer), response)


def _encoded(body: Any) -> bytes:
    try:
        return to_json(body)
    except PydanticSerializationError as error:
        raise FaultError(FaultCode.INVALID, "The input cannot be written as JSON") from error
