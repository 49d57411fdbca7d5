"""HTTP calls to an OpenAI-compatible server. No fault repeats a header of the request, because one of them is the API
key."""

import json
import re
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import Final, Unpack

import httpx

from babelgate.adapters.kit.client.calls import Calls, Connection
from babelgate.adapters.kit.client.redact import redact_fault, secrets_in
from babelgate.adapters.kit.json import validate
from babelgate.adapters.openai.errors.decode import decode_error_response
from babelgate.adapters.openai.wire import answers as w
from babelgate.canonical import Fault, FaultCode, FaultError
from babelgate.canonical.value import Json, JsonObject

_VERSIONED: Final = re.compile(r"/(v\d+\w*|openai)$")
"""Pattern for the end of a URL that already names a version of the API, such as `/v1`."""


def base_of(url: str) -> str:
    """Return the base URL of the API: the URL itself if it ends with a version, else the URL with `/v1` appended."""
    url = url.rstrip("/")
    return url if _VERSIONED.search(url) else f"{url}/v1"


class HttpClient(Calls):
    """HTTP client of one OpenAI-compatible server."""

    def __init__(self, url: str, **connection: Unpack[Connection]) -> None:
        super().__init__(base_of(url), **connection)

    def open_response(
        self, method: str, path: str, body: JsonObject | None = None, headers: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[httpx.Response]:
        """Return a context manager that sends a request and opens its response. With a JSON `body`, the request accepts
        a stream of events, too."""
        all_headers = {**(headers or {}), "Accept": "application/json"}
        if body is None:
            return self.request(method, path, all_headers)
        all_headers["Accept"] = "text/event-stream, application/json"
        return self.request(method, path, all_headers, body=_encode_body(body))

    async def get(self, path: str) -> Json:
        """Return the JSON body of the response to a GET request. Raises the fault of an error response."""
        async with self.open_response("GET", path) as response:
            return await self.json(response)

    def decode_error_body(self, status: int, answer: Json) -> Fault:
        error: w.Error | str | None = None
        with suppress(FaultError):
            # `{"error": {…}}` (docs/guides/error-codes), unwrapped as in openai-python 3.54.0 (_client.py,
            # `_make_status_error`). Like that client, accept the error's members without a wrapper, as some servers
            # send them. FastAPI sends {"detail"}.
            error = validate(w.ErrorBody, answer).error or validate(w.Error, answer)
        return decode_error_response(status, error)

    def redact_fault(self, fault: Fault) -> Fault:
        """Return the fault without the credentials in the request's headers, which its text may quote."""
        return redact_fault(fault, secrets_in(self._headers.values()))


def _encode_body(body: JsonObject) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise FaultError(FaultCode.INVALID, "The input cannot be written as JSON") from error
