"""HTTP calls to a server of the Messages API. No fault repeats a header of the request, because one of them is the API
key."""

import re
from contextlib import AbstractAsyncContextManager
from typing import Final, Unpack
from urllib.parse import quote, urlsplit

import httpx
from pydantic_core import to_json

from babelgate.adapters.anthropic import wire as w
from babelgate.adapters.anthropic.errors import decode_error_response
from babelgate.adapters.kit.client.answers import read_bytes
from babelgate.adapters.kit.client.calls import Calls, Connection
from babelgate.adapters.kit.client.redact import redact_fault, secrets_in
from babelgate.canonical import Fault
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Json, JsonObject

_VERSIONED: Final = re.compile(r"/v\d+$")
"""Pattern for the end of a URL that already names a version of the API."""
_FILE_PATH: Final = re.compile(r"/messages/files/([0-9a-f]{64})$")


def base_of(url: str) -> str:
    """Return the base URL of the API: the URL itself if it ends with a version, else the URL with `/v1` appended."""
    url = url.rstrip("/")
    return url if _VERSIONED.search(url) else f"{url}/v1"


class HttpClient(Calls):
    """HTTP client of one server."""

    def __init__(self, url: str, **connection: Unpack[Connection]) -> None:
        super().__init__(base_of(url), **connection)

    def create_message(self, body: JsonObject) -> AbstractAsyncContextManager[httpx.Response]:
        """Return a context manager that sends the request for a message, and opens its response."""
        headers = {w.VERSION_HEADER: w.VERSION, "Accept": "text/event-stream, application/json"}
        return self.request("POST", "/messages", headers, body=to_json(body))

    async def get(self, path: str) -> Json:
        """Return the JSON body of the response to a GET request. Raises the fault of an error response."""
        headers = {w.VERSION_HEADER: w.VERSION, "Accept": "application/json"}
        async with self.request("GET", path, headers) as response:
            return await self.json(response)

    async def is_gateway(self, model: str) -> bool:
        """Return True if the server is another Babelgate. Raises the fault of an error response."""
        answer = as_object(await self.get(f"/models/{quote(model, safe='')}"))
        return answer.get("owned_by") == w.OWN

    def blob_of(self, url: str) -> str | None:
        """Return the hash of a file that another Babelgate serves for this agent, or None for any other URL."""
        target, agent = urlsplit(url), urlsplit(self._base)
        found = _FILE_PATH.search(target.path)
        return found[1] if found and (target.scheme, target.netloc) == (agent.scheme, agent.netloc) else None

    async def file(self, blob: str) -> bytes:
        """Return the content of a file of another Babelgate. Raises the fault of an error response."""
        async with self.request("GET", f"/messages/files/{blob}", {"Accept": "*/*"}) as response:
            return await read_bytes(response, self.answer_limit)

    def decode_error_body(self, status: int, answer: Json) -> Fault:
        return decode_error_response(status, as_object(answer))

    def redact_fault(self, fault: Fault) -> Fault:
        """Return the fault without the credentials in the request's headers, which its text may quote."""
        return redact_fault(fault, secrets_in(self._headers.values()))
