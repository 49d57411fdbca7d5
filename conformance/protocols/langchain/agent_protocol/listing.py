"""Probes that test the Agent Protocol's lists of runs: `POST /runs/search` of the OpenAPI document, `GET
/threads/{id}/runs` of the README."""

from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.langchain.agent_protocol.opening import OPENAPI, README
from babelgate.conformance.protocols.langchain.scenes import MARK, run_in_background, run_of
from babelgate.conformance.protocols.langchain.server import Ctx, LangChainTarget, Layout, ids_of, trigger_for
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import Exchange, dig

probes: Final = Probes[LangChainTarget]()


@probes.add
async def runs_are_found_by_thread(ctx: Ctx) -> None:
    done = await ctx.once(run_in_background, OPENAPI)
    exchange = await _search(ctx, thread_id=done.thread_id)
    check(exchange.status == 200, "runs are searched with status 200", exchange.status, exchange)
    check(ids_of(exchange, "run_id") == [done.run_id], "the one run of the thread", exchange.json, exchange)


@probes.add
async def runs_are_found_by_status(ctx: Ctx) -> None:
    done = await ctx.once(run_in_background, OPENAPI)
    exchange = await _search(ctx, thread_id=done.thread_id, status="success")
    check(ids_of(exchange, "run_id") == [done.run_id], "the run that succeeded", exchange.json, exchange)
    none = await _search(ctx, thread_id=done.thread_id, status="error")
    check(none.status == 200 and none.json == [], "no failed run", none.json, none)


@probes.add
async def runs_are_found_by_metadata(ctx: Ctx) -> None:
    done = await ctx.once(run_in_background, OPENAPI)
    exchange = await _search(ctx, metadata={MARK: done.mark})
    check(ids_of(exchange, "run_id") == [done.run_id], "the one run with the mark", exchange.json, exchange)


@probes.add
async def runs_are_found_by_agent(ctx: Ctx) -> None:
    done = await ctx.once(run_in_background, OPENAPI)
    agent = dig(done.run.json, "agent_id")
    exchange = await _search(ctx, thread_id=done.thread_id, agent_id=agent)
    check(ids_of(exchange, "run_id") == [done.run_id], f"the run of {agent}", exchange.json, exchange)
    none = await _search(ctx, thread_id=done.thread_id, agent_id="no-such-agent")
    check(none.status in (200, 404) and not ids_of(none, "run_id"), "no run of another agent", none.json, none)


@probes.add
async def found_runs_are_told_page_by_page(ctx: Ctx) -> None:
    thread_id, ids = await _run_twice(ctx, OPENAPI)
    pages = [await _search(ctx, thread_id=thread_id, limit=1, offset=offset) for offset in (0, 1)]
    found = [ids_of(each, "run_id") for each in pages]
    check([len(each) for each in found] == [1, 1], "limit=1 gives one run a page", found, pages[1])
    check(sorted(str(each[0]) for each in found) == sorted(ids), "each run on a separate page", found, pages[1])


@probes.add
async def runs_of_a_thread_are_listed(ctx: Ctx) -> None:
    done = await ctx.once(run_in_background, README)
    exchange = await _list(ctx, done.thread_id)
    check(exchange.status == 200, "runs are listed with status 200", exchange.status, exchange)
    check(ids_of(exchange, "run_id") == [done.run_id], "the one run of the thread", exchange.json, exchange)


@probes.add
async def runs_of_a_thread_are_told_page_by_page(ctx: Ctx) -> None:
    thread_id, ids = await _run_twice(ctx, README)
    pages = [await _list(ctx, thread_id, limit=1, offset=offset) for offset in (0, 1)]
    found = [ids_of(each, "run_id") for each in pages]
    check([len(each) for each in found] == [1, 1], "limit=1 gives one run a page", found, pages[1])
    check(sorted(str(each[0]) for each in found) == sorted(ids), "each run on a separate page", found, pages[1])


async def _run_twice(ctx: Ctx, layout: Layout) -> tuple[str, list[str]]:
    """Run an agent twice on a new thread, and wait for both ends. Return the id of the thread, and those of the runs in
    order."""
    thread_id = await ctx.target.new_thread()
    ids: list[str] = []
    for _ in range(2):
        created = await ctx.target.create(layout, thread_id, ctx.target.body(trigger_for(ctx, "plain")))
        ids.append(run_of(created))
        await ctx.target.wait(layout, thread_id, ids[-1])
    return thread_id, ids


async def _search(ctx: Ctx, **fields: Any) -> Exchange:
    return await ctx.target.ask("POST", "/runs/search", fields, sends="RunSearch.request", receives="Runs")


async def _list(ctx: Ctx, thread_id: str, **query: Any) -> Exchange:
    return await ctx.target.ask("GET", README.runs(thread_id), receives="ThreadRuns", query=query)
