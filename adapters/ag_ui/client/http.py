"""HTTP calls to an AG-UI server."""

from contextlib import AbstractAsyncContextManager
from urllib.parse import urlsplit

import httpx
from pydantic_core import to_json

from babelgate.adapters.ag_ui.errors import error_text
from babelgate.adapters.kit.client.answers import read_bytes
from babelgate.adapters.kit.client.calls import Calls
from babelgate.canonical import Fault
from babelgate.canonical.value import Json, JsonObject


class HttpClient(Calls):
    """HTTP client for one agent: sends the requests for runs, and downloads files that the agent's server refers to."""

    def run(self, body: JsonObject) -> AbstractAsyncContextManager[httpx.Response]:
        """Send the POST request for a run. Return a context manager that yields the response, whose body is an event
        stream."""
        return self.request("POST", "", {"Accept": "text/event-stream"}, body=to_json(body))

    def is_own_file(self, url: str) -> bool:
        """Return True if another gateway serves the URL for this agent: it has the scheme, host and port of the agent's
        URL, and `/files/` in its path."""
        target, agent = urlsplit(url), urlsplit(self._base)
        return (target.scheme, target.netloc) == (agent.scheme, agent.netloc) and "/files/" in target.path

    async def file(self, url: str) -> bytes:
        """Return the content of a file of the agent's server, by its URL. Raises agent_invalid, and the fault of an
        error response."""
        path = urlsplit(url).path
        name = path.rpartition("/files/")[2]
        async with self.request("GET", f"/files/{name}", {"Accept": "*/*"}) as response:
            return await read_bytes(response, self.answer_limit)

    def decode_error_body(self, status: int, answer: Json) -> Fault:
        fault = super().decode_error_body(status, answer)
        text = error_text(answer)
        return fault.replace(message=f"{fault.message}: {text}") if text else fault
