"""HTTP calls to an ACP server."""

from contextlib import AbstractAsyncContextManager
from urllib.parse import quote

import httpx

from babelgate.adapters.acp import wire as w
from babelgate.adapters.acp.errors import decode_error
from babelgate.adapters.kit.client.answers import read_bytes
from babelgate.adapters.kit.client.calls import Calls
from babelgate.adapters.kit.extension import HEADER, START_HEADER, URI
from babelgate.adapters.kit.json import validate
from babelgate.canonical import Fault, FaultError
from babelgate.canonical.value import Json


def run_path(run_id: str) -> str:
    """Return the path of a run on its server."""
    return f"/runs/{quote(run_id, safe='')}"


class HttpClient(Calls):
    """HTTP calls of an ACP server's methods."""

    extended = False
    """True if requests activate the Babelgate extension."""
    answers_extended: bool | None = None
    """True if the server supports the Babelgate extension, according to its latest streamed response. None before
    that."""

    def open_response(
        self, method: str, path: str, body: bytes | None = None, *, start: int | None = None
    ) -> AbstractAsyncContextManager[httpx.Response]:
        """Send a request, with the JSON `body` if there is one, and return its response as a context. With `start`, a
        server that is another gateway streams the events of a run after this seq."""
        # Only a POST may have a stream as its response: the list of a run's events would also be one if the request
        # accepted it. The official client sends no content type for a body, which newer official servers reject.
        accept = "application/json" if method == "GET" else "text/event-stream, application/json"
        headers = {"Accept": accept if start is None else "text/event-stream"}
        if self.extended:
            headers[HEADER] = URI
        if start is not None:
            headers[START_HEADER] = str(start)
        return self.request(method, path, headers, body=body)

    async def file(self, blob: str) -> bytes:
        """Return the bytes of a file that another gateway stores under the hash `blob`. Raises agent_invalid, and the
        fault of an error response."""
        async with self.request("GET", f"/resources/{quote(blob, safe='')}", {"Accept": "*/*"}) as response:
            return await read_bytes(response, self.answer_limit)

    async def get(self, path: str) -> Json:
        """Return the JSON of the response to a GET request."""
        async with self.open_response("GET", path) as response:
            return await self.json(response)

    async def cancel(self, run_id: str) -> None:
        """Ask the server to cancel a run."""
        # paths./runs/{run_id}/cancel: no body.
        async with self.open_response("POST", run_path(run_id) + "/cancel"):
            pass

    def decode_error_body(self, status: int, answer: Json) -> Fault:
        fault = super().decode_error_body(status, answer)
        try:
            error = validate(w.Error, answer)
        except FaultError:
            return fault
        return fault.replace(message=f"{fault.message}: {error.message}", details=decode_error(error).details)
