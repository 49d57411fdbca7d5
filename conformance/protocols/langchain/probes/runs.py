"""Probes that test how runs are created, awaited and read."""

import asyncio
from dataclasses import replace
from typing import Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.langchain.scenes import (
    MARK,
    long_run,
    run_and_wait,
    run_in_background,
    run_of,
    run_until_failure,
    run_until_question,
    stay_busy,
)
from babelgate.conformance.protocols.langchain.server import (
    Ctx,
    LangChainTarget,
    is_refused,
    json_of,
    text_of,
    trigger_for,
    unknown_id,
)
from babelgate.conformance.samples import WORDS
from babelgate.conformance.verdict import NotObserved, check
from babelgate.conformance.wire.exchange import as_list, dig
from babelgate.conformance.wire.receiver import receiver

probes: Final = Probes[LangChainTarget]()

_AT_ONCE: Final = 4


@probes.add
async def run_is_created(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        await ctx.subject(run_in_background, layout)


@probes.add
async def run_keeps_its_metadata(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        done = await ctx.once(run_in_background, layout)
        for exchange in (done.created, done.run):
            mark = dig(exchange.json, "metadata", MARK)
            check(mark == done.mark, f"the metadata of the request ({layout.name})", exchange.json, exchange)


@probes.add
async def run_names_its_thread(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        done = await ctx.once(run_in_background, layout)
        there = dig(done.run.json, "thread_id")
        check(there == done.thread_id, f"the thread_id {done.thread_id} ({layout.name})", done.run.json, done.run)


@probes.add
async def run_is_found_again(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        done = await ctx.once(run_in_background, layout)
        check(done.run.status == 200, f"the run is found with 200 ({layout.name})", done.run.status, done.run)
        check(dig(done.run.json, "run_id") == done.run_id, f"the run {done.run_id}", done.run.json, done.run)


@probes.add
async def run_that_ended_is_a_success(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        done = await ctx.once(run_in_background, layout)
        status = dig(done.run.json, "status")
        check(status == "success", f"the status success ({layout.name})", done.run.json, done.run)


@probes.add
async def run_is_created_before_it_ends(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        await ctx.subject(stay_busy, layout)
        async with long_run(ctx, layout) as (_, __, created):
            status = dig(created.json, "status")
            expected = f"an answer while the run is running ({layout.name})"
            check(status in ("pending", "running"), expected, created.json, created)


@probes.add
async def run_can_be_waited_for(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        done = await ctx.once(run_in_background, layout)
        answers = ctx.target.answers(dig(done.waited.json, "messages") or [])
        check(bool(answers), f"the agent's answer ({layout.name})", done.waited.json, done.waited)


@probes.add
async def run_that_ended_is_answered_again(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        done = await ctx.once(run_in_background, layout)
        again = await ctx.target.wait(layout, done.thread_id, done.run_id)
        check(again.status == 200, f"an ended run can be waited for ({layout.name})", again.status, again)
        check(dig(again.json, "messages") == dig(done.waited.json, "messages"), "the same messages", again.json, again)


@probes.add
async def run_is_waited_for_at_once(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        done = await ctx.subject(run_and_wait, layout)
        answers = ctx.target.answers(dig(done.exchange.json, "messages") or [])
        check(bool(answers), f"the agent's answer ({layout.name})", done.exchange.json, done.exchange)


@probes.add
async def words_come_back_as_they_were(ctx: Ctx) -> None:
    """Check that texts are returned unchanged, even if they contain line ends or look like an event of a stream."""
    for layout in ctx.target.layouts:
        await ctx.once(run_and_wait, layout)
        body = ctx.target.body(replace(trigger_for(ctx, "plain"), text=WORDS), stream_mode=["values"])
        thread_id = await ctx.target.new_thread()
        async with ctx.target.stream(layout, thread_id, body) as stream:
            frames = await stream.rest_of_it()
        thread = await ctx.target.thread(thread_id)
        texts = [text_of(each) for each in ctx.target.messages(thread.json)]
        check(WORDS in texts, f"the caller's text in the thread ({layout.name})", texts, thread)
        last = next((each for each in reversed(frames) if each.event == "values"), None)
        streamed_texts = [text_of(each) for each in as_list(dig(json_of(last), "messages"))]
        check(
            WORDS in streamed_texts, f"the caller's text in the stream ({layout.name})", streamed_texts, stream.exchange
        )


@probes.add
async def busy_thread_takes_one_run(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        await ctx.once(stay_busy, layout)
        thread_id = await ctx.target.new_thread()
        fields = {"multitask_strategy": "reject"} if ctx.target.dialect.has_input else {}
        body = ctx.target.body(trigger_for(ctx, "long"), **fields)
        answers = await asyncio.gather(*(ctx.target.create(layout, thread_id, body) for _ in range(_AT_ONCE)))
        for each in answers:
            if each.status == 200:
                await ctx.target.cancel(layout, thread_id, run_of(each))
        found = sorted(each.status or 0 for each in answers)
        expected = f"one of {_AT_ONCE} concurrent runs is created, and 409 for the others ({layout.name})"
        check(found == [200, *[409] * (_AT_ONCE - 1)], expected, found)


@probes.add
async def thread_at_work_is_busy(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        async with long_run(ctx, layout) as (thread_id, _, __):
            exchange = await ctx.target.thread(thread_id)
            check(dig(exchange.json, "status") == "busy", f"the status busy ({layout.name})", exchange.json, exchange)


@probes.add
async def run_needs_no_thread(ctx: Ctx) -> None:
    layout = ctx.target.layouts[0]
    await ctx.once(run_and_wait, layout)
    exchange = await ctx.target.create(layout, None, ctx.target.body(trigger_for(ctx, "plain")), "wait")
    check(exchange.status == 200, "a run without a thread is answered with 200", exchange.status, exchange)
    answers = ctx.target.answers(dig(exchange.json, "messages") or [])
    check(len(answers) >= 1, "the agent's answer", exchange.json, exchange)


@probes.add
async def missing_thread_is_made(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        thread_id = unknown_id()
        body = ctx.target.body(trigger_for(ctx, "plain"), if_not_exists="create")
        exchange = await ctx.target.create(layout, thread_id, body, "wait")
        check(
            exchange.status == 200,
            f"if_not_exists=create creates the thread ({layout.name})",
            exchange.status,
            exchange,
        )
        found = await ctx.target.thread(thread_id)
        check(found.status == 200, "the thread is there", found.status, found)


@probes.add
async def missing_thread_is_refused(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        await ctx.once(run_and_wait, layout)
        for way in ("", "wait"):
            body = ctx.target.body(trigger_for(ctx, "plain"))
            exchange = await ctx.target.create(layout, unknown_id(), body, way)
            check(exchange.status == 404, f"the status 404 ({layout.name})", exchange.status, exchange)


@probes.add
async def deleted_run_is_gone(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        await ctx.once(run_in_background, layout)
        thread_id = await ctx.target.new_thread()
        created = await ctx.target.create(layout, thread_id, ctx.target.body(trigger_for(ctx, "plain")))
        run_id = run_of(created)
        before = await ctx.target.run_to_end(layout, thread_id, run_id)
        check(before.status == 200, "the run exists before", before.status, before)
        exchange = await ctx.target.ask("DELETE", layout.one(thread_id, run_id))
        check(exchange.status == 204, f"a delete is answered with 204 ({layout.name})", exchange.status, exchange)
        after = await ctx.target.run(layout, thread_id, run_id)
        check(after.status == 404, "the deleted run is not found", after.status, after)


@probes.add
async def thread_that_asks_is_interrupted(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        done = await ctx.once(run_until_question, layout)
        exchange = await ctx.target.thread(done.thread_id)
        status = dig(exchange.json, "status")
        check(status == "interrupted", f"the status interrupted ({layout.name})", exchange.json, exchange)


@probes.add
async def thread_that_failed_is_in_error(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        done = await ctx.once(run_until_failure, layout)
        exchange = await ctx.target.thread(done.thread_id)
        check(dig(exchange.json, "status") == "error", f"the status error ({layout.name})", exchange.json, exchange)


@probes.add
async def end_of_a_run_is_delivered(ctx: Ctx) -> None:
    for layout in ctx.target.layouts:
        await ctx.once(run_and_wait, layout)
        async with receiver(ctx.wire, ctx.options.callback_host, None) as hook:
            body = ctx.target.body(trigger_for(ctx, "plain"), webhook=hook.url)
            exchange = await ctx.target.create(layout, await ctx.target.new_thread(), body, "wait")
            if is_refused(exchange):
                raise NotObserved("the server does not call this machine's address")
            has_come = await hook.wait(1, ctx.options.timeout)
            check(has_come, f"a call of the webhook after the run ({layout.name})", None, exchange)
