"""Probes that test the responses of LangGraph Platform to runs: their bodies and their headers."""

from typing import Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.langchain.platform.opening import LAYOUT
from babelgate.conformance.protocols.langchain.scenes import (
    run_and_wait,
    run_in_background,
    run_of,
    run_until_failure,
    stream_run,
)
from babelgate.conformance.protocols.langchain.server import Ctx, LangChainTarget, is_refused, trigger_for, unknown_id
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import Exchange, dig

probes: Final = Probes[LangChainTarget]()


@probes.add
async def answer_says_where_the_run_is(ctx: Ctx) -> None:
    done = await ctx.once(run_in_background, LAYOUT)
    where = done.created.header("content-location")
    wanted = LAYOUT.one(done.thread_id, done.run_id)
    check((where or "").endswith(wanted), f"Content-Location: {wanted}", where, done.created)


@probes.add
async def answer_of_a_wait_says_where_to_go_on(ctx: Ctx) -> None:
    """Check the headers Content-Location and Location of a waiting request. With them, the SDK waits again after a lost
    connection."""
    done = await ctx.once(run_and_wait, LAYOUT)
    _check_locations(done.exchange, "join")


@probes.add
async def stream_says_where_to_go_on(ctx: Ctx) -> None:
    """Check the headers with which the SDK resumes a broken stream: Content-Location, which has the ids of the thread
    and the run, and Location."""
    done = await ctx.once(stream_run, LAYOUT, "values")
    _check_locations(done.exchange, "stream")


def _check_locations(exchange: Exchange, way: str) -> None:
    run = exchange.header("content-location")
    check(run is not None and "/runs/" in run, "Content-Location with the path of the run", run, exchange)
    where = exchange.header("location")
    check(where == f"{run}/{way}", f"Location: {run}/{way}", where, exchange)


@probes.add
async def failure_is_told_by_a_wait(ctx: Ctx) -> None:
    done = await ctx.once(run_until_failure, LAYOUT)
    error = dig(done.exchange.json, "__error__")
    check(
        isinstance(dig(error, "error"), str), "__error__ with the name of the error", done.exchange.json, done.exchange
    )
    check(isinstance(dig(error, "message"), str), "the message of the error", done.exchange.json, done.exchange)


@probes.add
async def failure_is_told_by_the_run(ctx: Ctx) -> None:
    await ctx.once(run_until_failure, LAYOUT)
    trigger = trigger_for(ctx, "fail")
    thread_id = await ctx.target.new_thread()
    created = await ctx.target.create(LAYOUT, thread_id, ctx.target.body(trigger))
    exchange = await ctx.target.run_to_end(LAYOUT, thread_id, run_of(created))
    check(dig(exchange.json, "status") == "error", "the status error", exchange.json, exchange)


@probes.add
async def failure_is_told_by_the_thread(ctx: Ctx) -> None:
    done = await ctx.once(run_until_failure, LAYOUT)
    exchange = await ctx.target.thread(done.thread_id)
    error = dig(exchange.json, "error")
    check(isinstance(dig(error, "error"), str), "error with its name", exchange.json, exchange)
    check(isinstance(dig(error, "message"), str), "the message of the error", exchange.json, exchange)


@probes.add
async def run_tells_its_input(ctx: Ctx) -> None:
    done = await ctx.once(run_in_background, LAYOUT)
    wanted = ctx.target.body(trigger_for(ctx, "plain"))["input"]
    found = dig(done.created.json, "kwargs", "input")
    check(found == wanted, "kwargs.input as it was sent", done.created.json, done.created)


@probes.add
async def run_without_a_thread_can_be_streamed(ctx: Ctx) -> None:
    await ctx.once(stream_run, LAYOUT, "values")
    body = ctx.target.body(trigger_for(ctx, "plain"), stream_mode=["values"])
    async with ctx.target.stream(LAYOUT, None, body) as stream:
        frames = await stream.rest_of_it()
    names = [frame.event for frame in frames]
    check(stream.exchange.status == 200, "the status 200", stream.exchange.status, stream.exchange)
    check("values" in names, "events named values", names, stream.exchange)


@probes.add
async def webhook_leads_to_no_private_place(ctx: Ctx) -> None:
    """Check that a run with a webhook at 169.254.169.254 is refused. Cloud providers serve credentials at this private
    address."""
    await ctx.once(run_and_wait, LAYOUT)
    thread_id = await ctx.target.new_thread()
    body = ctx.target.body(trigger_for(ctx, "plain"), webhook="http://169.254.169.254/latest/meta-data/")
    exchange = await ctx.target.create(LAYOUT, thread_id, body)
    check(is_refused(exchange), "a webhook at 169.254.169.254 is refused", exchange.status, exchange)


@probes.add
async def webhook_is_a_url(ctx: Ctx) -> None:
    await ctx.once(run_and_wait, LAYOUT)
    body = ctx.target.body(trigger_for(ctx, "plain"), webhook="file:///etc/passwd")
    exchange = await ctx.target.create(LAYOUT, await ctx.target.new_thread(), body)
    check(is_refused(exchange), "a webhook that is no http URL is refused", exchange.status, exchange)


@probes.add
async def run_below_another_thread_is_not_found(ctx: Ctx) -> None:
    done = await ctx.once(run_in_background, LAYOUT)
    other = await ctx.target.new_thread()
    exchange = await ctx.target.run(LAYOUT, other, done.run_id)
    check(exchange.status == 404, "the status 404", exchange.status, exchange)


@probes.add
async def unknown_run_has_no_answer(ctx: Ctx) -> None:
    """Check that waiting for an unknown run returns an error: the status 404, or status 200 with `__error__` in the
    body, as langgraph-api 0.16 does."""
    done = await ctx.once(run_in_background, LAYOUT)
    exchange = await ctx.target.wait(LAYOUT, done.thread_id, unknown_id())
    has_error = exchange.status == 404 or dig(exchange.json, "__error__", "error") is not None
    check(has_error, "the status 404, or __error__", exchange.json, exchange)


@probes.add
async def context_takes_the_place_of_configurable(ctx: Ctx) -> None:
    await ctx.once(run_and_wait, LAYOUT)
    thread_id = await ctx.target.new_thread()
    both = {"config": {"configurable": {"user": "a"}}, "context": {"user": "b"}}
    exchange = await ctx.target.create(LAYOUT, thread_id, ctx.target.body(trigger_for(ctx, "plain"), **both))
    check(exchange.status == 400, "the status 400", exchange.status, exchange)
