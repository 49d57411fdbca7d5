"""Drives the agent of another AIEF server: a task, and its steps one after the other until the last, or until one asks.

The protocol cannot stop a step and cannot be followed again: who stops listening hangs up, and the server works on.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Final, Literal

import httpx

from adapters._client.answers import LISTING_LIMIT
from adapters.aief.agents import decode_info
from adapters.aief.client.http import HttpClient
from adapters.aief.client.task import Task, blaming_the_agent
from adapters.aief.read import StepEvents, StepReader
from adapters.aief.request import answer_body, files_of, first_step_body, input_losses, task_body, turn_body
from canonical import AgentInfo, Event, FaultCode, FaultError, Invocation
from canonical.event import UpstreamBound

__all__ = ("Client", "discover")

MAX_STEPS: Final = 50
"""Steps of one run: some agents mark none as the last one."""
MAX_SECONDS: Final = 3600.0
FILE_LIMIT: Final = 64 * 1024 * 1024
"""Bytes of one file."""

_OVER: Final = frozenset({404, 410, 500, 501})
"""How a task is refused that takes no more turns: it is gone, or has no step left. What proxies say is not in it."""

Events = AsyncGenerator[Event, None]


class Client:
    """The agent of an AIEF server. `agent` is not told to it: one server is one agent.

    `steps` says what a step is that is not the last one, where the server does not say it: `continue` has the next one
    done at once, `ask` takes it for a question, whose answer is the input of the next step.
    """

    def __init__(
        self,
        url: str,
        agent: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: httpx.Timeout | float | None = None,
        http: httpx.AsyncClient | None = None,
        steps: Literal["continue", "ask"] = "continue",
        max_steps: int = MAX_STEPS,
        max_seconds: float = MAX_SECONDS,
        file_limit: int = FILE_LIMIT,
    ) -> None:
        self._upstream = HttpClient(url, headers=headers, timeout=timeout, http=http)
        self._asks = steps == "ask"
        self._max_steps = max_steps
        self._max_seconds = max_seconds
        self._file_limit = file_limit

    async def aclose(self) -> None:
        await self._upstream.aclose()

    async def run(self, call: Invocation) -> AsyncIterator[Event]:
        reader = StepReader(asks=self._asks)
        until = asyncio.get_running_loop().time() + self._max_seconds
        task = Task(self._upstream, reader, until, self._file_limit)
        async with aclosing(_begin_task(task, reader, call)) as beginning:
            async for each in beginning:
                if not isinstance(each, StepEvents):
                    yield each
                    continue
                async with aclosing(self._run_steps(task, reader, each)) as events:
                    async for event in events:
                        yield event
        async with aclosing(task.unmentioned_files()) as events:
            async for event in events:
                yield event
        if reader.completed:
            yield UpstreamBound(protocol="aief", ids={"context": task.id})
        yield reader.end()

    async def _run_steps(self, task: Task, reader: StepReader, told: StepEvents) -> Events:
        """What the step told, and all steps after it until the run stops."""
        count = 1
        while True:
            for event in told.said:
                yield event
            async with aclosing(task.files(told.artifacts)) as files:
                async for event in files:
                    yield event
            for event in told.ended:
                yield event
            if reader.stopped:
                return
            if count >= self._max_steps:
                words = f"The agent took {count} steps, and none of them was the last"
                raise FaultError(FaultCode.AGENT_FAILED, words)
            count += 1
            try:
                told = await task.step({})
            except FaultError as error:
                if error.fault.details.get("status") != 500 or not await task.has_run_out():
                    raise
                for event in reader.run_out():
                    yield event
                return


async def _begin_task(task: Task, reader: StepReader, call: Invocation) -> AsyncGenerator[Event | StepEvents]:
    """The first step, of the task that asked, of the one that this thread had, or of a new one. Before any event, a
    call of the server has succeeded: a run that finds nobody can be given to another server.

    A task is bound as the `task`, for answers, and only when it has come to its last step as the `context`, for the
    next turn: of one that was left in its middle, the next step is not the next turn.
    """
    known = call.upstream.get("task" if call.answers else "context")
    if call.answers and not known:
        raise FaultError(FaultCode.AGENT_INVALID, "The agent's server never gave the id of this task")
    unbound = {"context": ""} if call.upstream.get("context") else {}
    if known:
        body = answer_body(call, await call.past()) if call.answers else turn_body(call)
        await task.resume(known)
        for event in _losses(reader, call):
            yield event
        yield UpstreamBound(protocol="aief", ids={"task": known, **unbound})
        try:
            await task.upload(files_of(call))
            told = await task.step(body)
        except FaultError as error:
            if call.answers or error.fault.details.get("status") not in _OVER:
                raise
        else:
            yield told
            return
    body = task_body(call)
    made = await task.create(body)
    for event in _losses(reader, call):
        yield event
    yield UpstreamBound(protocol="aief", ids={"task": made.task_id, **unbound})
    await task.upload(files_of(call))
    yield await task.step(first_step_body(body, made.additional_input))


def _losses(reader: StepReader, call: Invocation) -> Sequence[Event]:
    return [event for feature, how in input_losses(call) for event in reader.note(feature, how)]


async def discover(url: str, http: httpx.AsyncClient, headers: Mapping[str, str] | None = None) -> list[AgentInfo]:
    """The agent of an AIEF server: it is one if it lists tasks. How it is called and described, servers of v2 say;
    `info.upstream_name` tells their own name of it. Raises agent_invalid."""
    upstream = HttpClient(url, headers=headers, timeout=10.0, http=http).within(LISTING_LIMIT)
    listed = await upstream.get("/ap/v1/agent/tasks?current_page=1&page_size=1")
    if not isinstance(listed, list) and not (isinstance(listed, dict) and isinstance(listed.get("tasks"), list)):
        raise FaultError(FaultCode.AGENT_INVALID, "The server does not list tasks as AIEF does")
    try:
        told = await upstream.get("/ap/v2/agent/info")
    except FaultError:
        told = None
    with blaming_the_agent():
        return [decode_info(told)]
