"""Probes that test the cancellation of ACP runs."""

from typing import Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.acp.scenes import (
    cancel_run,
    run_behaviour,
    run_question,
    stay_busy,
    wait_for_end,
    wait_for_status,
)
from babelgate.conformance.protocols.acp.target import AcpTarget, Ctx, trigger_of, unknown_id
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import dig

probes: Final = Probes[AcpTarget]()


@probes.add
async def cancel_is_accepted(ctx: Ctx) -> None:
    exchange, done = await ctx.subject(cancel_run)
    check(dig(exchange.json, "run_id") == done.id, f"the run {done.id}", exchange.json, exchange)


@probes.add
async def accepted_cancel_is_cancelling(ctx: Ctx) -> None:
    exchange, _ = await ctx.once(cancel_run)
    check(dig(exchange.json, "status") == "cancelling", "the status cancelling", exchange.json, exchange)


@probes.add
async def cancelled_run_ends_as_cancelled(ctx: Ctx) -> None:
    _, done = await ctx.once(cancel_run)
    run = await wait_for_status(ctx.target, done.id, ctx.options.timeout / 2, "cancelled")
    check(dig(run.json, "status") == "cancelled", "the status cancelled", run.json, run)


@probes.add
async def stream_of_a_cancelled_run_says_so(ctx: Ctx) -> None:
    _, done = await ctx.once(cancel_run)
    check(done.types[-1] == "run.cancelled", "run.cancelled last", done.types, done.exchange)
    check(done.is_whole, "a stream that ends", done.exchange.error, done.exchange)


@probes.add
async def cancelled_run_tells_when(ctx: Ctx) -> None:
    _, done = await ctx.once(cancel_run)
    run = await wait_for_status(ctx.target, done.id, ctx.options.timeout / 2, "cancelled")
    check(isinstance(dig(run.json, "finished_at"), str), "a finished_at", run.json, run)


@probes.add
async def cancelled_run_did_not_fail(ctx: Ctx) -> None:
    _, done = await ctx.once(cancel_run)
    run = await wait_for_status(ctx.target, done.id, ctx.options.timeout / 2, "cancelled")
    check(dig(run.json, "error") is None, "no error", run.json, run)


@probes.add
async def waiting_run_can_be_cancelled(ctx: Ctx) -> None:
    done = await run_question(ctx)
    exchange = await ctx.target.cancel(done.id)
    check(exchange.status == 202, "the status 202", exchange.status, exchange)
    run = await wait_for_end(ctx.target, done.id, ctx.options.timeout)
    check(dig(run.json, "status") == "cancelled", "the status cancelled", run.json, run)


@probes.add
async def new_run_can_be_cancelled(ctx: Ctx) -> None:
    await ctx.once(stay_busy)
    accepted = await ctx.target.create({**trigger_of(ctx, "long"), "mode": "async"})
    check(accepted.status == 202, "an async run is accepted", accepted.status, accepted)
    id = str(dig(accepted.json, "run_id"))
    exchange = await ctx.target.cancel(id)
    check(exchange.status == 202, "the status 202", exchange.status, exchange)
    run = await wait_for_end(ctx.target, id, ctx.options.timeout)
    check(dig(run.json, "status") == "cancelled", "the status cancelled", run.json, run)


@probes.add
async def completed_run_is_not_cancelled(ctx: Ctx) -> None:
    done = await ctx.once(run_behaviour, "plain")
    exchange = await ctx.target.cancel(done.id)
    check(400 <= (exchange.status or 0) < 500, "a 4xx status", exchange.status, exchange)
    run = await ctx.target.run(done.id)
    check(dig(run.json, "status") == "completed", "a run that is still completed", run.json, run)


@probes.add
async def cancelled_run_is_not_cancelled_again(ctx: Ctx) -> None:
    _, done = await ctx.once(cancel_run)
    await wait_for_end(ctx.target, done.id, ctx.options.timeout)
    exchange = await ctx.target.cancel(done.id)
    check(400 <= (exchange.status or 0) < 500, "a 4xx status", exchange.status, exchange)


@probes.add
async def cancel_of_an_unknown_run_is_not_found(ctx: Ctx) -> None:
    await ctx.once(run_behaviour, "plain")
    exchange = await ctx.target.cancel(unknown_id())
    check(exchange.status == 404, "the status 404", exchange.status, exchange)
