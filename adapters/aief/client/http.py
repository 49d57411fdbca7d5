"""HTTP calls to an AIEF server."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final, Unpack

import httpx
from pydantic_core import to_json

from babelgate.adapters.kit.client.answers import read_bytes
from babelgate.adapters.kit.client.calls import Calls, Connection
from babelgate.adapters.kit.extension import HEADER, START_HEADER, URI, is_named
from babelgate.canonical import Fault, FaultCode, FaultError
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Json, JsonObject

MESSAGE_LIMIT: Final = 500
"""Maximum length of a server's error message in a fault, in characters. Chosen."""

_JSON: Final = {"Accept": "application/json"}
_KNOWN: Final = re.compile(r"/ap/v1(/agent(/tasks)?)?$")
"""Pattern for the end of a configured URL that is a path of the protocol."""


def root_of(url: str) -> str:
    """Return the URL without the path of the protocol, such as `/ap/v1/agent`, which operators may have included."""
    return _KNOWN.sub("", url.rstrip("/"))


class HttpClient(Calls):
    """HTTP client of an AIEF server."""

    answers_extended = False
    """True if the newest response of the server confirmed the Babelgate extension."""

    def __init__(self, url: str, *, extended: bool = False, **connection: Unpack[Connection]) -> None:
        super().__init__(root_of(url), **connection)
        self.extended = extended
        """True if requests ask for the Babelgate extension."""
        self._json = {**_JSON, HEADER: URI} if extended else _JSON

    async def get(
        self, path: str, deadline: float | None = None, limit: int | None = None, *, start: int | None = None
    ) -> Json:
        """Return the JSON of a GET request.

        `deadline` is a time of the event loop's clock, and `limit` a size in bytes; None means the client's default.
        `start` is a seq: a server that is another Babelgate adds the records of the run after this seq.
        """
        headers = self._json if start is None else {**self._json, START_HEADER: str(start)}
        async with _time_limit(deadline), self.request("GET", path, headers) as response:
            self._note(response)
            return await self.json(response, limit)

    def _note(self, response: httpx.Response) -> None:
        self.answers_extended = self.extended and is_named(response.headers.get(HEADER))

    async def post(
        self, path: str, body: JsonObject, deadline: float | None = None, *, start: int | None = None
    ) -> Json:
        """Post JSON and return the JSON of the response. `deadline` is a time of the event loop's clock. `start` is a
        seq: a server that is another Babelgate adds the records of the run after this seq."""
        # The connection is not reused: the Python SDK's server closes it after a failed step.
        headers = {**self._json, "Connection": "close"}
        if start is not None:
            headers[START_HEADER] = str(start)
        # Always with a body: the JavaScript SDK 1.0.5 responds with 415 otherwise.
        async with _time_limit(deadline), self.request("POST", path, headers, body=to_json(body)) as response:
            self._note(response)
            return await self.json(response)

    async def upload(
        self, path: str, name: str, content: bytes, media_type: str, deadline: float | None = None
    ) -> Json:
        """Upload a file as a form, and return the JSON of the response. `deadline` is a time of the event loop's
        clock."""
        # OpenAPI v1, uploadAgentTaskArtifacts
        files = {"file": (name, content, media_type)}
        async with _time_limit(deadline), self.request("POST", path, _JSON, files=files) as response:
            return await self.json(response)

    async def download(self, path: str, limit: int, deadline: float | None = None) -> bytes:
        """Return the bytes of a file. `deadline` is a time of the event loop's clock. Raises too_large if the file has
        more than `limit` bytes."""
        async with _time_limit(deadline), self.request("GET", path, {**self._json, "Accept": "*/*"}) as response:
            return await read_bytes(response, limit, FaultCode.TOO_LARGE)

    def decode_error_body(self, status: int, answer: Json) -> Fault:
        fault = super().decode_error_body(status, answer)
        message = "" if status in (401, 403) else _message(answer)
        return fault.replace(message=f"{fault.message}: {message}") if message else fault


@asynccontextmanager
async def _time_limit(deadline: float | None) -> AsyncGenerator[None]:
    """Limit the block to a deadline on the event loop's clock; None is no limit. Raises agent_timeout at the
    deadline."""
    bound = asyncio.timeout_at(deadline)
    try:
        async with bound:
            yield
    except TimeoutError as error:
        raise FaultError(FaultCode.AGENT_TIMEOUT, "The agent exceeded the time limit of its run") from error


def _message(answer: Json) -> str:
    """Return the text in the body of an error response: `message` in the document, `error` of the JavaScript SDK, or
    `detail` of the Python SDK. Return "" for any other body, such as an HTML page."""
    error = as_object(answer)
    for name in ("message", "error", "detail"):
        text: object = error.get(name)
        if isinstance(text, str):
            return " ".join(text.split())[:MESSAGE_LIMIT]
    return ""
