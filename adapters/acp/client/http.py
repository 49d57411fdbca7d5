"""HTTP calls of an ACP server."""

from contextlib import AbstractAsyncContextManager
from urllib.parse import quote

import httpx

from babelgate.adapters.acp import wire as w
from babelgate.adapters.acp.errors import decode_error
from babelgate.adapters.kit.client.answers import ERROR_RESPONSE_LIMIT, read_bytes
from babelgate.adapters.kit.client.calls import Calls
from babelgate.adapters.kit.client.error_response import response_error
from babelgate.adapters.kit.client.status import fault_code
from babelgate.adapters.kit.extension import HEADER, START_HEADER, URI
from babelgate.adapters.kit.json import validate
from babelgate.canonical import Fault, FaultError
from babelgate.canonical.value import Json


def run_path(run_id: str) -> str:
    return f"/runs/{quote(run_id, safe='')}"


class HttpClient(Calls):
    extended = False
    """The Babelgate extension is asked for."""
    answers_extended: bool | None = None
    """The server speaks it, as its last answer says; None where there was none yet."""

    def open_response(
        self, method: str, path: str, body: bytes | None = None, *, start: int | None = None
    ) -> AbstractAsyncContextManager[httpx.Response]:
        """`start` = the seq after which a gateway like this one is to tell a run's events again, as a stream."""
        # Only a POST may be answered by a stream: the list of a run's events is one too where it is asked for as one.
        # NB: the official client leaves the content type of a body out, and newer servers of its own kind refuse that.
        accept = "application/json" if method == "GET" else "text/event-stream, application/json"
        headers = {"Accept": accept if start is None else "text/event-stream"}
        if self.extended:
            headers[HEADER] = URI
        if start is not None:
            headers[START_HEADER] = str(start)
        return self.request(method, path, headers, body=body)

    async def file(self, blob: str) -> bytes:
        """Of a gateway like this one: a file by its hash. Raises what the server answers instead, and agent_invalid."""
        async with self.request("GET", f"/resources/{quote(blob, safe='')}", {"Accept": "*/*"}) as response:
            return await read_bytes(response, self.answer_limit)

    async def get(self, path: str) -> Json:
        async with self.open_response("GET", path) as response:
            return await self.json(response)

    async def cancel(self, run_id: str) -> None:
        # paths./runs/{run_id}/cancel: no body.
        async with self.open_response("POST", run_path(run_id) + "/cancel"):
            pass

    async def read_error_response(self, response: httpx.Response) -> FaultError:
        code = fault_code(response.status_code)
        told = f"The agent's server answered {response.status_code}"
        try:
            error = validate(w.Error, await self.json(response, ERROR_RESPONSE_LIMIT))
        except FaultError:  # a proxy's page, say
            return response_error(Fault(code=code, message=told), response)
        details = decode_error(error).details
        return response_error(Fault(code=code, message=f"{told}: {error.message}", details=details), response)
