"""Detection of the properties and capabilities of an upstream server, each once, when it is first needed."""

import asyncio
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

import httpx

from babelgate.adapters.kit.client.answers import read_bytes
from babelgate.adapters.kit.extension import HEADER, URI, is_named
from babelgate.adapters.langchain.agents import decode_schemas
from babelgate.adapters.langchain.client.http import HttpClient
from babelgate.adapters.langchain.client.resume import NOT_THERE
from babelgate.adapters.langchain.client.urls import Layout, Route
from babelgate.adapters.langchain.codec.state import assistant_id
from babelgate.adapters.langchain.codec.stream_modes import Dialect
from babelgate.adapters.langchain.errors.decode import status_of
from babelgate.adapters.langchain.request import InputSchema
from babelgate.canonical import FaultCode, FaultError, Invocation
from babelgate.canonical.json import as_object
from babelgate.canonical.value import JsonObject, is_uuid

SCHEMAS_TIMEOUT: Final = 2.0
"""Seconds that a run waits for the schemas of its graph. Chosen: most servers respond immediately."""
BACKGROUND_TIMEOUT: Final = 60.0
"""Timeout of fetching the schemas in the background, in seconds. Chosen."""


class UpstreamServer:
    """Connection data and detected capabilities of one upstream server, for one of its agents. All runs of that agent
    share the instance."""

    def __init__(self, http: HttpClient, agent: str, dialect: Dialect | None, *, extension: bool) -> None:
        self._extension_headers: Mapping[str, str] = {HEADER: URI} if extension else {}
        self.http: Final = http
        self.agent: Final = agent
        self.dialect: Dialect | None = dialect
        self.layout: Layout | None = None
        self.modes: str | None = None
        """Key of `MODES` for the stream modes that the server accepts, for example `langgraph-basic`. None: the server
        has not refused the full list."""
        self.accepts_modes = False
        """True if the server has accepted a run with the stream modes of `modes`."""
        self.is_gateway: bool | None = None
        """True if the server is a Babelgate, whose stream mode `debug` reports tool calls. None: not known yet."""
        self.has_extension = False
        """True if the server has the Babelgate extension and the client activates it."""
        self.input_schema: InputSchema | None = None
        """JSON Schema of the graph's input. None: not fetched yet."""
        self.outputs: frozenset[str] | None = None
        """Names of the members of the graph's output, from its JSON Schema. None: not known, so all members count."""
        self._schemas_task: asyncio.Task[None] | None = None
        """Task that fetches the schemas, while it runs."""

    async def detect_layout(self, call: Invocation, run_id: str) -> Layout:
        """Return the layout of an Agent Protocol server for a joined run. If no earlier run has shown the layout,
        request the run under the README's path; `openapi` is the layout of servers without that path."""
        thread_id = call.upstream.get("task")
        if self.layout is None and thread_id is not None:
            try:
                await self.http.get(Route("readme", thread_id, run_id).run)
                self.layout = "readme"
            except FaultError as error:
                if status_of(error.fault) not in NOT_THERE:
                    raise
                self.layout = "openapi"
        return self.layout or "openapi"

    async def detect_dialect(self) -> Dialect:
        """Return the server's dialect: the configured one, or else LangGraph if the server has assistants. Raises the
        fault of a failed request."""
        if self.dialect is None:
            try:
                await self.http.post("/assistants/search", {"limit": 1})
                self.dialect = "langgraph"
            except FaultError as error:
                if status_of(error.fault) not in NOT_THERE:
                    raise
                self.dialect = "agent-protocol"
        return self.dialect

    async def recognize(self) -> None:
        """Set `is_gateway`, from a response header that every Babelgate sends. If the request fails, the value stays
        unknown."""
        if self.is_gateway is not None:
            return
        path = f"/agents/{quote(self.agent, safe='')}"
        try:
            async with self.http.open_response("GET", path, headers=self._extension_headers, streams=False) as response:
                self.is_gateway = "babelgate" in response.headers
                self._read_confirmation(response)
        except FaultError as error:  # the run itself reports the failure
            if status_of(error.fault) in NOT_THERE:
                self.is_gateway = False

    async def fetch_schemas(self) -> None:
        """Fetch the schemas of the graph into `input_schema` and `outputs`, if they are not known. A graph without
        schemas takes messages.

        After `SCHEMAS_TIMEOUT` the fetch continues in the background, for later runs. Raises agent_unreachable if the
        server cannot be reached.
        """
        if self.input_schema is not None or self.dialect != "langgraph":
            return
        if self._schemas_task is None:
            self._schemas_task = asyncio.ensure_future(self._read_schemas())
            self._schemas_task.add_done_callback(self._forget_task)
        task = self._schemas_task
        await asyncio.wait((task,), timeout=SCHEMAS_TIMEOUT)
        if task.done() and not task.cancelled():
            task.result()

    def _forget_task(self, task: asyncio.Task[None]) -> None:
        """Clear `_schemas_task` when it is done. Reads the task's exception, so that asyncio does not log it as never
        retrieved."""
        self._schemas_task = None
        if not task.cancelled():
            task.exception()

    async def _read_schemas(self) -> None:
        try:
            path = f"/assistants/{self.assistant_id}/schemas"
            async with (
                asyncio.timeout(BACKGROUND_TIMEOUT),
                self.http.open_response("GET", path, headers=self._extension_headers, streams=False) as response,
            ):
                schemas = decode_schemas(await self.http.json(response))
                self._read_confirmation(response)
        except TimeoutError:
            return
        except FaultError as error:
            status = status_of(error.fault)
            if error.fault.code is FaultCode.AGENT_UNREACHABLE and status is None:
                raise
            is_busy = error.fault.code in (FaultCode.AGENT_TIMEOUT, FaultCode.LIMITED)
            if is_busy or (status is not None and status >= 500 and status not in NOT_THERE):
                return  # the next run fetches them again
            schemas = {}
        # The schema of the input is missing if the server cannot describe the types of the graph.
        self.input_schema = InputSchema(schemas.get("input") or schemas.get("state"))
        outputs = as_object(as_object(schemas.get("output")).get("properties"))
        self.outputs = frozenset(outputs) or None

    async def aclose(self) -> None:
        if self._schemas_task is not None:
            self._schemas_task.cancel()
            await asyncio.wait((self._schemas_task,))

    def _read_confirmation(self, response: httpx.Response) -> None:
        """Set `has_extension` from the response's header, with which a Babelgate confirms that it activated the
        extension."""
        self.has_extension = bool(self._extension_headers) and is_named(response.headers.get(HEADER))

    async def file(self, blob: str) -> bytes:
        """Return the bytes of a file from a server that is a Babelgate. `blob` is the hash of the file. Raises the
        fault of the server's error response."""
        path = f"/agents/{quote(self.agent, safe='')}/files/{quote(blob, safe='')}"
        async with self.http.open_response("GET", path, streams=False) as response:
            return await read_bytes(response, self.http.answer_limit)

    async def get_from_assistant(self, path: str) -> JsonObject | None:
        """Return the JSON object at `/assistants/<id>/<path>` of the agent's assistant. Return None if the server has
        no such path or assistant, or sends no object. Raises the fault of other errors."""
        if await self.detect_dialect() != "langgraph":
            return None
        try:
            reply = await self.http.get(f"/assistants/{self.assistant_id}/{path}")
        except FaultError as error:
            if status_of(error.fault) in (*NOT_THERE, 422):
                return None
            raise
        return reply if isinstance(reply, dict) else None

    @property
    def assistant_id(self) -> str:
        return self.agent if is_uuid(self.agent) else assistant_id(self.agent)
