"""What a server is and can: found out once, when it is needed first."""

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

PATIENCE: Final = 2.0
"""Seconds that a run waits for the schemas of its graph. Chosen: most servers answer at once."""
LONGEST: Final = 60.0
"""Seconds for which they are waited for in the background. Chosen."""


class Server:
    """With one of its agents."""

    def __init__(self, http: HttpClient, agent: str, dialect: Dialect | None, *, extension: bool) -> None:
        self._asks: Mapping[str, str] = {HEADER: URI} if extension else {}
        self.http: Final = http
        self.agent: Final = agent
        self.dialect: Dialect | None = dialect
        self.layout: Layout | None = None
        self.modes: str | None = None
        """The stream modes that it takes, where these are not all."""
        self.has_run = False
        """It has taken a run, so it takes these modes."""
        self.debugs: bool | None = None
        """The server is a gateway like this one, which tells of tools in the mode `debug`."""
        self.extended = False
        """It has the Babelgate extension, and it is to be activated."""
        self.shape: InputSchema | None = None
        self.outputs: frozenset[str] | None = None
        self._learning: asyncio.Task[None] | None = None

    async def detect_layout(self, call: Invocation, run_id: str) -> Layout:
        """The layout of the Agent Protocol, where no run of this client has shown it yet."""
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
        """A gateway like this one names itself in a header of each answer."""
        if self.debugs is not None:
            return
        path = f"/agents/{quote(self.agent, safe='')}"
        try:
            async with self.http.open_response("GET", path, headers=self._asks, streams=False) as response:
                self.debugs = "babelgate" in response.headers
                self._read_confirmation(response)
        except FaultError as error:  # the run itself tells of it
            if status_of(error.fault) in NOT_THERE:
                self.debugs = False

    async def learn(self) -> None:
        """Fetch the schemas of the graph. A graph without schemas takes messages.

        If the server is slow, the fetch continues in the background, for later runs. Raises agent_unreachable if nobody
        answers.
        """
        if self.shape is not None or self.dialect != "langgraph":
            return
        if self._learning is None:
            self._learning = asyncio.ensure_future(self._fetch_schemas())
            self._learning.add_done_callback(self._forget)
        learning = self._learning
        await asyncio.wait((learning,), timeout=PATIENCE)
        if learning.done() and not learning.cancelled():
            learning.result()

    def _forget(self, learned: asyncio.Task[None]) -> None:
        self._learning = None
        if not learned.cancelled():
            learned.exception()

    async def _fetch_schemas(self) -> None:
        try:
            path = f"/assistants/{self.assistant_id}/schemas"
            async with (
                asyncio.timeout(LONGEST),
                self.http.open_response("GET", path, headers=self._asks, streams=False) as response,
            ):
                told = decode_schemas(await self.http.json(response))
                self._read_confirmation(response)
        except TimeoutError:
            return
        except FaultError as error:
            status = status_of(error.fault)
            if error.fault.code is FaultCode.AGENT_UNREACHABLE and status is None:
                raise
            is_slow = error.fault.code is FaultCode.AGENT_TIMEOUT
            if is_slow or (status is not None and status >= 500 and status not in NOT_THERE):
                return  # the next run asks again
            told = {}
        # There is no schema of the input where the types of the graph are none that its server can describe.
        self.shape = InputSchema(told.get("input") or told.get("state"))
        outputs = as_object(as_object(told.get("output")).get("properties"))
        self.outputs = frozenset(outputs) or None

    async def aclose(self) -> None:
        if self._learning is not None:
            self._learning.cancel()
            await asyncio.wait((self._learning,))

    def _read_confirmation(self, response: httpx.Response) -> None:
        self.extended = bool(self._asks) and is_named(response.headers.get(HEADER))

    async def file(self, blob: str) -> bytes:
        """Of a gateway like this one, by its hash. Raises what the server answers instead."""
        path = f"/agents/{quote(self.agent, safe='')}/files/{quote(blob, safe='')}"
        async with self.http.open_response("GET", path, streams=False) as response:
            return await read_bytes(response, self.http.answer_limit)

    async def of_assistant(self, path: str) -> JsonObject | None:
        """None from a server that knows nothing of assistants."""
        if await self.detect_dialect() != "langgraph":
            return None
        try:
            told = await self.http.get(f"/assistants/{self.assistant_id}/{path}")
        except FaultError as error:
            if status_of(error.fault) in (*NOT_THERE, 422):
                return None
            raise
        return told if isinstance(told, dict) else None

    @property
    def assistant_id(self) -> str:
        return self.agent if is_uuid(self.agent) else assistant_id(self.agent)
