"""Probes that test the cancellation of runs."""

from typing import Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.langchain.scenes import long_run, run_in_background
from babelgate.conformance.protocols.langchain.server import Ctx, LangChainTarget, unknown_id
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import dig

probes: Final = Probes[LangChainTarget]()


@probes.add
async def cancel_is_accepted(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        async with long_run(ctx, layout) as (thread_id, run_id, _):
            exchange = await ctx.target.cancel(layout, thread_id, run_id)
            wanted = ctx.target.dialect.cancelled
            check(exchange.status == wanted, f"the status {wanted} ({layout.name})", exchange.status, exchange)


@probes.add
async def cancelled_run_is_interrupted(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        async with long_run(ctx, layout) as (thread_id, run_id, _):
            await ctx.target.cancel(layout, thread_id, run_id)
            exchange = await ctx.target.run_to_end(layout, thread_id, run_id)
            status = dig(exchange.json, "status")
            check(status == "interrupted", f"the status interrupted ({layout.name})", exchange.json, exchange)


@probes.add
async def cancel_can_wait(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        async with long_run(ctx, layout) as (thread_id, run_id, _):
            exchange = await ctx.target.cancel(layout, thread_id, run_id, wait="true")
            wanted = ctx.target.dialect.waits_cancelled
            check(exchange.status == wanted, f"the status {wanted} ({layout.name})", exchange.status, exchange)
            run = await ctx.target.run(layout, thread_id, run_id)
            expected = "the run has ended when the cancel is answered"
            check(dig(run.json, "status") not in ("pending", "running", None), expected, run.json, run)


@probes.add
async def rollback_takes_the_run_away(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        async with long_run(ctx, layout) as (thread_id, run_id, _):
            there = await ctx.target.run(layout, thread_id, run_id)
            check(there.status == 200, "the run exists before", there.status, there)
            await ctx.target.cancel(layout, thread_id, run_id, wait="true", action="rollback")
            exchange = await ctx.target.run(layout, thread_id, run_id)
            check(exchange.status == 404, f"the run is deleted ({layout.name})", exchange.status, exchange)


@probes.add
async def unknown_run_is_not_cancelled(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        done = await ctx.once(run_in_background, layout)
        exchange = await ctx.target.cancel(layout, done.thread_id, unknown_id())
        check(exchange.status == 404, f"the status 404 ({layout.name})", exchange.status, exchange)


@probes.add
async def thread_is_free_after_a_cancel(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        async with long_run(ctx, layout) as (thread_id, run_id, _):
            await ctx.target.cancel(layout, thread_id, run_id, wait="true")
            exchange = await ctx.target.thread(thread_id)
            expected = f"no longer busy ({layout.name})"
            check(dig(exchange.json, "status") in ("idle", "interrupted", "error"), expected, exchange.json, exchange)
