"""Probes that test the tasks of AIEF servers."""

from typing import Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.aief.scenes import INPUT, create_task, new_task
from babelgate.conformance.protocols.aief.target import AiefTarget, Ctx
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import dig

probes: Final = Probes[AiefTarget]()


@probes.add
async def task_is_created(ctx: Ctx) -> None:
    await ctx.once(create_task)


@probes.add
async def task_needs_no_body(ctx: Ctx) -> None:
    await ctx.once(create_task)
    exchange = await ctx.target.create_task()
    check(exchange.status == 200, "a task without a body is created", exchange.status, exchange)


@probes.add
async def task_takes_an_empty_json_body(ctx: Ctx) -> None:
    await ctx.once(create_task)
    exchange = await ctx.target.create_task(content=b"", headers={"Content-Type": "application/json"})
    check(exchange.status == 200, "an empty JSON body counts as no body", exchange.status, exchange)


@probes.add
async def task_keeps_its_input(ctx: Ctx) -> None:
    exchange = await ctx.once(create_task)
    text = ctx.triggers["plain"].text
    check(dig(exchange.json, "input") == text, f"the task's input is {text!r}", exchange.json, exchange)


@probes.add
async def task_keeps_its_additional_input(ctx: Ctx) -> None:
    exchange = await ctx.once(create_task)
    additional_input = INPUT["additional_input"]
    check(
        dig(exchange.json, "additional_input") == additional_input,
        "additional_input as it was sent",
        exchange.json,
        exchange,
    )


@probes.add
async def tasks_have_unique_ids(ctx: Ctx) -> None:
    first = dig((await ctx.once(create_task)).json, "task_id")
    second = await new_task(ctx.target, "Hello")
    check(first != second, "two tasks have two ids", [first, second])


@probes.add
async def task_is_found_again(ctx: Ctx) -> None:
    task_id = dig((await ctx.once(create_task)).json, "task_id")
    exchange = await ctx.target.task(task_id)
    check(exchange.status == 200, "the task is found with status 200", exchange.status, exchange)
    check(dig(exchange.json, "task_id") == task_id, f"the task {task_id}", exchange.json, exchange)


@probes.add
async def task_is_found_as_it_was_made(ctx: Ctx) -> None:
    task = (await ctx.once(create_task)).json
    exchange = await ctx.target.task(dig(task, "task_id"))
    for name in ("input", "additional_input"):
        check(dig(exchange.json, name) == dig(task, name), f"{name} as it was created", exchange.json, exchange)


@probes.add
async def new_task_has_no_artifacts(ctx: Ctx) -> None:
    exchange = await ctx.once(create_task)
    check(dig(exchange.json, "artifacts") == [], "artifacts is an empty array", exchange.json, exchange)
