"""Scenes for ACP: requests whose results several probes examine. Each is played once per check."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from babelgate.conformance.protocols.acp.target import AcpTarget, Ctx, message, run_id_of, trigger_of
from babelgate.conformance.verdict import check, check_busy, check_shown
from babelgate.conformance.wire.exchange import Exchange, as_list, dig
from babelgate.conformance.wire.http import StreamExchange

TERMINAL: Final = ("completed", "failed", "cancelled")
_POLL_INTERVAL: Final = 0.1
"""Seconds between two reads of a run that was started asynchronously, because ACP has no request that waits for it.
Chosen."""


@dataclass(frozen=True, slots=True)
class CreatedRun:
    exchange: Exchange
    run: Any
    """Run as in the response to the POST that created or resumed it."""

    @property
    def id(self) -> str:
        return run_id_of(self.exchange)


@dataclass(frozen=True, slots=True)
class AcpStream:
    exchange: Exchange
    events: Sequence[Any]
    is_whole: bool
    """True if the server ended the stream, and no event is incomplete."""
    comments: int
    id: str

    @property
    def types(self) -> list[Any]:
        return types_of(self.events)

    def runs(self) -> list[Any]:
        """Return the runs in the events that have one, in order."""
        return [dig(event, "run") for event in self.events if dig(event, "run") is not None]


async def list_agents(ctx: Ctx) -> Exchange:
    exchange = await ctx.target.agents()
    check(exchange.status == 200, "agents are listed with status 200", exchange.status, exchange)
    agents = as_list(dig(exchange.json, "agents"))
    check(bool(agents) and isinstance(dig(agents, 0, "name"), str), "an array agents with names", agents, exchange)
    return exchange


async def run_behaviour(ctx: Ctx, behaviour: str) -> CreatedRun:
    """Create a run that triggers a behaviour, wait for its end (mode `sync`), and return it. Raises Failed if it is
    refused, and NotShown if it shows another behaviour."""
    exchange = await ctx.target.create({**trigger_of(ctx, behaviour), "mode": "sync"})
    check(exchange.status == 200, "a run is created with status 200", exchange.status, exchange)
    run_id_of(exchange)
    _check_behaviour(behaviour, str(dig(exchange.json, "status")))
    return CreatedRun(exchange, exchange.json)


_OTHER_STATUSES: Final = {"question": TERMINAL, "fail": ("completed", "cancelled", "awaiting")}
"""Final statuses of a run that show that the agent did not do what the trigger is for, by behaviour."""


def _check_behaviour(behaviour: str, status: str) -> None:
    """Check that the final status of a run fits a behaviour. Raises NotShown if it shows that the agent did something
    else."""
    check_shown(status not in _OTHER_STATUSES.get(behaviour, ()), behaviour, f"returned a run with the status {status}")


async def stream_run(ctx: Ctx, behaviour: str) -> AcpStream:
    async with ctx.target.stream_run("createRun.request", trigger_of(ctx, behaviour), "runs") as stream:
        done = await read(stream)
        _check_behaviour(behaviour, str(done.types[-1]).removeprefix("run."))
        return done


async def read(stream: StreamExchange) -> AcpStream:
    """Read the stream of a run to its end and return its events. Raises Failed if the response is not a stream, or if
    no event has a run."""
    exchange = stream.exchange
    check(exchange.status == 200, "a stream is answered with status 200", exchange.status, exchange)
    check(exchange.is_stream, "Content-Type text/event-stream", exchange.media_type, exchange)
    await stream.rest_of_it()
    events = events_of(exchange)
    run_id = next((id for id in (dig(event, "run", "run_id") for event in events) if isinstance(id, str)), None)
    check(run_id is not None, "an event with a run", events, exchange)
    return AcpStream(exchange, events, exchange.is_ended and not stream.rest, stream.comments, str(run_id))


def events_of(exchange: Exchange) -> list[Any]:
    """Return the events of a stream as JSON, with None for each that is not JSON, because another requirement tests
    this."""
    return [frame.json_or_none for frame in exchange.frames]


def types_of(events: Sequence[Any]) -> list[Any]:
    return [dig(event, "type") for event in events]


async def awaiting(ctx: Ctx) -> CreatedRun:
    """Return a run that has asked its caller a question (`run_question`). As a scene it is played once, so that probes
    share the run."""
    return await run_question(ctx)


async def run_question(ctx: Ctx) -> CreatedRun:
    """Create a new run that asks its caller a question, and return it. Each call creates another one, for probes that
    change the run."""
    done = await run_behaviour(ctx, "question")
    check(dig(done.run, "status") == "awaiting", "the run is awaiting", done.run, done.exchange)
    return done


def answer_to(ctx: Ctx, run_id: str) -> dict[str, Any]:
    """Return the body of a request that answers a run's question, without its `mode`, in the form of the OpenAPI
    document."""
    text = str(ctx.triggers["question"].answer)
    return {"run_id": run_id, "await_resume": {"type": "message", "message": message(text)}}


async def resume_run(ctx: Ctx) -> CreatedRun:
    """Create a run that asks a question, answer it, and return the run after its end. Raises Failed if the answer is
    refused."""
    done = await run_question(ctx)
    exchange = await ctx.target.resume(done.id, {**answer_to(ctx, done.id), "mode": "sync"})
    check(exchange.status == 200, "a resume is answered with status 200", exchange.status, exchange)
    run_id_of(exchange)
    return CreatedRun(exchange, exchange.json)


async def run_to_failure(ctx: Ctx) -> CreatedRun:
    return await run_behaviour(ctx, "fail")


@asynccontextmanager
async def long_run(ctx: Ctx) -> AsyncGenerator[CreatedRun]:
    """Start a run of the behaviour `long` and yield it while it runs; cancel it at the end. Raises NotShown if the
    agent does not work for at least BUSY seconds."""
    await ctx.once(stay_busy)
    async with _start_run(ctx) as started:
        yield started


async def stay_busy(ctx: Ctx) -> None:
    """Start a run of the behaviour `long` and read its status after BUSY seconds. Raises NotShown if it has ended by
    then."""
    since = asyncio.get_running_loop().time()
    async with _start_run(ctx) as started:

        async def is_running() -> bool:
            exchange = await ctx.target.run(started.id)
            return exchange.status != 200 or dig(exchange.json, "status") not in (*TERMINAL, "awaiting")

        await check_busy(since, is_running)


@asynccontextmanager
async def _start_run(ctx: Ctx) -> AsyncGenerator[CreatedRun]:
    exchange = await ctx.target.create({**trigger_of(ctx, "long"), "mode": "async"})
    check(exchange.status == 202, "an async run is answered with status 202", exchange.status, exchange)
    started = CreatedRun(exchange, exchange.json)
    try:
        yield started
    finally:
        await ctx.target.cancel(started.id)


async def cancel_run(ctx: Ctx) -> tuple[Exchange, AcpStream]:
    """Start a run with a stream and cancel it while it runs. Return the response to the cancel, and the stream after
    its end."""
    await ctx.once(stay_busy)
    async with ctx.target.stream_run("createRun.request", trigger_of(ctx, "long"), "runs") as stream:
        run_id = ""
        while (frame := await stream.next()) is not None:
            event = frame.json
            run_id = dig(event, "run", "run_id") or run_id
            if dig(event, "type") == "run.in-progress":
                break
        check(bool(run_id), "an event with a run", None, stream.exchange)
        exchange = await ctx.target.cancel(run_id)
        check(exchange.status == 202, "a cancel is answered with status 202", exchange.status, exchange)
        return exchange, await read(stream)


async def wait_for_end(server: AcpTarget, run_id: str, bound: float) -> Exchange:
    """Read a run until it has ended, and return the exchange with the run. Raises Failed if it does not end within
    `bound` seconds."""
    exchange = await wait_for_status(server, run_id, bound, *TERMINAL)
    check(dig(exchange.json, "status") in TERMINAL, "the run ends", exchange.json, exchange)
    return exchange


async def wait_for_status(server: AcpTarget, run_id: str, bound: float, *until: str) -> Exchange:
    """Read a run until it has one of the statuses `until`, or until `bound` seconds have passed. Return the last
    exchange."""
    deadline = asyncio.get_running_loop().time() + bound
    while True:
        exchange = await server.run(run_id)
        check(exchange.status == 200, "a run is shown with status 200", exchange.status, exchange)
        if dig(exchange.json, "status") in until or asyncio.get_running_loop().time() > deadline:
            return exchange
        await asyncio.sleep(_POLL_INTERVAL)


def text_of(messages: Any) -> str:
    """Return the text contents of all parts of some messages, joined without a separator."""
    parts = [part for each in as_list(messages) for part in as_list(dig(each, "parts"))]
    return "".join(text for text in (dig(part, "content") for part in parts) if isinstance(text, str))
