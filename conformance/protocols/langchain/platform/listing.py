"""Probes that test the lists of LangGraph Platform that the Agent Protocol does not have: threads, and the runs of a
thread."""

from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.langchain.platform.opening import LAYOUT
from babelgate.conformance.protocols.langchain.scenes import (
    MARK,
    create_marked_threads,
    create_thread,
    long_run,
    run_of,
)
from babelgate.conformance.protocols.langchain.server import Ctx, LangChainTarget, ids_of, trigger_for, unknown_id
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import Exchange, as_list, as_object, dig

probes: Final = Probes[LangChainTarget]()


@probes.add
async def threads_are_found_by_id(ctx: Ctx) -> None:
    _, ids = await ctx.once(create_marked_threads)
    exchange = await ctx.target.search_threads(ids=ids[:2])
    found = sorted(map(str, ids_of(exchange, "thread_id")))
    check(found == sorted(ids[:2]), "these two threads", found, exchange)


@probes.add
async def threads_are_sorted(ctx: Ctx) -> None:
    mark, ids = await ctx.once(create_marked_threads)
    for order, wanted in (("asc", ids), ("desc", list(reversed(ids)))):
        query = {"metadata": {MARK: mark}, "sort_by": "created_at", "sort_order": order}
        exchange = await ctx.target.search_threads(**query)
        found = ids_of(exchange, "thread_id")
        check(found == wanted, f"the threads in the order of their creation, {order}", found, exchange)


@probes.add
async def members_of_threads_are_selected(ctx: Ctx) -> None:
    mark, _ = await ctx.once(create_marked_threads)
    body = {"metadata": {MARK: mark}, "select": ["thread_id", "status"]}
    exchange = await ctx.target.ask("POST", "/threads/search", body, sends="ThreadSearch.request")
    found = [sorted(as_object(each) or {}) for each in as_list(exchange.json)]
    check(bool(found) and all(each == ["status", "thread_id"] for each in found), "only these members", found, exchange)


@probes.add
async def threads_are_counted(ctx: Ctx) -> None:
    mark, ids = await ctx.once(create_marked_threads)
    body = {"metadata": {MARK: mark}}
    exchange = await ctx.target.ask("POST", "/threads/count", body, receives="Count")
    check(exchange.json == len(ids), f"the number {len(ids)}", exchange.json, exchange)


@probes.add
async def pages_say_whether_there_is_more(ctx: Ctx) -> None:
    mark, ids = await ctx.once(create_marked_threads)
    first = await ctx.target.search_threads(metadata={MARK: mark}, limit=2)
    check(first.header("x-pagination-next") == "2", "X-Pagination-Next: 2", first.response_headers, first)
    last = await ctx.target.search_threads(metadata={MARK: mark}, limit=2, offset=2)
    check(
        last.header("x-pagination-next") is None, "no X-Pagination-Next on the last page", last.response_headers, last
    )
    total = last.header("x-pagination-total")
    check(total == str(len(ids)), f"X-Pagination-Total: {len(ids)}", last.response_headers, last)


@probes.add
async def patch_can_be_answered_with_nothing(ctx: Ctx) -> None:
    await ctx.once(create_thread)
    thread_id = await ctx.target.new_thread()
    headers = {"Prefer": "return=minimal"}
    exchange = await ctx.target.patch(thread_id, {"metadata": {"a": 1}}, headers=headers)
    check(exchange.status == 204, "the status 204", exchange.status, exchange)
    metadata = dig((await ctx.target.thread(thread_id)).json, "metadata")
    check(dig(metadata, "a") == 1, "the thread is changed", metadata, exchange)


# Runs


async def _run_twice(ctx: Ctx) -> tuple[str, list[str]]:
    """Run an agent twice on a new thread, and wait for both ends. Return the id of the thread, and those of the runs,
    oldest first."""
    thread_id = await ctx.target.new_thread()
    ids: list[str] = []
    for _ in range(2):
        created = await ctx.target.create(LAYOUT, thread_id, ctx.target.body(trigger_for(ctx, "plain")))
        ids.append(run_of(created))
        await ctx.target.wait(LAYOUT, thread_id, ids[-1])
    return thread_id, ids


@probes.add
async def runs_are_listed_newest_first(ctx: Ctx) -> None:
    thread_id, ids = await ctx.once(_run_twice)
    exchange = await _list(ctx, thread_id)
    check(exchange.status == 200, "runs are listed with status 200", exchange.status, exchange)
    found = ids_of(exchange, "run_id")
    check(found == list(reversed(ids)), "both runs, newest first", found, exchange)


@probes.add
async def runs_are_listed_page_by_page(ctx: Ctx) -> None:
    thread_id, ids = await ctx.once(_run_twice)
    pages = [ids_of(await _list(ctx, thread_id, limit=1, offset=offset), "run_id") for offset in (0, 1)]
    check([len(each) for each in pages] == [1, 1], "limit=1 gives one run a page", pages)
    check(sorted(map(str, [*pages[0], *pages[1]])) == sorted(ids), "each run on a separate page", pages)


@probes.add
async def runs_are_listed_by_status(ctx: Ctx) -> None:
    thread_id, ids = await ctx.once(_run_twice)
    good = await _list(ctx, thread_id, status="success")
    check(len(ids_of(good, "run_id")) == len(ids), "the runs that succeeded", good.json, good)
    none = await _list(ctx, thread_id, status="error")
    check(none.status == 200 and none.json == [], "no failed run", none.json, none)


@probes.add
async def runs_of_an_unknown_thread_are_not_found(ctx: Ctx) -> None:
    await ctx.once(create_thread)
    exchange = await _list(ctx, unknown_id())
    check(exchange.status == 404, "the status 404", exchange.status, exchange)


# Several runs at once


@probes.add
async def runs_are_created_in_a_batch(ctx: Ctx) -> None:
    body = ctx.target.body(trigger_for(ctx, "plain"))
    exchange = await ctx.target.ask("POST", "/runs/batch", [body, body], receives="Runs")
    check(exchange.status == 200, "the status 200", exchange.status, exchange)
    ids = ids_of(exchange, "run_id")
    check(len(ids) == 2 and len(set(ids)) == 2, "two runs", exchange.json, exchange)


@probes.add
async def wrong_batch_is_refused_whole(ctx: Ctx) -> None:
    body = ctx.target.body(trigger_for(ctx, "plain"))
    right = await ctx.target.ask("POST", "/runs/batch", [body], receives="Runs")
    check(right.status == 200, "a valid batch is created", right.status, right)
    batches: list[Any] = [[], [body, {**body, "stream_mode": "perhaps"}]]
    for wrong in batches:
        exchange = await ctx.target.ask("POST", "/runs/batch", wrong)
        check(exchange.status == 422, f"a batch of {len(wrong)} is refused with 422", exchange.status, exchange)


@probes.add
async def several_runs_are_cancelled(ctx: Ctx) -> None:
    async with long_run(ctx, LAYOUT) as (thread_id, run_id, _):
        body = {"thread_id": thread_id, "run_ids": [run_id]}
        exchange = await ctx.target.ask("POST", "/runs/cancel", body, sends="RunsCancel.request")
        check(exchange.status == 204, "the status 204", exchange.status, exchange)
        run = await ctx.target.run_to_end(LAYOUT, thread_id, run_id)
        check(dig(run.json, "status") == "interrupted", "the run is interrupted", run.json, run)


@probes.add
async def unknown_runs_are_not_cancelled(ctx: Ctx) -> None:
    thread_id, _ = await ctx.once(_run_twice)
    body = {"thread_id": thread_id, "run_ids": [unknown_id()]}
    exchange = await ctx.target.ask("POST", "/runs/cancel", body, sends="RunsCancel.request")
    check(exchange.status == 404, "the status 404", exchange.status, exchange)


async def _list(ctx: Ctx, thread_id: str, **query: Any) -> Exchange:
    return await ctx.target.ask("GET", LAYOUT.runs(thread_id), receives="Runs", query=query)
