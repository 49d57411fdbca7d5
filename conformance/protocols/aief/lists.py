"""Probes that test the lists of AIEF servers, and their pages."""

import asyncio
from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.aief.scenes import create_task, execute_step, new_task, page_of_tasks, play_task
from babelgate.conformance.protocols.aief.target import AiefTarget, Ctx, items_of
from babelgate.conformance.verdict import NotObserved, check
from babelgate.conformance.wire.exchange import Exchange, dig

probes: Final = Probes[AiefTarget]()

_MAX_PAGES: Final = 50
_TRIES: Final = 20


@probes.add
async def created_task_is_listed(ctx: Ctx) -> None:
    task_id = dig((await ctx.once(create_task)).json, "task_id")
    for number in range(1, _MAX_PAGES + 1):
        exchange = await ctx.target.tasks(current_page=number, page_size=100)
        check(exchange.status == 200, "tasks are listed with status 200", exchange.status, exchange)
        tasks = items_of(exchange, "tasks")
        found = [each for each in tasks if dig(each, "task_id") == task_id]
        check(len(found) <= 1, f"the task {task_id} once", found, exchange)
        if found:
            return
        check(bool(tasks), f"the task {task_id} is on one of the pages", [], exchange)
    raise NotObserved(f"the task {task_id} is on none of the first {_MAX_PAGES} pages: too many tasks to look for it")


@probes.add
async def page_of_tasks_is_as_long_as_asked(ctx: Ctx) -> None:
    exchange = await ctx.once(page_of_tasks)
    check(len(items_of(exchange, "tasks")) == 1, "page_size=1 gives one task", exchange.json, exchange)


@probes.add
async def pages_of_tasks_are_different(ctx: Ctx) -> None:
    """Check that the second page of tasks differs from the first.

    The first page is read before and after the second. If it has changed, another probe has created a task, which moves
    all later ones, and the pages are read again.
    """
    await ctx.once(page_of_tasks)
    for _ in range(_TRIES):
        pages = [await ctx.target.tasks(current_page=number, page_size=1) for number in (1, 2, 1)]
        ids = [dig(items_of(each, "tasks"), 0, "task_id") for each in pages]
        if ids[0] == ids[2]:
            check(ids[1] is not None and ids[0] != ids[1], "the second page has another task", ids, pages[1])
            return
    raise NotObserved("the list changed between all requests")


@probes.add
async def pagination_says_which_page_it_is(ctx: Ctx) -> None:
    await ctx.once(page_of_tasks)
    exchange = await ctx.target.tasks(current_page=2, page_size=1)
    page = dig(exchange.json, "pagination")
    check(dig(page, "current_page") == 2 and dig(page, "page_size") == 1, "page 2 of 1 item each", page, exchange)


@probes.add
async def pagination_counts_all_items(ctx: Ctx) -> None:
    done = await ctx.once(page_of_tasks)
    total = dig(done.json, "pagination", "total_items")
    check(isinstance(total, int) and total >= 2, "total_items is the number of all tasks", done.json, done)


@probes.add
async def pagination_counts_the_last_page(ctx: Ctx) -> None:
    """Check that `total_pages` includes the last page even if it is not full."""
    task_id = await _three_files(ctx)
    exchange = await ctx.target.artifacts(task_id, current_page=1, page_size=2)
    page = dig(exchange.json, "pagination")
    check(dig(page, "total_pages") == 2, "3 items in pages of 2 make 2 pages", page or exchange.json, exchange)


@probes.add
async def pages_have_defaults(ctx: Ctx) -> None:
    await ctx.once(create_task)
    exchange = await ctx.target.tasks()
    page = dig(exchange.json, "pagination")
    check(dig(page, "current_page") == 1 and dig(page, "page_size") == 10, "page 1 of 10 items each", page, exchange)


@probes.add
async def page_beyond_the_end_is_empty(ctx: Ctx) -> None:
    await ctx.once(page_of_tasks)
    exchange = await ctx.target.tasks(current_page=100_000, page_size=10)
    check(exchange.status == 200, "a page beyond the end is answered with 200", exchange.status, exchange)
    check(items_of(exchange, "tasks") == [], "an empty list", exchange.json, exchange)


@probes.add
async def page_size_of_zero_is_refused(ctx: Ctx) -> None:
    await ctx.once(page_of_tasks)
    exchange = await ctx.target.tasks(page_size=0)
    check(_is_refused(exchange), "page_size=0 is refused with a 4xx status", exchange.status, exchange)


@probes.add
async def page_that_is_no_number_is_refused(ctx: Ctx) -> None:
    await ctx.once(page_of_tasks)
    exchange = await ctx.target.tasks(current_page="one")
    check(_is_refused(exchange), "current_page=one is refused with a 4xx status", exchange.status, exchange)


@probes.add
async def executed_step_is_listed(ctx: Ctx) -> None:
    done = await ctx.once(execute_step)
    exchange = await done.agent.steps(done.task_id, page_size=100)
    ids = [dig(each, "step_id") for each in items_of(exchange, "steps")]
    check(exchange.status == 200, "steps are listed with status 200", exchange.status, exchange)
    check(ids.count(dig(done.step, "step_id")) == 1, "the executed step once in the list", ids, exchange)


@probes.add
async def steps_are_listed_in_order(ctx: Ctx) -> None:
    behaviour = "steps" if "steps" in ctx.triggers else "plain"
    done = await ctx.once(play_task, behaviour)
    exchange = await done.agent.steps(done.task_id, page_size=100)
    executed = [dig(each, "step_id") for each in done.steps]
    listed = [dig(each, "step_id") for each in items_of(exchange, "steps")]
    listed_executed = [each for each in listed if each in executed]
    check(listed_executed == executed, "the steps in the order of their execution", listed, exchange)


@probes.add
async def page_of_steps_is_as_long_as_asked(ctx: Ctx) -> None:
    done = await ctx.once(play_task, "steps" if "steps" in ctx.triggers else "plain")
    total = len(items_of(await done.agent.steps(done.task_id, page_size=100), "steps"))
    listed = [await done.agent.steps(done.task_id, current_page=number, page_size=1) for number in (1, 2)]
    ids = [[dig(each, "step_id") for each in items_of(page, "steps")] for page in listed]
    lengths = [len(each) for each in ids]
    check(lengths == [1, min(1, total - 1)], f"page_size=1 gives one of {total} steps a page", ids, listed[1])
    check(ids[0] != ids[1], "another page has another step", ids, listed[1])


@probes.add
async def page_of_artifacts_is_as_long_as_asked(ctx: Ctx) -> None:
    task_id = await _three_files(ctx)
    pages = [items_of(await ctx.target.artifacts(task_id, current_page=n, page_size=2), "artifacts") for n in (1, 2)]
    ids = [[dig(each, "artifact_id") for each in page] for page in pages]
    check([len(page) for page in ids] == [2, 1], "3 files are a page of 2 and one of 1", ids)
    check(len({*ids[0], *ids[1]}) == 3, "no file is on two pages", ids)


async def _three_files(ctx: Ctx) -> str:
    return await ctx.once(_upload_three)


async def _upload_three(ctx: Ctx) -> str:
    task_id = await new_task(ctx.target, "Hello")
    answers: Any = await asyncio.gather(
        *(ctx.target.upload(task_id, f"{number}".encode(), f"{number}.txt") for number in range(3))
    )
    for each in answers:
        check(each.status == 200, "a file is uploaded", each.status, each)
    return task_id


def _is_refused(exchange: Exchange) -> bool:
    return 400 <= (exchange.status or 0) < 500
