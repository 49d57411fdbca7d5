"""Probes that test ACP runs whose agent fails."""

from typing import Final

from babelgate.conformance.leak import find_leak
from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.acp.scenes import run_to_failure, stream_run
from babelgate.conformance.protocols.acp.target import AcpTarget, Ctx
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import as_object, dig

probes: Final = Probes[AcpTarget]()


@probes.add
async def failed_run_is_a_run(ctx: Ctx) -> None:
    done = await ctx.subject(run_to_failure)
    check(dig(done.run, "status") == "failed", "the status failed", done.run, done.exchange)


@probes.add
async def failed_run_says_why(ctx: Ctx) -> None:
    done = await ctx.once(run_to_failure)
    error = dig(done.run, "error")
    check(as_object(error) is not None and bool(dig(error, "message")), "an error with a message", error, done.exchange)


@probes.add
async def failed_run_is_shown_as_failed(ctx: Ctx) -> None:
    done = await ctx.once(run_to_failure)
    exchange = await ctx.target.run(done.id)
    check(dig(exchange.json, "status") == "failed", "the status failed", exchange.json, exchange)
    check(
        dig(exchange.json, "error") == dig(done.run, "error"), "the error as it was answered", exchange.json, exchange
    )


@probes.add
async def stream_ends_with_the_failure(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, "fail")
    check(done.types[-1] == "run.failed", "run.failed last", done.types, done.exchange)
    check(dig(done.events[-1], "run", "error") is not None, "the error of the failure", done.events[-1], done.exchange)


@probes.add
async def failed_run_tells_when(ctx: Ctx) -> None:
    done = await ctx.once(run_to_failure)
    check(isinstance(dig(done.run, "finished_at"), str), "a finished_at", done.run, done.exchange)


@probes.add
async def failure_shows_no_code(ctx: Ctx) -> None:
    done = await ctx.once(run_to_failure)
    found = find_leak(done.exchange.content.decode(errors="replace"))
    check(not found, "an error without a stack trace", found, done.exchange)
