"""Scenes for the Agent Protocol and LangGraph Platform: requests whose results several probes examine. Each is played
once for each layout."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from babelgate.conformance.protocols.langchain.server import Ctx, Layout, json_of, speaking_trigger, trigger_for
from babelgate.conformance.verdict import NotObserved, check, check_busy, check_shown
from babelgate.conformance.wire.exchange import Exchange, SseFrame, as_object, dig
from babelgate.conformance.wire.http import Unanswered

MARK: Final = "babelgate-check"
"""Member of the metadata with a random value, by which a check finds the threads and runs that it has created."""
_POLL_INTERVAL: Final = 0.05
"""Seconds between two reads of a queued run until it starts, because no request waits for this. Chosen."""


@dataclass(frozen=True, slots=True)
class CreatedThread:
    thread_id: str
    mark: str
    exchange: Exchange


@dataclass(frozen=True, slots=True)
class Waited:
    """Thread of a run, and the response of the request that created the run and waited for its end."""

    thread_id: str
    exchange: Exchange


@dataclass(frozen=True, slots=True)
class Background:
    thread_id: str
    run_id: str
    mark: str
    created: Exchange
    waited: Exchange
    run: Exchange
    """Exchange that read the run after its end."""


@dataclass(frozen=True, slots=True)
class LangChainStream:
    thread_id: str
    exchange: Exchange

    def of(self, event: str) -> list[SseFrame]:
        """Return the SSE frames whose event has this name, for example `values`, including those of subgraphs
        (`values|…`)."""
        return [frame for frame in self.exchange.frames if frame.event.partition("|")[0] == event]


async def create_thread(ctx: Ctx) -> CreatedThread:
    """Create a thread with metadata, and return it. Raises Failed if the server does not create it."""
    mark = uuid4().hex
    body = {"metadata": {MARK: mark, "deep": {"list": [1, None, "ä"]}}}
    exchange = await ctx.target.ask("POST", "/threads", body, sends="ThreadCreate.request", receives="Thread")
    thread_id = dig(exchange.json, "thread_id")
    check(exchange.status == 200, "a thread is created with status 200", exchange.status, exchange)
    check(isinstance(thread_id, str), "it has a thread_id", exchange.json, exchange)
    return CreatedThread(thread_id, mark, exchange)


async def create_marked_threads(ctx: Ctx) -> tuple[str, list[str]]:
    """Create three threads whose metadata have the same value of MARK. Return the value and the ids of the threads."""
    mark = uuid4().hex
    return mark, [await ctx.target.new_thread(metadata={MARK: mark}) for _ in range(3)]


async def run_and_wait(ctx: Ctx, layout: Layout, behaviour: str = "plain") -> Waited:
    trigger = trigger_for(ctx, behaviour)
    thread_id = await ctx.target.new_thread()
    exchange = await ctx.target.create(layout, thread_id, ctx.target.body(trigger), "wait")
    check(exchange.status == 200, "a run that is waited for is answered with 200", exchange.status, exchange)
    await _check_behaviour(ctx, behaviour, thread_id, exchange)
    return Waited(thread_id, exchange)


async def run_until_question(ctx: Ctx, layout: Layout) -> Waited:
    """Create a run with the trigger `question` and wait until the agent asks. Raises NotShown if it does not ask."""
    return await run_and_wait(ctx, layout, "question")


async def run_until_failure(ctx: Ctx, layout: Layout) -> Waited:
    return await run_and_wait(ctx, layout, "fail")


_EVIDENCE: Final[Mapping[str, tuple[str, str]]] = {
    "question": ("interrupted", "__interrupt__"),
    "questions": ("interrupted", "__interrupt__"),
    "fail": ("error", "__error__"),
}
"""Status of the thread or run, and member of the values, each of which shows that the agent did what the trigger is
for. By behaviour."""


async def _check_behaviour(ctx: Ctx, behaviour: str, thread_id: str, exchange: Exchange) -> None:
    """Check that a run or its thread shows a behaviour. Raises NotShown if neither does.

    `exchange` is the stream of the run, or the response of a request that waited for its end.
    """
    if behaviour not in _EVIDENCE:
        return
    status, member = _EVIDENCE[behaviour]
    thread = await ctx.target.thread(thread_id)
    values = [json_of(frame) for frame in exchange.frames] if exchange.is_stream else [exchange.json]
    is_shown = (
        dig(thread.json, "status") == status
        or bool(dig(thread.json, "interrupts" if status == "interrupted" else "error"))
        or any(member in (as_object(each) or {}) or dig(each, "run", "status") == status for each in values)
        or (status == "error" and any(frame.event.partition("|")[0] == "error" for frame in exchange.frames))
    )
    check_shown(is_shown, behaviour, f"left its thread {dig(thread.json, 'status')}")


async def run_in_background(ctx: Ctx, layout: Layout) -> Background:
    """Create a run with a request that does not wait, and then wait for its end. Return all three exchanges. Raises
    Failed if the server refuses one of them."""
    server, mark = ctx.target, uuid4().hex
    thread_id = await server.new_thread()
    body = server.body(trigger_for(ctx, "plain"), metadata={MARK: mark})
    created = await server.create(layout, thread_id, body)
    run_id = run_of(created)
    over = await server.wait(layout, thread_id, run_id)
    check(over.status == 200, "a run is waited for with status 200", over.status, over)
    run = await server.run(layout, thread_id, run_id)
    return Background(thread_id, run_id, mark, created, over, run)


async def stream_run(ctx: Ctx, layout: Layout, mode: str, behaviour: str = "stream") -> LangChainStream:
    """Stream a run to its end in one stream mode, with the trigger of a behaviour as its input. Raises Failed, and
    NotShown if the run shows another behaviour."""
    trigger = speaking_trigger(ctx) if behaviour == "stream" else trigger_for(ctx, behaviour)
    thread_id = await ctx.target.new_thread()
    async with ctx.target.stream(layout, thread_id, ctx.target.body(trigger, stream_mode=[mode])) as stream:
        check(stream.exchange.status == 200, "a stream with status 200", stream.exchange.status, stream.exchange)
        await stream.rest_of_it()
    await _check_behaviour(ctx, behaviour, thread_id, stream.exchange)
    return LangChainStream(thread_id, stream.exchange)


def run_of(exchange: Exchange) -> str:
    """Return the id of the run that a request has created. Raises Failed if the response has none."""
    run_id = dig(exchange.json, "run_id")
    check(exchange.status == 200, "a run is created with status 200", exchange.status, exchange)
    check(isinstance(run_id, str), "it has a run_id", exchange.json, exchange)
    return run_id


@asynccontextmanager
async def long_run(ctx: Ctx, layout: Layout, **fields: Any) -> AsyncGenerator[tuple[str, str, Exchange]]:
    """Start a run of the behaviour `long` and yield its thread id, its run id, and the response that created it.

    The run is cancelled at the end if it still runs. Raises NotShown if the agent does not work for at least BUSY
    seconds.
    """
    await ctx.once(stay_busy, layout)
    async with _start_run(ctx, layout, **fields) as started:
        yield started


async def stay_busy(ctx: Ctx, layout: Layout) -> None:
    """Start a run of the behaviour `long` and read its status after BUSY seconds. Raises NotShown if it has ended by
    then."""
    since = asyncio.get_running_loop().time()
    async with _start_run(ctx, layout) as (thread_id, run_id, _):

        async def is_running() -> bool:
            exchange = await ctx.target.run(layout, thread_id, run_id)
            return exchange.status != 200 or dig(exchange.json, "status") in ("pending", "running")

        await check_busy(since, is_running)


@asynccontextmanager
async def _start_run(ctx: Ctx, layout: Layout, **fields: Any) -> AsyncGenerator[tuple[str, str, Exchange]]:
    server = ctx.target
    trigger = trigger_for(ctx, "long")
    thread_id = await server.new_thread()
    created = await server.create(layout, thread_id, server.body(trigger, **fields))
    run_id = run_of(created)
    try:
        await _wait_for_begin(ctx, layout, thread_id, run_id)
        yield thread_id, run_id, created
    finally:
        with suppress(Unanswered):
            await server.cancel(layout, thread_id, run_id)


async def _wait_for_begin(ctx: Ctx, layout: Layout, thread_id: str, run_id: str) -> None:
    """Wait until a run is no longer `pending`, if the dialect has a separate status for running runs. Raises
    NotObserved if it does not start or has already ended."""
    deadline = asyncio.get_running_loop().time() + ctx.options.timeout
    while True:
        exchange = await ctx.target.run(layout, thread_id, run_id)
        status = dig(exchange.json, "status")
        if status != "pending" or not ctx.target.dialect.has_input:
            break
        if asyncio.get_running_loop().time() > deadline:
            raise NotObserved("the run does not start", "long")
        await asyncio.sleep(_POLL_INTERVAL)
    if status not in ("pending", "running"):
        raise NotObserved(
            f"the run has the status {status} immediately; it needs an input that starts a long run", "long"
        )
