"""Clients for a tool of another MCP server, behind a URL or in a program. A call of the tool is a run. Its progress
notifications become progress messages, and its elicitations become questions. After a restart, the client can find the
task of a call again if the server has the tasks extension."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Final, Unpack

import httpx

from babelgate.adapters.kit.client.authorization import AuthorizationNeeded
from babelgate.adapters.kit.client.backoff import FIRST_WAIT, LAST_WAIT, POLL_TIMEOUT, Backoff, time_limit
from babelgate.adapters.kit.client.blobs import NO_FILE
from babelgate.adapters.kit.client.calls import Connection
from babelgate.adapters.kit.client.driver import ReattachableClient, Stage, UpstreamRun
from babelgate.adapters.kit.client.redact import redact_fault, secrets_in
from babelgate.adapters.kit.client.status import is_retryable
from babelgate.adapters.kit.extension import declared_tools
from babelgate.adapters.kit.program import ProgramHost, ProgramRules
from babelgate.adapters.mcp.agents import decode_tool
from babelgate.adapters.mcp.client.http import HttpClient
from babelgate.adapters.mcp.client.open_call import OpenCall, ParkedCalls, StatelessCall
from babelgate.adapters.mcp.client.process import ProcessClient
from babelgate.adapters.mcp.client.server_client import ServerClient, Session, Version
from babelgate.adapters.mcp.codec.arguments import THREAD
from babelgate.adapters.mcp.read.questions import PROTOCOL, decode_request, encode_answer
from babelgate.adapters.mcp.read.result import ResultReader, decode_contents
from babelgate.adapters.mcp.request import ToolArguments, encode_arguments
from babelgate.canonical import AgentInfo, Event, FaultCode, FaultError, FilePart, Invocation, Record, RunStatus
from babelgate.canonical.agent import DETACH
from babelgate.canonical.event import (
    ArtifactAdded,
    InterruptRaised,
    PartAdded,
    RunCreated,
    RunEnded,
    UpstreamBound,
)
from babelgate.canonical.json import as_object, as_text, objects_in
from babelgate.canonical.state import RunReason
from babelgate.canonical.value import JsonObject

__all__ = ("Client", "ProgramClient", "discover")

_PAGES: Final = 20
"""Maximum number of pages that are read of a server's list of tools. Chosen."""
_TASK: Final = "task"
"""Key, in the upstream ids of a run, for the id of the server's task (tasks extension)."""


class ToolClient(ReattachableClient[ServerClient]):
    """Client for a tool of an MCP server, whichever transport carries the messages."""

    def __init__(self, server: ServerClient, tool: str, version: str) -> None:
        """Create the client. `version` is the version that the server speaks. `2025-11-25` also means any earlier
        version, which the handshake then negotiates. With `auto`, the client asks the server."""
        super().__init__(server)
        if version != "auto":
            server.set_version(version)
        self._tool = tool
        self._waiting_calls = ParkedCalls()
        self._schema: JsonObject | None = None

    def start(self, call: Invocation) -> UpstreamRun:
        """Return the run that calls the tool, or answers the questions of an earlier call."""
        return _Run(self, call)

    def find(self, call: Invocation) -> UpstreamRun:
        """Return the run that polls the task which the server created for this call."""
        return _Run(self, call, is_attached=True)

    async def aclose(self) -> None:
        """End the calls that wait for answers, and close the connections."""
        await self._waiting_calls.aclose()
        await super().aclose()

    @property
    def server(self) -> ServerClient:
        """Client of the server that has the tool."""
        return self._http

    @property
    def waiting_calls(self) -> ParkedCalls:
        """Calls that wait for the caller's answers, on servers of versions up to 2025-11-25."""
        return self._waiting_calls

    @property
    def tool(self) -> str:
        """Name of the tool on its server."""
        return self._tool

    async def schema(self, session: Session | None) -> JsonObject:
        """Return the input schema of the tool. It is requested once. Raises agent_invalid if the server has no such
        tool."""
        if self._schema is None:
            self._schema = as_object((await self.find_tool(session)).get("inputSchema"))
        return self._schema

    async def find_tool(self, session: Session | None) -> JsonObject:
        """Return the tool as its server lists it. Raises agent_invalid if the server has no such tool."""
        tools = await _list_tools(self._http, session)
        found = next((tool for tool in tools if tool.get("name") == self._tool), None)
        if found is None:
            raise FaultError(FaultCode.AGENT_INVALID, f"The agent's server has no tool {self._tool}")
        return found


class Client(ToolClient):
    """Client for the tool `agent` of the MCP endpoint `url`."""

    def __init__(self, url: str, agent: str, *, version: Version = "auto", **connection: Unpack[Connection]) -> None:
        super().__init__(HttpClient(url, **connection), agent, version)


class ProgramClient(ToolClient):
    """Client for a tool of an MCP server that the gateway starts as a program."""

    def __init__(self, name: str, host: ProgramHost, rules: ProgramRules) -> None:
        """Create the client. The first call starts the program. `name` is that of the agent."""
        super().__init__(
            ProcessClient.share(name, host, rules), rules.agent or name, rules.options.get("version", "auto")
        )
        self._secrets = secrets_in(rules.secrets)

    def run(self, call: Invocation) -> AsyncGenerator[Event]:
        return self._redact(super().run(call))

    def reattach(self, call: Invocation) -> AsyncGenerator[Event]:
        return self._redact(super().reattach(call))

    async def _redact(self, events: AsyncGenerator[Event]) -> AsyncGenerator[Event]:
        """Yield the events of a run. Raises its fault without the secrets of the program's environment."""
        try:
            async with aclosing(events):
                async for event in events:
                    if isinstance(event, RunEnded) and event.fault is not None:
                        yield event.replace(fault=redact_fault(event.fault, self._secrets))
                    else:
                        yield event
        except FaultError as error:
            raise FaultError.of(redact_fault(error.fault, self._secrets)) from error

    async def describe(self) -> AgentInfo:
        """Return the tool as an agent. Raises agent_invalid if the server has no such tool."""
        async with _session(self._http) as session:
            info = decode_tool(await self.find_tool(session))
        assert info is not None
        return info


class _Run(UpstreamRun):
    """One run: a call of the tool, an answer to its questions, or the rest of a task."""

    def __init__(self, client: ToolClient, call: Invocation, *, is_attached: bool = False) -> None:
        self._client = client
        self._http = client.server
        self._call = call
        self._is_attached = is_attached
        self._reader = ResultReader()
        self._open: OpenCall | None = None
        self._stateless: StatelessCall | None = None
        self._has_stopped = False

    @property
    def is_cancellable(self) -> bool:
        """True while a task or a call is active."""
        is_active = self._reader.task_id is not None or self._open is not None or self._stateless is not None
        return is_active and not self._has_stopped

    async def cancel(self) -> None:
        """Cancel the task or the call on its server."""
        if self._reader.task_id is None and self._stateless is not None:
            response = await self._stateless.close()
            result = as_object(None if response is None else response.get("result"))
            if result.get("resultType") == "task":
                self._reader.read_result(result)
        if self._reader.task_id is not None:
            await self._http.ask("tasks/cancel", {"taskId": self._reader.task_id})
        elif self._open is not None:
            await self._open.aclose()

    async def stages(self) -> AsyncGenerator[Stage]:
        """Yield the stages of the run: the call or the answers, and then the polling of a task. Raises agent_invalid if
        the run must be found again, and the server created no task for it."""
        if self._is_attached:
            self._reader.task_id = self._call.upstream.get(_TASK)
            if self._reader.task_id is None:
                raise FaultError(FaultCode.AGENT_INVALID, "The agent's server created no task for this run")
        elif await self._http.is_stateless():
            yield self._call_stateless()
        else:
            yield self._call_in_session()
        if self._reader.task_id is not None and not self._has_stopped:
            yield self._poll(self._reader.task_id)

    # 2026-07-28

    async def _call_stateless(self) -> Stage:
        """Call the tool, or repeat the call with answers, or send the answers to a task."""
        params: JsonObject = {}
        meta = _meta(self._call)
        if self._call.answers:
            past = await self._call.past()
            results, stored = _results(self._call, past)
            self._reader = ResultReader(as_object(stored.get("read")))
            if (task_id := as_text(stored.get(_TASK))) != "":
                await self._http.ask("tasks/update", {"taskId": task_id, "inputResponses": results})
                self._reader.task_id = task_id
                yield [UpstreamBound(protocol=PROTOCOL, ids={_TASK: task_id})]
                return
            params["inputResponses"] = results
            if stored.get("requestState") is not None:
                params["requestState"] = stored["requestState"]
            self._call = await _first_call(self._call, past)
        encoded = encode_arguments(self._call, await self._client.schema(None))
        params |= {"name": self._client.tool, "arguments": encoded.arguments}
        params["_meta"] = meta
        if not self._call.answers:
            yield self._begin(encoded)
        self._stateless = StatelessCall(self._http, params)
        try:
            while not self._has_stopped and self._reader.task_id is None:
                yield await self._read(await self._stateless.next(), None)
            self._stateless.drop()  # a server may keep the stream open after its response
        except FaultError:
            self._has_stopped = True
            self._stateless.drop()
            raise
        except asyncio.CancelledError as error:
            if DETACH in error.args:  # the gateway stops, and does not cancel the run
                self._stateless.drop()
            raise

    def _begin(self, encoded: ToolArguments) -> Sequence[Event]:
        """Return the first events of a call: the losses of its input, and `UpstreamBound` with the name of the
        conversation on the server, if the arguments have one."""
        thread = as_text(encoded.arguments.get(THREAD))
        bound = [UpstreamBound(protocol=PROTOCOL, ids={"context": thread})] if thread else []
        return [*bound, *encoded.losses]

    async def _read(self, message: JsonObject, session: Session | None) -> Sequence[Event]:
        """Return the events for a message of the server. Raises agent_failed for an error."""
        if "method" in message:
            return self._reader.read_notification(message)
        if "error" in message:
            self._has_stopped = True
            raise _as_fault(message)
        events = self._reader.read_result(as_object(message.get("result")))
        if self._reader.task_id is not None:
            return [UpstreamBound(protocol=PROTOCOL, ids={_TASK: self._reader.task_id})]
        self._has_stopped = True
        return await self._with_files(events, session)

    async def _poll(self, task_id: str) -> Stage:
        """Poll a task until it ends or asks (SEP-2663). Raises the fault of a failed task, and agent_invalid for an
        unknown status."""
        backoff = Backoff(FIRST_WAIT, LAST_WAIT)

        async def ask() -> JsonObject:
            async with time_limit(POLL_TIMEOUT):
                return await self._http.ask("tasks/get", {"taskId": task_id})

        while True:
            task = await backoff.poll(ask)
            status = None if task is None else task.get("status")
            if task is None or status == "working":
                if task is not None and (progress := self._reader.read_state(task)):
                    yield progress
                await backoff.wait()
                continue
            self._has_stopped = True
            match status:
                case "completed":
                    yield await self._with_files(self._reader.read_result(as_object(task.get("result"))), None)
                case "input_required":
                    yield self._reader.read_pause(task, {_TASK: task_id})
                case "cancelled":
                    yield [RunEnded(status=RunStatus.CANCELLED, reason=RunReason.CALLER)]
                case "failed":
                    raise _as_fault(task)
                case _:
                    raise FaultError(FaultCode.AGENT_INVALID, f"The agent's task has the status {str(status)[:50]!r}")
            return

    # Up to 2025-11-25

    async def _call_in_session(self) -> Stage:
        """Call the tool in a separate session, or answer the question of a call that waits, and read the call until
        it ends or asks."""
        if self._call.answers:
            self._open = self._client.waiting_calls.take(self._call.task_id)
            if self._open is None:
                raise FaultError(
                    FaultCode.AGENT_NOT_REPLAYABLE, "The call that asked this question waits no longer for its answer"
                )
            results, _ = _results(self._call, await self._call.past())
            await self._open.answer(next(iter(results.values())))
            session = self._open.session
        else:
            session = await self._http.initialize()
            try:
                encoded = encode_arguments(self._call, await self._client.schema(session))
            except FaultError:
                await self._http.close_session(session)
                raise
            yield self._begin(encoded)
            params = {"name": self._client.tool, "arguments": encoded.arguments}
            self._open = OpenCall(self._http, session, {**params, "_meta": _meta(self._call)})
        try:
            while not self._has_stopped:
                message = await self._open.next()
                if message.get("method") == "elicitation/create":
                    self._has_stopped = True
                    self._client.waiting_calls.park(self._call.task_id, self._open)
                    yield [decode_request(as_object(message.get("params")), {"key": ""})]
                    return
                yield await self._read(message, session)
        except (FaultError, AuthorizationNeeded):
            await asyncio.shield(asyncio.ensure_future(self._open.aclose()))
            raise
        await asyncio.shield(asyncio.ensure_future(self._open.aclose()))

    # Files

    async def _with_files(self, events: Sequence[Event], session: Session | None) -> Sequence[Event]:
        """Return the events with each file that only this server can read, such as `file:///…`, replaced by its bytes.
        If it cannot be read, the event keeps the URI, and a `NO_FILE` loss precedes it."""
        filled: list[Event] = []
        for event in events:
            part = event.part if isinstance(event, PartAdded | ArtifactAdded) else None
            if isinstance(part, FilePart) and part.url is not None and _is_local(part.url):
                content = await self._read_resource(part, session)
                if content is None:
                    filled.append(NO_FILE)
                else:
                    part = content
                assert isinstance(event, PartAdded | ArtifactAdded)
                event = event.replace(part=part)
            filled.append(event)
        return filled

    async def _read_resource(self, part: FilePart, session: Session | None) -> FilePart | None:
        """Return a file by its link. Return None if the server refuses or fails. Raises agent_unreachable and
        agent_timeout."""
        try:
            result = await self._http.ask("resources/read", {"uri": part.url}, session)
            contents = objects_in(result.get("contents"))
            if len(contents) != 1:
                return None
            file = decode_contents(contents[0], part.name)
        except FaultError as error:
            if is_retryable(error.fault):
                raise
            return None
        return file.replace(name=part.name or file.name, media_type=part.media_type or file.media_type)


def _meta(call: Invocation) -> JsonObject:
    """Return the `_meta` of a call: the token for progress, and for another Babelgate the caller's metadata and
    tools."""
    meta: JsonObject = {"progressToken": call.run_id}
    mark: JsonObject = {"metadata": call.metadata} if call.metadata else {}
    tools = declared_tools(call.config)
    if tools is not None:
        mark["tools"] = tools
    return {**meta, "babelgate": mark} if mark else meta


def _is_local(url: str) -> bool:
    return not url.lower().startswith(("http://", "https://", "data:"))


def _as_fault(message: JsonObject) -> FaultError:
    """Return the fault for the error of a response or of a failed task."""
    text = as_text(as_object(message.get("error")).get("message"))
    return FaultError(FaultCode.AGENT_FAILED, text or "The agent's server failed and did not say why")


def _results(call: Invocation, past: Sequence[Record]) -> tuple[JsonObject, JsonObject]:
    """Return a pair for the caller's answers. The first member has the result for each request of the server, by the
    key of the request. The second has the members that were stored with the last answered question."""
    raised = {each.event.interrupt_id: each.event for each in past if isinstance(each.event, InterruptRaised)}
    results: JsonObject = {}
    stored: JsonObject = {}
    for answer in call.answers:
        question = raised.get(answer.interrupt_id)
        stored = as_object(None if question is None else question.extra.get(PROTOCOL))
        results[as_text(stored.get("key"))] = encode_answer(answer, question)
    return results, stored


async def _first_call(call: Invocation, past: Sequence[Record]) -> Invocation:
    """Return the call with the input of the task's first run, because a call with answers repeats its arguments."""
    created = next((each.event for each in past if isinstance(each.event, RunCreated)), None)
    if created is None:
        return call
    messages = tuple([await call.with_files(message) for message in created.messages])
    return replace(call, input=call.input.replace(messages=messages, data=created.data))


async def _list_tools(http: ServerClient, session: Session | None) -> Sequence[JsonObject]:
    """Return all tools of a server, up to `_PAGES` pages."""
    tools: list[JsonObject] = []
    cursor: str | None = None
    for _ in range(_PAGES):
        result = await http.ask("tools/list", {} if cursor is None else {"cursor": cursor}, session)
        tools += objects_in(result.get("tools"))
        cursor = as_text(result.get("nextCursor")) or None
        if cursor is None:
            break
    return tools


@asynccontextmanager
async def _session(server: ServerClient) -> AsyncGenerator[Session | None]:
    """Open a session for the block, and close it at the end. It is None for a server of 2026-07-28."""
    if await server.is_stateless():
        yield None
        return
    session = await server.initialize()
    try:
        yield session
    finally:
        await server.close_session(session)


async def discover(url: str, http: httpx.AsyncClient, headers: Mapping[str, str] | None = None) -> list[AgentInfo]:
    """Return the tools of a server as agents. Raises the fault of a server that does not speak MCP."""
    client = HttpClient(url, headers=headers, http=http)
    async with _session(client) as session:
        tools = await _list_tools(client, session)
    return [info for tool in tools if (info := decode_tool(tool)) is not None]
