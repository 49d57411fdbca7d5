"""Probes that test LangGraph Platform runs on a busy thread, and runs that begin later."""

from typing import Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.langchain.platform.opening import LAYOUT
from babelgate.conformance.protocols.langchain.scenes import long_run, run_and_wait, run_in_background, run_of
from babelgate.conformance.protocols.langchain.server import Ctx, LangChainTarget, trigger_for
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import Exchange, dig

probes: Final = Probes[LangChainTarget]()


async def _create_second(ctx: Ctx, thread_id: str, strategy: str) -> Exchange:
    fields = {"multitask_strategy": strategy} if strategy else {}
    return await ctx.target.create(LAYOUT, thread_id, ctx.target.body(trigger_for(ctx, "plain"), **fields))


async def _check_queued(ctx: Ctx, strategy: str) -> None:
    async with long_run(ctx, LAYOUT) as (thread_id, run_id, _):
        created = await _create_second(ctx, thread_id, strategy)
        second = run_of(created)
        first = await ctx.target.run(LAYOUT, thread_id, run_id)
        check(dig(first.json, "status") == "running", "the first run continues", first.json, first)
        waiting = await ctx.target.run(LAYOUT, thread_id, second)
        check(dig(waiting.json, "status") == "pending", "the second run waits", waiting.json, waiting)
        await ctx.target.cancel(LAYOUT, thread_id, run_id)
        exchange = await ctx.target.run_to_end(LAYOUT, thread_id, second)
        check(dig(exchange.json, "status") == "success", "the second run after the first", exchange.json, exchange)


@probes.add
async def next_run_can_queue(ctx: Ctx) -> None:
    await _check_queued(ctx, "enqueue")


@probes.add
async def next_run_queues_by_default(ctx: Ctx) -> None:
    await _check_queued(ctx, "")


@probes.add
async def next_run_can_be_rejected(ctx: Ctx) -> None:
    async with long_run(ctx, LAYOUT) as (thread_id, run_id, _):
        exchange = await _create_second(ctx, thread_id, "reject")
        check(exchange.status == 409, "the status 409", exchange.status, exchange)
        first = await ctx.target.run(LAYOUT, thread_id, run_id)
        check(dig(first.json, "status") == "running", "the first run continues", first.json, first)


@probes.add
async def rejection_is_for_busy_threads(ctx: Ctx) -> None:
    done = await ctx.once(run_and_wait, LAYOUT)
    exchange = await _create_second(ctx, done.thread_id, "reject")
    check(exchange.status == 200, "on a thread that is idle the run is created", exchange.status, exchange)


@probes.add
async def next_run_can_interrupt(ctx: Ctx) -> None:
    async with long_run(ctx, LAYOUT) as (thread_id, run_id, _):
        created = await _create_second(ctx, thread_id, "interrupt")
        exchange = await ctx.target.run_to_end(LAYOUT, thread_id, run_of(created))
        check(dig(exchange.json, "status") == "success", "the second run succeeds", exchange.json, exchange)
        first = await ctx.target.run(LAYOUT, thread_id, run_id)
        check(dig(first.json, "status") == "interrupted", "the first run is interrupted", first.json, first)


@probes.add
async def next_run_can_roll_back(ctx: Ctx) -> None:
    async with long_run(ctx, LAYOUT) as (thread_id, run_id, _):
        created = await _create_second(ctx, thread_id, "rollback")
        exchange = await ctx.target.run_to_end(LAYOUT, thread_id, run_of(created))
        check(dig(exchange.json, "status") == "success", "the second run succeeds", exchange.json, exchange)
        first = await ctx.target.run(LAYOUT, thread_id, run_id)
        check(first.status == 404, "the first run is deleted", first.status, first)


@probes.add
async def queued_run_can_be_cancelled(ctx: Ctx) -> None:
    async with long_run(ctx, LAYOUT) as (thread_id, run_id, _):
        second = run_of(await _create_second(ctx, thread_id, "enqueue"))
        await ctx.target.cancel(LAYOUT, thread_id, second, wait="true")
        exchange = await ctx.target.run(LAYOUT, thread_id, second)
        check(dig(exchange.json, "status") == "interrupted", "it is interrupted", exchange.json, exchange)
        first = await ctx.target.run(LAYOUT, thread_id, run_id)
        check(dig(first.json, "status") == "running", "the first run continues", first.json, first)


@probes.add
async def run_can_begin_later(ctx: Ctx) -> None:
    await ctx.once(run_and_wait, LAYOUT)
    thread_id = await ctx.target.new_thread()
    body = ctx.target.body(trigger_for(ctx, "plain"), after_seconds=3600)
    run_id = run_of(await ctx.target.create(LAYOUT, thread_id, body))
    # A run on another thread that was created later has ended by then.
    await ctx.target.create(LAYOUT, await ctx.target.new_thread(), ctx.target.body(trigger_for(ctx, "plain")), "wait")
    exchange = await ctx.target.run(LAYOUT, thread_id, run_id)
    await ctx.target.cancel(LAYOUT, thread_id, run_id)
    check(dig(exchange.json, "status") == "pending", "it is still pending", exchange.json, exchange)


@probes.add
async def ended_run_is_not_cancelled(ctx: Ctx) -> None:
    done = await ctx.once(run_in_background, LAYOUT)
    exchange = await ctx.target.cancel(LAYOUT, done.thread_id, done.run_id)
    check(exchange.status == 404, "the status 404", exchange.status, exchange)
    run = await ctx.target.run(LAYOUT, done.thread_id, done.run_id)
    check(dig(run.json, "status") == "success", "the run is unchanged", run.json, run)
