"""HTTP calls to a server that speaks one of the dialects."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx
from pydantic_core import PydanticSerializationError, to_json

from babelgate.adapters.kit.client.answers import ERROR_RESPONSE_LIMIT, parse_whole, read_bytes
from babelgate.adapters.kit.client.calls import Calls
from babelgate.adapters.kit.client.error_response import response_error
from babelgate.adapters.langchain.errors.decode import ModeRefused, decode_error_response, is_mode_refusal
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.value import Json


class HttpClient(Calls):
    def open_response(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None, streams: bool
    ) -> AbstractAsyncContextManager[httpx.Response]:
        accept = "text/event-stream" if streams else "application/json"
        content = _encode_body({} if body is None else body) if method in ("POST", "PATCH") else None
        return self.request(method, path, {**(headers or {}), "Accept": accept}, body=content)

    async def get(self, path: str) -> Json:
        return await self._request_json("GET", path)

    async def post(self, path: str, body: Any = None) -> Json:
        return await self._request_json("POST", path, body)

    async def _request_json(self, method: str, path: str, body: Any = None) -> Json:
        """Return the JSON of a response, or None if it has no body. Raises agent_invalid for a body that is too large
        or not JSON."""
        async with self.open_response(method, path, body, streams=False) as response:
            raw = await read_bytes(response, self.answer_limit)
        return None if not raw or raw.isspace() else await parse_whole(raw)

    async def read_error_response(self, response: httpx.Response) -> FaultError:
        try:
            answer = await self.json(response, ERROR_RESPONSE_LIMIT)
        except FaultError:  # for example an HTML page of a proxy
            answer = None
        error = response_error(decode_error_response(response.status_code, answer), response)
        return ModeRefused.of(error.fault) if is_mode_refusal(response.status_code, answer) else error


def _encode_body(body: Any) -> bytes:
    try:
        return to_json(body)
    except PydanticSerializationError as error:
        raise FaultError(FaultCode.INVALID, "The input cannot be written as JSON") from error
