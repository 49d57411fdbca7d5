"""Probes that test how Agent Protocol runs end, and their results."""

import asyncio
from typing import Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.langchain.scenes import (
    long_run,
    run_and_wait,
    run_until_failure,
    run_until_question,
)
from babelgate.conformance.protocols.langchain.server import Ctx, LangChainTarget, trigger_for
from babelgate.conformance.verdict import NotObserved, check
from babelgate.conformance.wire.exchange import dig

probes: Final = Probes[LangChainTarget]()

_POLL_INTERVAL: Final = 0.1
"""Seconds between two reads of a thread until it is deleted, because no request waits for this. Chosen."""


@probes.add
async def run_that_asks_is_interrupted(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        done = await ctx.once(run_until_question, layout)
        status = dig(done.exchange.json, "run", "status")
        check(status == "interrupted", f"the status interrupted ({layout.name})", done.exchange.json, done.exchange)


@probes.add
async def run_that_failed_is_in_error(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        done = await ctx.once(run_until_failure, layout)
        status = dig(done.exchange.json, "run", "status")
        check(status == "error", f"the status error ({layout.name})", done.exchange.json, done.exchange)


@probes.add
async def answer_of_a_wait_has_the_run(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        done = await ctx.once(run_and_wait, layout)
        run = dig(done.exchange.json, "run")
        check(dig(run, "thread_id") == done.thread_id, f"its thread ({layout.name})", run, done.exchange)
        check(dig(run, "status") == "success", "the status success", run, done.exchange)


@probes.add
async def values_hold_no_messages(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        done = await ctx.once(run_and_wait, layout)
        thread = await ctx.target.thread(done.thread_id)
        check(bool(ctx.target.messages(thread.json)), f"messages of the thread ({layout.name})", thread.json, thread)
        expected = "messages outside of the values"
        check("messages" not in (dig(thread.json, "values") or {}), expected, thread.json, thread)


@probes.add
async def busy_thread_is_a_conflict(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        async with long_run(ctx, layout) as (thread_id, _, __):
            for way in ("", "wait"):
                exchange = await ctx.target.create(layout, thread_id, ctx.target.body(trigger_for(ctx, "long")), way)
                check(exchange.status == 409, f"the status 409 ({layout.name})", exchange.status, exchange)


@probes.add
async def created_thread_is_deleted(ctx: Ctx) -> None:
    """Check that `on_completion=delete` deletes the thread that the server has created for a run without a thread."""
    thread_id = await _run_alone(ctx, "delete")
    exchange = await ctx.target.thread(thread_id)
    deadline = asyncio.get_running_loop().time() + ctx.options.timeout / 2
    while (
        exchange.status == 200 and asyncio.get_running_loop().time() < deadline
    ):  # The OpenAPI document does not define when it is deleted.
        await asyncio.sleep(_POLL_INTERVAL)
        exchange = await ctx.target.thread(thread_id)
    check(exchange.status == 404, "the thread of the run is gone", exchange.status, exchange)


@probes.add
async def created_thread_is_kept(ctx: Ctx) -> None:
    thread_id = await _run_alone(ctx, "keep")
    exchange = await ctx.target.thread(thread_id)
    check(exchange.status == 200, "the thread of the run is there", exchange.status, exchange)


async def _run_alone(ctx: Ctx, on_completion: str) -> str:
    """Run an agent without naming a thread, and return the id of the thread that the server has created. Raises
    NotObserved if the response has no thread id."""
    layout = ctx.target.layouts[0]
    await ctx.once(run_and_wait, layout)
    body = ctx.target.body(trigger_for(ctx, "plain"), on_completion=on_completion)
    exchange = await ctx.target.create(layout, None, body, "wait")
    check(exchange.status == 200, "a run without a thread is answered with 200", exchange.status, exchange)
    thread_id = dig(exchange.json, "run", "thread_id")
    if not isinstance(thread_id, str):
        raise NotObserved("the run does not name its thread")
    return thread_id


@probes.add
async def run_needs_no_agent(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        await ctx.once(run_and_wait, layout)
        body = {name: value for name, value in ctx.target.body(trigger_for(ctx, "plain")).items() if name != "agent_id"}
        exchange = await ctx.target.create(layout, await ctx.target.new_thread(), body, "wait")
        expected = f"the default agent runs, with status 200 ({layout.name})"
        check(
            exchange.status == 200 and dig(exchange.json, "run", "status") is not None,
            expected,
            exchange.json,
            exchange,
        )
