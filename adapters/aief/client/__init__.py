"""Drives the agent of another AIEF server: a task, and its steps one after the other until the last, or until one asks.

The protocol cannot stop a step and cannot be followed again (OpenAPI v1, paths): who stops listening hangs up, and the
server works on.
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Unpack

import httpx

from babelgate.adapters.aief.agents import decode_info
from babelgate.adapters.aief.client.http import HttpClient
from babelgate.adapters.aief.client.task import Task
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
"""The upstream id of the run of a gateway like this one, where `task` is that of a thread."""
MAX_STEPS: Final = 50
"""Steps of one run: some agents mark none as the last one. Chosen, not measured."""
MAX_SECONDS: Final = 3600.0
FILE_LIMIT: Final = 64 * 1024 * 1024
"""Bytes of one file."""

_OVER: Final = frozenset({404, 410, 500, 501})
"""How a task is refused that takes no more turns: it is gone, or has no step left. What proxies say is not in it."""


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Of one run."""

    steps: int
    seconds: float
    file_limit: int
    """Bytes."""


class Client(DrivenClient[HttpClient]):
    """The agent of an AIEF server. `agent` is not told to it: one server is one agent.

    `steps` says what a step is that is not the last one, where the server does not say it: `continue` has the next one
    done at once, `ask` takes it for a question, whose answer is the input of the next step. `extension` = whether the
    Babelgate extension is asked for, which other servers know nothing of.
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
        self._asks = steps == "ask"
        self._bounds = _Bounds(max_steps, max_seconds, file_limit)

    def start(self, call: Invocation) -> UpstreamRun:
        return _Run(self._http, StepReader(asks=self._asks, extended=self._http.extended), self._bounds, call)


class _Run(UpstreamRun):
    """The steps of a task. Nothing can be cancelled."""

    def __init__(self, http: HttpClient, reader: StepReader, bounds: _Bounds, call: Invocation) -> None:
        self._http = http
        self._reader = reader
        self._bounds = bounds
        self._call = call
        until = asyncio.get_running_loop().time() + bounds.seconds
        self._task = Task(http, reader, until, bounds.file_limit)
        self._told: StepEvents | None = None
        """What the last step told."""
        self._before = call.upstream.get(ACTIVATION)
        """The last run that the server told of this task."""

    async def stages(self) -> AsyncGenerator[Stage]:
        """The first step is of the task that asked, of the one that this thread had, or of a new one. Before any event,
        a call of the server has succeeded: a run that finds nobody can be given to another server.

        A task is bound as the `task`, for answers, and only when it has come to its last step as the `context`, for the
        next turn: of one that was left in its middle, the next step is not the next turn.
        """
        known = self._call.upstream.get("task" if self._call.answers else "context")
        if self._call.answers and not known:
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server never gave the id of this task")
        if known:
            yield self._resume_task(known)
        if self._told is None:
            yield self._create_task()
        yield self._run_steps()
        yield self._end()

    async def _resume_task(self, known: str) -> Stage:
        """Its next step, if it takes any."""
        call, task = self._call, self._task
        past = await call.past()
        await task.resume(known)
        body = answer_body(call, past) if call.answers else turn_body(call)
        body, told = self._extend(body, call.messages, past)
        yield self._begin(known, told)
        try:
            await task.upload(files_of(call))
            self._told = await task.step(body, self._before)
        except FaultError as error:
            if call.answers or error.fault.details.get("status") not in _OVER:
                raise

    async def _create_task(self) -> Stage:
        task = self._task
        body = task_body(self._call)
        made = await task.create(body)
        said = (*self._call.history, *self._call.messages)
        first, told = self._extend(first_step_body(self._call, body, made.additional_input), said)
        yield self._begin(made.task_id, told)
        await task.upload(files_of(self._call))
        try:
            self._told = await task.step(first)
        except FaultError as error:
            if not {"fork", "state"} & set(told) or not is_refusal(error):
                raise
            yield self._reader.note(Feature.FORK, NOT_FORKED)
            self._call = without_start(self._call)
            first, _ = self._extend(first_step_body(self._call, body, made.additional_input), said)
            self._told = await task.step(first)

    def _extend(
        self, body: JsonObject, said: Sequence[Message], past: Sequence[Record] = ()
    ) -> tuple[JsonObject, Collection[str]]:
        """A step's body with what AIEF has no field for, and the names of that: of a server that speaks the
        extension."""
        call = self._call
        if not self._http.answers_extended:
            return body, ()
        told = encode_request(call, past, messages=said if call.answers or any(input_losses(call)) else ())
        told |= self._start()
        if not told:
            return body, ()
        if "messages" in told and not call.answers:  # whose data is no input beside them
            body = {**body, "additional_input": call.data if isinstance(call.data, dict) else {}}
        return {**body, "additional_input": {**(body.get("additional_input") or {}), URI: told}}, told.keys()

    def _start(self) -> JsonObject:
        """Where a step starts. The text of a task says what was said before: of one that is to fork the messages are
        told in its place, but not those with files, which are sent natively."""
        call = self._call
        if call.answers:
            return {}
        start = encode_start(call, ACTIVATION)
        if "fork" not in start:
            return start
        mine = encode_request(call, messages=call.input_messages)
        return {**start, "messages": mine["messages"]} if "messages" in mine else encode_start(call)

    def _begin(self, task_id: str, told: Container[str]) -> Sequence[Event]:
        losses = input_losses(self._call, told)
        lost = [event for feature, how in losses for event in self._reader.note(feature, how)]
        unbound = {"context": ""} if self._call.upstream.get("context") else {}
        return [*lost, UpstreamBound(protocol="aief", ids={"task": task_id, **unbound})]

    async def _run_steps(self) -> Stage:
        """What the first step told, and all steps after it until the run stops."""
        assert self._told is not None
        told, count = self._told, 1
        while True:
            yield told.said
            for artifact in told.artifacts:
                yield await self._task.fetch(artifact)
            yield told.ended
            if self._reader.stopped:
                return
            if count >= self._bounds.steps:
                words = f"The agent took {count} steps, and none of them was the last"
                raise FaultError(FaultCode.AGENT_FAILED, words)
            count += 1
            try:
                # OpenAPI v1, StepRequestBody: no member is required.
                told = await self._task.step({})
            except FaultError as error:
                # The Python SDK 1.0.2 raises ("No steps to execute") where none is left, and so answers 500.
                if error.fault.details.get("status") != 500 or not await self._task.has_run_out():
                    raise
                yield self._reader.run_out()
                return

    async def _end(self) -> Stage:
        if self._reader.records.active:
            bound = {ACTIVATION: self._reader.records.run_id or ""}
            yield (UpstreamBound(protocol="aief", ids=bound),)
        else:
            unmentioned, noted = await self._task.list_unmentioned()
            yield noted
            for artifact in unmentioned:
                yield await self._task.fetch(artifact)
        if self._reader.completed:
            yield (UpstreamBound(protocol="aief", ids={"context": self._task.id}),)
        final = self._reader.end()
        if final is not None:
            yield (final,)


async def discover(url: str, http: httpx.AsyncClient, headers: Mapping[str, str] | None = None) -> list[AgentInfo]:
    """The agent of an AIEF server: it is one if it lists tasks. How it is called and described, servers of v2 say;
    `info.upstream_name` tells their own name of it. Raises agent_invalid."""
    client = HttpClient(url, headers=headers, timeout=10.0, http=http).within(LISTING_LIMIT)
    listed = await client.get("/ap/v1/agent/tasks?current_page=1&page_size=1")
    # OpenAPI v1, TaskListResponse.
    if not isinstance(listed, list) and not (isinstance(listed, dict) and isinstance(listed.get("tasks"), list)):
        raise FaultError(FaultCode.AGENT_INVALID, "The server does not list tasks as AIEF does")
    try:
        # Of the unreleased v2 (branch v2 of the specification's repository, 2024-02-27).
        told = await client.get("/ap/v2/agent/info")
    except FaultError:
        told = None
    with blaming_the_agent():
        return [decode_info(told)]
