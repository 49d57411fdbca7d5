"""Client for the agent of another AIEF server: runs a task step by step, until the last step or until a question.

The protocol can neither stop a step nor follow it again (OpenAPI v1, paths). If the client disconnects, the server
continues.
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Unpack

import httpx

from babelgate.adapters.aief.agents import decode_info
from babelgate.adapters.aief.client.http import HttpClient
from babelgate.adapters.aief.client.task import UpstreamTask
from babelgate.adapters.aief.read import StepEvents, StepReader
from babelgate.adapters.aief.request import answer_body, files_of, first_step_body, input_losses, task_body, turn_body
from babelgate.adapters.kit.client.answers import LISTING_LIMIT
from babelgate.adapters.kit.client.blame import blaming_the_agent
from babelgate.adapters.kit.client.calls import Connection
from babelgate.adapters.kit.client.driver import DrivenClient, Stage, UpstreamRun
from babelgate.adapters.kit.extension import NOT_FORKED, URI, encode_request, encode_start, is_refusal, without_start
from babelgate.canonical import AgentInfo, Event, FaultCode, FaultError, Invocation, Message, Record
from babelgate.canonical.event import UpstreamBound
from babelgate.canonical.feature import Feature
from babelgate.canonical.value import JsonObject

__all__ = ("Client", "discover")

ACTIVATION: Final = "activation"
"""Key of the id under which a run's upstream ids store the run of another Babelgate. The id `task` is the thread of
that gateway."""
MAX_STEPS: Final = 50
"""Maximum number of steps in one run, because some agents mark none of their steps as the last one. Chosen, not
measured."""
MAX_SECONDS: Final = 3600.0
"""Maximum duration of one run, in seconds. Chosen."""
FILE_LIMIT: Final = 64 * 1024 * 1024
"""Maximum size of one downloaded file, in bytes. Chosen."""

_OVER: Final = frozenset({404, 410, 500, 501})
"""HTTP statuses with which a server refuses a step of a task that is gone or has no step left. Then a new task is
created. Statuses of proxies, such as 502, are not included."""


@dataclass(frozen=True, slots=True)
class _Limits:
    """Limits of one run: its steps, its duration, and the size of a file."""

    steps: int
    seconds: float
    file_limit: int
    """Maximum size of one file, in bytes."""


class Client(DrivenClient[HttpClient]):
    """Client of an AIEF server's agent. `agent` is not sent, because one server has one agent.

    - `steps`: meaning of a step that is not marked as the last one, unless the server reports it. With `continue`, the
      next step is requested at once. With `ask`, the step is a question, whose answer is the input of the next step.
    - `extension`: `on` requests the Babelgate extension, which servers without it ignore.
    """

    def __init__(
        self,
        url: str,
        agent: str | None = None,
        *,
        steps: Literal["continue", "ask"] = "continue",
        max_steps: int = MAX_STEPS,
        max_seconds: float = MAX_SECONDS,
        file_limit: int = FILE_LIMIT,
        extension: Literal["on", "off"] = "on",
        **connection: Unpack[Connection],
    ) -> None:
        super().__init__(HttpClient(url, extended=extension == "on", **connection))
        self._asks_by_default = steps == "ask"
        self._limits = _Limits(max_steps, max_seconds, file_limit)

    def start(self, call: Invocation) -> UpstreamRun:
        """Return the object that executes a run for this invocation."""
        return _Run(
            self._http, StepReader(asks=self._asks_by_default, extended=self._http.extended), self._limits, call
        )


class _Run(UpstreamRun):
    """One run: one or several steps of a task at the server. The protocol cannot cancel a step."""

    def __init__(self, http: HttpClient, reader: StepReader, limits: _Limits, call: Invocation) -> None:
        self._http = http
        self._reader = reader
        self._limits = limits
        self._call = call
        until = asyncio.get_running_loop().time() + limits.seconds
        self._task = UpstreamTask(http, reader, until, limits.file_limit)
        self._latest: StepEvents | None = None
        """Events of the newest executed step. None: no step was executed."""
        self._previous_run = call.upstream.get(ACTIVATION)
        """Id of the newest run that the server, another Babelgate, had on the task before this run. None: not known."""

    async def stages(self) -> AsyncGenerator[Stage]:
        """Yield the parts of the run: its first step, the steps after it, and its end. The first step belongs to the
        task that asked, to an earlier task of this thread, or to a new task.

        No event is yielded before the server has responded once. Until then, the gateway can give the run to another
        server.

        The task's id is stored as `task`, for answers. After a last step it is also stored as `context`, for the next
        turn. An interrupted task gets no next turn, because its next step would continue the old one.
        """
        task_id = self._call.upstream.get("task" if self._call.answers else "context")
        if self._call.answers and not task_id:
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server never sent the id of this task")
        if task_id:
            yield self._resume_task(task_id)
        if self._latest is None:
            yield self._create_task()
        yield self._run_steps()
        yield self._end()

    async def _resume_task(self, task_id: str) -> Stage:
        """Execute the next step of an existing task. If the server has no more steps for it, execute none, so that a
        new task is created."""
        call, task = self._call, self._task
        past = await call.past()
        await task.resume(task_id)
        body = answer_body(call, past) if call.answers else turn_body(call)
        body, extended = self._extend(body, call.messages, past)
        yield self._begin(task_id, extended)
        try:
            await task.upload(files_of(call))
            self._latest = await task.step(body, self._previous_run)
        except FaultError as error:
            if call.answers or error.fault.details.get("status") not in _OVER:
                raise

    async def _create_task(self) -> Stage:
        """Create a task and execute its first step."""
        task = self._task
        body = task_body(self._call)
        created = await task.create(body)
        messages = (*self._call.history, *self._call.messages)
        first, extended = self._extend(first_step_body(self._call, body, created.additional_input), messages)
        yield self._begin(created.task_id, extended)
        await task.upload(files_of(self._call))
        try:
            self._latest = await task.step(first)
        except FaultError as error:
            if not {"fork", "state"} & set(extended) or not is_refusal(error):
                raise
            yield self._reader.note(Feature.FORK, NOT_FORKED)
            self._call = without_start(self._call)
            first, _ = self._extend(first_step_body(self._call, body, created.additional_input), messages)
            self._latest = await task.step(first)

    def _extend(
        self, body: JsonObject, messages: Sequence[Message], past: Sequence[Record] = ()
    ) -> tuple[JsonObject, Collection[str]]:
        """Return a step's body with the Babelgate extension's part of the request, and the names of its members.
        Without the extension, return the body unchanged and no names."""
        call = self._call
        if not self._http.answers_extended:
            return body, ()
        request = encode_request(call, past, messages=messages if call.answers or any(input_losses(call)) else ())
        request |= self._start()
        if not request:
            return body, ()
        if "messages" in request and not call.answers:  # the data is not part of the input of these messages
            body = {**body, "additional_input": call.data if isinstance(call.data, dict) else {}}
        return {**body, "additional_input": {**(body.get("additional_input") or {}), URI: request}}, request.keys()

    def _start(self) -> JsonObject:
        """Return members of the extension's part that determine the state from which the run starts.

        A forked run also gets its own messages there, because the text of a new task repeats the history. Messages with
        files are left out, because files are uploaded.
        """
        call = self._call
        if call.answers:
            return {}
        start = encode_start(call, ACTIVATION)
        if "fork" not in start:
            return start
        own_messages = encode_request(call, messages=call.input_messages)
        return {**start, "messages": own_messages["messages"]} if "messages" in own_messages else encode_start(call)

    def _begin(self, task_id: str, extended: Container[str]) -> Sequence[Event]:
        """Return the losses of the input, and the binding to the task. `extended` has the names of members that the
        extension carries."""
        losses = input_losses(self._call, extended)
        lost = [event for feature, how in losses for event in self._reader.note(feature, how)]
        unbound = {"context": ""} if self._call.upstream.get("context") else {}
        return [*lost, UpstreamBound(protocol="aief", ids={"task": task_id, **unbound})]

    async def _run_steps(self) -> Stage:
        """Yield the events of the first step, and then execute and yield further steps until the run stops. Raises
        agent_failed after too many steps."""
        assert self._latest is not None
        step, count = self._latest, 1
        while True:
            yield step.content
            for artifact in step.artifacts:
                yield await self._task.fetch(artifact)
            yield step.ended
            if self._reader.stopped:
                return
            if count >= self._limits.steps:
                words = f"The agent took {count} steps, and none of them was the last"
                raise FaultError(FaultCode.AGENT_FAILED, words)
            count += 1
            try:
                # OpenAPI v1, StepRequestBody: no member is required
                step = await self._task.step({})
            except FaultError as error:
                # Without steps, the Python SDK 1.0.2 raises an error ("No steps to execute"), and so responds with 500.
                if error.fault.details.get("status") != 500 or not await self._task.has_run_out():
                    raise
                yield self._reader.run_out()
                return

    async def _end(self) -> Stage:
        """Yield the files that no step reported, and the event that ends the run."""
        if self._reader.records.active:
            bound = {ACTIVATION: self._reader.records.run_id or ""}
            yield (UpstreamBound(protocol="aief", ids=bound),)
        else:
            unreported, losses = await self._task.list_unreported()
            yield losses
            for artifact in unreported:
                yield await self._task.fetch(artifact)
        if self._reader.completed:
            yield (UpstreamBound(protocol="aief", ids={"context": self._task.id}),)
        final = self._reader.end()
        if final is not None:
            yield (final,)


async def discover(url: str, http: httpx.AsyncClient, headers: Mapping[str, str] | None = None) -> list[AgentInfo]:
    """Return the agent of an AIEF server, which is recognized by its list of tasks. Servers of the unreleased v2
    describe their agent; `upstream_name` returns the name from there. Raises agent_invalid, and the fault of a failed
    request."""
    client = HttpClient(url, headers=headers, timeout=10.0, http=http).within(LISTING_LIMIT)
    tasks = await client.get("/ap/v1/agent/tasks?current_page=1&page_size=1")
    # OpenAPI v1, TaskListResponse
    if not isinstance(tasks, list) and not (isinstance(tasks, dict) and isinstance(tasks.get("tasks"), list)):
        raise FaultError(FaultCode.AGENT_INVALID, "The server does not list tasks as AIEF does")
    try:
        # Endpoint of the unreleased v2 (branch v2 of the specification's repository, 2024-02-27)
        description = await client.get("/ap/v2/agent/info")
    except FaultError:
        description = None
    with blaming_the_agent():
        return [decode_info(description)]
