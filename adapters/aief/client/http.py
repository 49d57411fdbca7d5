"""HTTP calls of an AIEF server."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final, Unpack, cast

import httpx
from pydantic_core import to_json

from babelgate.adapters.kit.client.answers import ERROR_RESPONSE_LIMIT, read_answer, read_bytes
from babelgate.adapters.kit.client.calls import Calls, Connection
from babelgate.adapters.kit.client.error_response import response_error
from babelgate.adapters.kit.client.status import fault_code
from babelgate.adapters.kit.extension import HEADER, START_HEADER, URI, is_named
from babelgate.canonical import Fault, FaultCode, FaultError
from babelgate.canonical.value import Json, JsonObject

WORDS_LIMIT: Final = 500
"""Characters of what a server says in an error response."""

_JSON: Final = {"Accept": "application/json"}
_KNOWN: Final = re.compile(r"/ap/v1(/agent(/tasks)?)?$")


def root_of(url: str) -> str:
    """What comes before `/ap/v1`: operators give the server, or as much of the path as they know."""
    return _KNOWN.sub("", url.rstrip("/"))


class HttpClient(Calls):
    answers_extended = False
    """The server speaks the Babelgate extension, as its last answer says."""

    def __init__(self, url: str, *, extended: bool = False, **connection: Unpack[Connection]) -> None:
        super().__init__(root_of(url), **connection)
        self.extended = extended
        """The extension is asked for."""
        self._json = {**_JSON, HEADER: URI} if extended else _JSON

    async def get(
        self, path: str, until: float | None = None, limit: int | None = None, *, start: int | None = None
    ) -> Json:
        """`start` = the seq after which a gateway like this one is to tell the records of a run."""
        headers = self._json if start is None else {**self._json, START_HEADER: str(start)}
        async with _before(until), self.request("GET", path, headers) as response:
            self._note(response)
            return await self.json(response, limit)

    def _note(self, response: httpx.Response) -> None:
        self.answers_extended = self.extended and is_named(response.headers.get(HEADER))

    async def post(self, path: str, body: JsonObject, until: float | None = None, *, start: int | None = None) -> Json:
        # Its connection is not used again: the Python SDK's server hangs up after a step that failed.
        headers = {**self._json, "Connection": "close"}
        if start is not None:
            headers[START_HEADER] = str(start)
        # Always with a body: the JavaScript SDK 1.0.5 answers 415 to none.
        async with _before(until), self.request("POST", path, headers, body=to_json(body)) as response:
            self._note(response)
            return await self.json(response)

    async def upload(self, path: str, name: str, content: bytes, media_type: str, until: float | None = None) -> Json:
        # OpenAPI v1, uploadAgentTaskArtifacts.
        files = {"file": (name, content, media_type)}
        async with _before(until), self.request("POST", path, _JSON, files=files) as response:
            return await self.json(response)

    async def download(self, path: str, limit: int, until: float | None = None) -> bytes:
        """Raises too_large."""
        async with _before(until), self.request("GET", path, {**self._json, "Accept": "*/*"}) as response:
            return await read_bytes(response, limit, FaultCode.TOO_LARGE)

    async def read_error_response(self, response: httpx.Response) -> FaultError:
        status = response.status_code
        told = f"The agent's server answered {status}"
        words = "" if status in (401, 403) else await _words(response)
        return response_error(Fault(code=fault_code(status), message=f"{told}: {words}" if words else told), response)


@asynccontextmanager
async def _before(until: float | None) -> AsyncGenerator[None]:
    """`until` = on the loop's clock."""
    bound = asyncio.timeout_at(until)
    try:
        async with bound:
            yield
    except TimeoutError as error:
        raise FaultError(FaultCode.AGENT_TIMEOUT, "The agent took longer than its run may last") from error


async def _words(response: httpx.Response) -> str:
    """What it says of it: a `message` by the document, an `error` by the JavaScript SDK, a `detail` by the Python one.
    A page is nobody's words."""
    try:
        answer = await read_answer(response, ERROR_RESPONSE_LIMIT)
    except FaultError:
        return ""
    if not isinstance(answer, dict):
        return ""
    said = cast("dict[str, Any]", answer)
    for name in ("message", "error", "detail"):
        if isinstance(said.get(name), str):
            return " ".join(said[name].split())[:WORDS_LIMIT]
    return ""
