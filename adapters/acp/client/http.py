"""HTTP calls of an ACP server."""

from contextlib import AbstractAsyncContextManager
from urllib.parse import quote

import httpx

from adapters._client.answers import REFUSAL_LIMIT
from adapters._client.calls import Calls
from adapters._client.error_response import response_error
from adapters._client.status import fault_code
from adapters._json import validate
from adapters.acp import wire as w
from adapters.acp.errors import decode_error
from canonical import Fault, FaultError
from canonical.value import Json


def run_path(run_id: str) -> str:
    return f"/runs/{quote(run_id, safe='')}"


class HttpClient(Calls):
    def open_response(
        self, method: str, path: str, body: bytes | None = None
    ) -> AbstractAsyncContextManager[httpx.Response]:
        # Only a POST may be answered by a stream: the list of a run's events is one too where it is asked for as one.
        # NB: the official client leaves the content type of a body out, and newer servers of its own kind refuse that.
        accept = "application/json" if method == "GET" else "text/event-stream, application/json"
        return self.request(method, path, {"Accept": accept}, body=body)

    async def get(self, path: str) -> Json:
        async with self.open_response("GET", path) as response:
            return await self.json(response)

    async def cancel(self, run_id: str) -> None:
        # paths./runs/{run_id}/cancel: no body.
        async with self.open_response("POST", run_path(run_id) + "/cancel"):
            pass

    async def read_refusal(self, response: httpx.Response) -> FaultError:
        code = fault_code(response.status_code)
        told = f"The agent's server answered {response.status_code}"
        try:
            error = validate(w.Error, await self.json(response, REFUSAL_LIMIT))
        except FaultError:  # a proxy's page, say
            return response_error(Fault(code=code, message=told), response)
        details = decode_error(error).details
        return response_error(Fault(code=code, message=f"{told}: {error.message}", details=details), response)
