"""Probes that test whether ACP servers hide runs and sessions of one caller from another."""

from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.acp.scenes import answer_to, long_run, run_behaviour, run_question
from babelgate.conformance.protocols.acp.target import AcpTarget, Ctx
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import Exchange, dig

probes: Final = Probes[AcpTarget]()


@probes.add
async def run_of_another_caller_is_not_found(ctx: Ctx) -> None:
    done = await ctx.once(run_behaviour, "plain")
    _check_not_found(await ctx.target.run(done.id, **_other(ctx)))


@probes.add
async def events_of_another_caller_are_not_found(ctx: Ctx) -> None:
    done = await ctx.once(run_behaviour, "plain")
    _check_not_found(await ctx.target.events(done.id, **_other(ctx)))


@probes.add
async def run_of_another_caller_is_not_cancelled(ctx: Ctx) -> None:
    async with long_run(ctx) as started:
        _check_not_found(await ctx.target.cancel(started.id, **_other(ctx)))
        run = await ctx.target.run(started.id)
        check(dig(run.json, "status") in ("created", "in-progress"), "a run that continues", run.json, run)


@probes.add
async def question_to_another_caller_is_not_answered(ctx: Ctx) -> None:
    done = await run_question(ctx)
    body = {**answer_to(ctx, done.id), "mode": "async"}
    _check_not_found(await ctx.target.resume(done.id, body, **_other(ctx)))


@probes.add
async def session_of_another_caller_is_not_found(ctx: Ctx) -> None:
    done = await ctx.once(run_behaviour, "plain")
    _check_not_found(await ctx.target.session(str(dig(done.run, "session_id")), **_other(ctx)))


def _other(ctx: Ctx) -> dict[str, Any]:
    return {"headers": dict(ctx.options.other_headers), "is_anonymous": True}


def _check_not_found(exchange: Exchange) -> None:
    check(exchange.status == 404, "the status 404", exchange.status, exchange)
