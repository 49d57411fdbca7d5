"""Probes that test what only the README layout of the Agent Protocol has: runs on a busy thread, and runs that begin
later."""

from typing import Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.langchain.agent_protocol.opening import README
from babelgate.conformance.protocols.langchain.scenes import long_run, run_and_wait, run_of
from babelgate.conformance.protocols.langchain.server import Ctx, LangChainTarget, trigger_for
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import dig

probes: Final = Probes[LangChainTarget]()


@probes.add
async def next_run_can_queue(ctx: Ctx) -> None:
    async with long_run(ctx, README) as (thread_id, run_id, _):
        body = ctx.target.body(trigger_for(ctx, "plain"), multitask_strategy="enqueue")
        created = await ctx.target.create(README, thread_id, body)
        second = run_of(created)
        check(dig(created.json, "status") == "pending", "the second run waits", created.json, created)
        first = await ctx.target.run(README, thread_id, run_id)
        check(dig(first.json, "status") in ("pending", "running"), "the first run continues", first.json, first)
        await ctx.target.cancel(README, thread_id, run_id)
        exchange = await ctx.target.run_to_end(README, thread_id, second)
        check(dig(exchange.json, "status") == "success", "the second run after the first", exchange.json, exchange)


@probes.add
async def next_run_can_interrupt(ctx: Ctx) -> None:
    async with long_run(ctx, README) as (thread_id, run_id, _):
        body = ctx.target.body(trigger_for(ctx, "plain"), multitask_strategy="interrupt")
        created = await ctx.target.create(README, thread_id, body)
        exchange = await ctx.target.run_to_end(README, thread_id, run_of(created))
        check(dig(exchange.json, "status") == "success", "the second run succeeds", exchange.json, exchange)
        first = await ctx.target.run(README, thread_id, run_id)
        check(dig(first.json, "status") == "interrupted", "the first run is interrupted", first.json, first)


@probes.add
async def next_run_can_roll_back(ctx: Ctx) -> None:
    async with long_run(ctx, README) as (thread_id, run_id, _):
        body = ctx.target.body(trigger_for(ctx, "plain"), multitask_strategy="rollback")
        created = await ctx.target.create(README, thread_id, body)
        exchange = await ctx.target.run_to_end(README, thread_id, run_of(created))
        check(dig(exchange.json, "status") == "success", "the second run succeeds", exchange.json, exchange)
        first = await ctx.target.run(README, thread_id, run_id)
        check(first.status == 404, "the first run is deleted", first.status, first)


@probes.add
async def run_can_begin_later(ctx: Ctx) -> None:
    await ctx.once(run_and_wait, README)
    thread_id = await ctx.target.new_thread()
    body = ctx.target.body(trigger_for(ctx, "plain"))
    created = await ctx.target.create(README, thread_id, {**body, "after_seconds": 3600})
    run_id = run_of(created)
    # A run on another thread that was created later has ended by now.
    other = await ctx.target.create(README, await ctx.target.new_thread(), body, "wait")
    check(other.status == 200, "another run ends meanwhile", other.status, other)
    exchange = await ctx.target.run(README, thread_id, run_id)
    await ctx.target.cancel(README, thread_id, run_id)
    check(dig(exchange.json, "status") == "pending", "it is still pending", exchange.json, exchange)
