"""Probes that test how AIEF servers refuse invalid requests."""

from typing import Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.aief.scenes import create_task, execute_step, new_task
from babelgate.conformance.protocols.aief.target import AiefTarget, Ctx, unknown_id
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import Exchange, dig

probes: Final = Probes[AiefTarget]()

_TRACES: Final = ("Traceback (most recent call last)", 'File "/', "\n    at ", "node_modules/")
"""Texts that occur in stack traces of Python and of JavaScript."""


@probes.add
async def unknown_task_is_not_found(ctx: Ctx) -> None:
    await ctx.once(create_task)
    _check_not_found(await ctx.target.task(unknown_id()))


@probes.add
async def steps_of_an_unknown_task_are_not_found(ctx: Ctx) -> None:
    await ctx.once(execute_step)
    _check_not_found(await ctx.target.steps(unknown_id()))


@probes.add
async def artifacts_of_an_unknown_task_are_not_found(ctx: Ctx) -> None:
    await ctx.once(create_task)
    _check_not_found(await ctx.target.artifacts(unknown_id()))


@probes.add
async def step_of_an_unknown_task_is_not_executed(ctx: Ctx) -> None:
    await ctx.once(execute_step)
    _check_not_found(await ctx.target.execute_step(unknown_id(), {"input": "Hello"}))


@probes.add
async def unknown_step_is_not_found(ctx: Ctx) -> None:
    done = await ctx.once(execute_step)
    _check_not_found(await done.agent.step(done.task_id, unknown_id()))


@probes.add
async def step_of_another_task_is_not_found(ctx: Ctx) -> None:
    done = await ctx.once(execute_step)
    other = await new_task(done.agent, "Hello")
    _check_not_found(await done.agent.step(other, str(dig(done.step, "step_id"))))


@probes.add
async def task_input_is_text(ctx: Ctx) -> None:
    await ctx.once(create_task)
    exchange = await ctx.target.create_task({"input": {"text": "Hello"}}, is_valid=False)
    check(exchange.status == 422, "an input that is an object is refused with 422", exchange.status, exchange)


@probes.add
async def step_input_is_text(ctx: Ctx) -> None:
    done = await ctx.once(execute_step)
    exchange = await done.agent.execute_step(done.task_id, {"input": ["Hello"]}, is_valid=False)
    check(exchange.status == 422, "an input that is an array is refused with 422", exchange.status, exchange)


@probes.add
async def broken_json_is_refused(ctx: Ctx) -> None:
    await ctx.once(create_task)
    exchange = await ctx.target.create_task(content=b'{"input": ', headers={"Content-Type": "application/json"})
    check(400 <= (exchange.status or 0) < 500, "invalid JSON is refused with a 4xx status", exchange.status, exchange)


@probes.add
async def odd_ids_are_not_found(ctx: Ctx) -> None:
    await ctx.once(create_task)
    for odd in ("x", "../../etc/passwd", "0" * 300):
        # No route may match such an id, so the answer need not be an error of the protocol.
        exchange = await ctx.wire.request("GET", ctx.target.url(odd), sends=None, receives=None)
        check(400 <= (exchange.status or 0) < 500, f"the id {odd[:20]!r} is refused", exchange.status, exchange)


@probes.add
async def errors_show_no_code(ctx: Ctx) -> None:
    await ctx.once(create_task)
    broken = {"content": b'{"input": ', "headers": {"Content-Type": "application/json"}}
    for exchange in (
        await ctx.target.task(unknown_id()),
        await ctx.target.create_task(**broken),
        await ctx.target.tasks(page_size=0),
    ):
        body = exchange.content.decode("utf-8", errors="replace")
        check(not any(each in body for each in _TRACES), "an error without a stack trace", body[:2000], exchange)


@probes.add
async def answers_are_called_json(ctx: Ctx) -> None:
    exchange = await ctx.once(create_task)
    check(exchange.media_type == "application/json", "Content-Type application/json", exchange.media_type, exchange)


@probes.add
async def task_of_another_caller_is_not_found(ctx: Ctx) -> None:
    task_id = dig((await ctx.once(create_task)).json, "task_id")
    other = dict(ctx.options.other_headers)
    exchange = await ctx.target.task(task_id, headers=other, is_anonymous=True)
    check(exchange.status == 404, "the second caller does not find it", exchange.status, exchange)


def _check_not_found(exchange: Exchange) -> None:
    check(exchange.status == 404, "the status 404", exchange.status, exchange)
