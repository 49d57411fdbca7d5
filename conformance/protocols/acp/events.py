"""Probes that test the list of an ACP run's events."""

from typing import Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.acp.scenes import (
    cancel_run,
    long_run,
    resume_run,
    run_behaviour,
    run_question,
    stream_run,
    types_of,
    wait_for_status,
)
from babelgate.conformance.protocols.acp.target import AcpTarget, Ctx, unknown_id
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import Exchange, as_list, dig

probes: Final = Probes[AcpTarget]()


@probes.add
async def events_are_listed(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, "plain")
    exchange = await ctx.target.events(done.id)
    check(exchange.status == 200, "the status 200", exchange.status, exchange)
    check(isinstance(dig(exchange.json, "events"), list), "an array events", exchange.json, exchange)


@probes.add
async def listed_events_are_the_streamed_ones(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, "plain")
    exchange = await ctx.target.events(done.id)
    events = as_list(dig(exchange.json, "events"))
    check(types_of(events) == done.types, "the types of the stream in its order", types_of(events), exchange)
    different = [(a, b) for a, b in zip(events, done.events, strict=True) if a != b]
    check(not different, "each event as it was streamed", different[:1], exchange)


@probes.add
async def events_of_a_sync_run_are_listed(ctx: Ctx) -> None:
    done = await ctx.once(run_behaviour, "plain")
    exchange = await ctx.target.events(done.id)
    types = types_of(as_list(dig(exchange.json, "events")))
    check("run.completed" in types, "events up to run.completed", types, exchange)


@probes.add
async def list_of_events_grows(ctx: Ctx) -> None:
    async with long_run(ctx) as started:
        await wait_for_status(ctx.target, started.id, ctx.options.timeout / 2, "in-progress")
        before = await ctx.target.events(started.id)
        types = types_of(as_list(dig(before.json, "events")))
        check("run.in-progress" in types, "run.in-progress while the run is running", types, before)
        await ctx.target.cancel(started.id)
        await wait_for_status(ctx.target, started.id, ctx.options.timeout / 2, "cancelled")
    after = as_list(dig((await ctx.target.events(started.id)).json, "events"))
    first = after[: len(types)]
    check(first == as_list(dig(before.json, "events")), "the events that were listed before, first", first)


@probes.add
async def events_after_a_resume_are_listed_too(ctx: Ctx) -> None:
    done = await ctx.once(resume_run)
    exchange = await ctx.target.events(done.id)
    types = types_of(as_list(dig(exchange.json, "events")))
    marks = [each for each in types if str(each).startswith("run.")]
    want = ["run.created", "run.in-progress", "run.awaiting", "run.in-progress", "run.completed"]
    check(marks == want, "the events of the whole run", types, exchange)


@probes.add
async def events_of_an_awaiting_run_end_there(ctx: Ctx) -> None:
    done = await run_question(ctx)
    exchange = await ctx.target.events(done.id)
    types = types_of(as_list(dig(exchange.json, "events")))
    check(types[-1:] == ["run.awaiting"], "run.awaiting last", types, exchange)


@probes.add
async def events_of_a_cancelled_run_end_there(ctx: Ctx) -> None:
    _, done = await ctx.once(cancel_run)
    exchange = await ctx.target.events(done.id)
    types = types_of(as_list(dig(exchange.json, "events")))
    check(types[-1:] == ["run.cancelled"], "run.cancelled last", types, exchange)


@probes.add
async def events_of_an_unknown_run_are_not_found(ctx: Ctx) -> None:
    await ctx.once(run_behaviour, "plain")
    exchange: Exchange = await ctx.target.events(unknown_id())
    check(exchange.status == 404, "the status 404", exchange.status, exchange)
