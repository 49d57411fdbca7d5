"""Probes that test the content of a thread after a run, and its history of states."""

from typing import Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.langchain.scenes import run_and_wait, run_of
from babelgate.conformance.protocols.langchain.server import Ctx, LangChainTarget, trigger_for
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import dig

probes: Final = Probes[LangChainTarget]()


@probes.add
async def thread_keeps_what_was_said(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        done = await ctx.once(run_and_wait, layout)
        exchange = await ctx.target.thread(done.thread_id)
        answers = ctx.target.answers(ctx.target.messages(exchange.json))
        there = ctx.target.answers(dig(done.exchange.json, "messages") or [])
        check(
            answers == there,
            f"the thread has the messages of the run's answer ({layout.name})",
            exchange.json,
            exchange,
        )
        check(dig(exchange.json, "status") == "idle", "it is idle again", exchange.json, exchange)


@probes.add
async def run_goes_on_from_what_was_said(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        thread_id = await ctx.target.new_thread()
        body = ctx.target.body(trigger_for(ctx, "plain"))
        runs = [await ctx.target.create(layout, thread_id, body, "wait") for _ in range(2)]
        check(runs[0].status == 200, "a run is answered with 200", runs[0].status, runs[0])
        counts = [len(ctx.target.answers(dig(each.json, "messages") or [])) for each in runs]
        expected = f"the second run has the answers of both ({layout.name})"
        check(0 < counts[0] < counts[1], expected, counts, runs[1])


@probes.add
async def history_has_the_newest_first(ctx: Ctx) -> None:
    layout = ctx.target.layouts[0]
    done = await ctx.once(run_and_wait, layout)
    states = await ctx.target.history(done.thread_id)
    newest = ctx.target.answers(ctx.target.messages(states[0] if states else None))
    there = ctx.target.answers(dig(done.exchange.json, "messages") or [])
    check(newest == there, "the first state is the one after the run", states)


@probes.add
async def history_is_as_long_as_asked(ctx: Ctx) -> None:
    done = await ctx.once(run_and_wait, ctx.target.layouts[0])
    every = await ctx.target.history(done.thread_id)
    check(len(every) >= 2, "the states before and after the answer", every)
    states = await ctx.target.history(done.thread_id, limit=1)
    check(states == every[:1], "only the newest state for limit=1", states)


@probes.add
async def history_tells_what_was_before(ctx: Ctx) -> None:
    done = await ctx.once(run_and_wait, ctx.target.layouts[0])
    every = await ctx.target.history(done.thread_id)
    before = dig(every, 0, "checkpoint", "checkpoint_id")
    states = await ctx.target.history(done.thread_id, before=before)
    check(len(every) >= 2 and states == every[1:], "only older states with `before`", states)


@probes.add
async def copy_has_what_was_said(ctx: Ctx) -> None:
    done = await ctx.once(run_and_wait, ctx.target.layouts[0])
    exchange = await ctx.target.ask("POST", f"/threads/{done.thread_id}/copy", receives="Thread")
    check(exchange.status == 200, "a copy is answered with 200", exchange.status, exchange)
    states = await ctx.target.history(str(dig(exchange.json, "thread_id")))
    answers = ctx.target.answers(ctx.target.messages(dig(states, 0)))
    there = ctx.target.answers(dig(done.exchange.json, "messages") or [])
    check(bool(there) and answers == there, "the newest state of the copy has the messages of its source", states)


@probes.add
async def copy_goes_its_own_way(ctx: Ctx) -> None:
    layout = ctx.target.layouts[0]
    thread_id = await ctx.target.new_thread()
    body = ctx.target.body(trigger_for(ctx, "plain"))
    run_of_it = await ctx.target.create(layout, thread_id, body)
    await ctx.target.run_to_end(layout, thread_id, run_of(run_of_it))
    exchange = await ctx.target.ask("POST", f"/threads/{thread_id}/copy", receives="Thread")
    copy = str(dig(exchange.json, "thread_id"))
    check(exchange.status == 200 and copy != thread_id, "a copy with a new id", exchange.json, exchange)
    more = await ctx.target.create(layout, copy, body, "wait")
    check(more.status == 200, "a run on the copy is answered with 200", more.status, more)
    source = await ctx.target.thread(thread_id)
    counts = [len(ctx.target.messages(source.json)), len(dig(more.json, "messages") or [])]
    check(0 < counts[0] < counts[1], "the source is unchanged by the run on its copy", source.json, source)
