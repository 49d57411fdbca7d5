"""Probes that test ACP runs that ask their caller a question (`awaiting`), and their resumption."""

import asyncio
from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.acp.scenes import (
    AcpStream,
    CreatedRun,
    answer_to,
    awaiting,
    long_run,
    read,
    resume_run,
    run_behaviour,
    run_question,
    stream_run,
    text_of,
    wait_for_end,
    wait_for_status,
)
from babelgate.conformance.protocols.acp.target import AcpTarget, Ctx, unknown_id
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import Exchange, as_object, dig

probes: Final = Probes[AcpTarget]()


@probes.add
async def question_makes_the_run_wait(ctx: Ctx) -> None:
    await ctx.subject(awaiting)


@probes.add
async def question_is_told(ctx: Ctx) -> None:
    done = await ctx.once(awaiting)
    request = dig(done.run, "await_request")
    check(bool(as_object(request)), "an await_request", done.run, done.exchange)


@probes.add
async def question_is_a_message(ctx: Ctx) -> None:
    done = await ctx.once(awaiting)
    request = dig(done.run, "await_request")
    check(dig(request, "type") == "message", "an await_request of type message", request, done.exchange)
    check(bool(text_of([dig(request, "message")])), "a message with text", request, done.exchange)


@probes.add
async def waiting_run_has_not_ended(ctx: Ctx) -> None:
    done = await ctx.once(awaiting)
    check(dig(done.run, "finished_at") is None, "no finished_at", done.run, done.exchange)


@probes.add
async def waiting_run_is_shown_as_waiting(ctx: Ctx) -> None:
    done = await run_question(ctx)
    exchange = await ctx.target.run(done.id)
    check(dig(exchange.json, "status") == "awaiting", "the status awaiting", exchange.json, exchange)
    request = dig(exchange.json, "await_request")
    check(request == dig(done.run, "await_request"), "the await_request as it was answered", request, exchange)


@probes.add
async def stream_ends_with_the_question(ctx: Ctx) -> None:
    done = await ctx.once(stream_run, "question")
    check(done.types[-1] == "run.awaiting", "run.awaiting last", done.types, done.exchange)
    check(done.is_whole, "a stream that ends", done.exchange.error, done.exchange)


@probes.add
async def answered_run_is_completed(ctx: Ctx) -> None:
    done = await ctx.subject(resume_run)
    check(dig(done.run, "status") == "completed", "the status completed", done.run, done.exchange)


@probes.add
async def answered_run_is_the_same(ctx: Ctx) -> None:
    done = await run_question(ctx)
    exchange = await ctx.target.resume(done.id, {**answer_to(ctx, done.id), "mode": "sync"})
    for member in ("run_id", "session_id", "agent_name", "created_at"):
        actual = dig(exchange.json, member)
        check(actual == dig(done.run, member), f"{member} as before", actual, exchange)


@probes.add
async def answer_reaches_the_agent(ctx: Ctx) -> None:
    done = await ctx.once(resume_run)
    answer = str(ctx.triggers["question"].answer)
    check(answer in text_of(dig(done.run, "output")), f"an output with {answer!r}", done.run, done.exchange)


@probes.add
async def async_resume_is_accepted(ctx: Ctx) -> None:
    exchange = await ctx.once(_resume_async)
    check(exchange.status == 202, "the status 202", exchange.status, exchange)


@probes.add
async def accepted_resume_is_in_progress(ctx: Ctx) -> None:
    exchange = await ctx.once(_resume_async)
    check(dig(exchange.json, "status") == "in-progress", "the status in-progress", exchange.json, exchange)


@probes.add
async def accepted_resume_comes_to_an_end(ctx: Ctx) -> None:
    exchange = await ctx.once(_resume_async)
    run = await wait_for_end(ctx.target, str(dig(exchange.json, "run_id")), ctx.options.timeout)
    check(dig(run.json, "status") == "completed", "the run is completed", run.json, run)


@probes.add
async def resume_is_streamed(ctx: Ctx) -> None:
    done = await ctx.subject(_stream_resume)
    check(done.types[-1] == "run.completed", "run.completed last", done.types, done.exchange)


@probes.add
async def resumed_stream_begins_in_progress(ctx: Ctx) -> None:
    done = await ctx.once(_stream_resume)
    check(done.types[0] == "run.in-progress", "run.in-progress first", done.types, done.exchange)


@probes.add
async def resumed_stream_tells_nothing_twice(ctx: Ctx) -> None:
    done = await ctx.once(_stream_resume)
    repeated = {"run.created", "run.awaiting"} & set(done.types)
    check(not repeated, "no event from before the resume", done.types, done.exchange)


@probes.add
async def resume_needs_no_run_id(ctx: Ctx) -> None:
    done = await run_question(ctx)
    body: dict[str, Any] = {**answer_to(ctx, done.id), "mode": "sync"}
    del body["run_id"]
    exchange = await ctx.target.resume(done.id, body, is_valid=False)
    check(exchange.status == 200, "the status 200", exchange.status, exchange)


@probes.add
async def resume_without_an_answer_is_refused(ctx: Ctx) -> None:
    done = await run_question(ctx)
    exchange = await ctx.target.resume(done.id, {"run_id": done.id, "mode": "sync"}, is_valid=False)
    _check_refused(exchange)
    await _check_still(ctx, done, "awaiting")


@probes.add
async def resume_without_a_mode_is_refused(ctx: Ctx) -> None:
    done = await run_question(ctx)
    _check_refused(await ctx.target.resume(done.id, answer_to(ctx, done.id), is_valid=False))


@probes.add
async def resume_of_an_unknown_run_is_not_found(ctx: Ctx) -> None:
    await ctx.once(resume_run)
    id = unknown_id()
    exchange = await ctx.target.resume(id, {**answer_to(ctx, id), "mode": "sync"})
    check(exchange.status == 404, "the status 404", exchange.status, exchange)


@probes.add
async def run_that_asks_nothing_is_not_resumed(ctx: Ctx) -> None:
    done = await ctx.once(run_behaviour, "plain")
    _check_refused(await ctx.target.resume(done.id, {**answer_to(ctx, done.id), "mode": "async"}))


@probes.add
async def answered_run_is_not_resumed_again(ctx: Ctx) -> None:
    done = await ctx.once(resume_run)
    exchange = await ctx.target.resume(done.id, {**answer_to(ctx, done.id), "mode": "async"})
    _check_refused(exchange)
    await _check_still(ctx, done, "completed")


@probes.add
async def cancelled_run_is_not_resumed(ctx: Ctx) -> None:
    done = await run_question(ctx)
    exchange = await ctx.target.cancel(done.id)
    check(exchange.status == 202, "a cancel is accepted", exchange.status, exchange)
    await wait_for_end(ctx.target, done.id, ctx.options.timeout)
    _check_refused(await ctx.target.resume(done.id, {**answer_to(ctx, done.id), "mode": "async"}))
    await _check_still(ctx, done, "cancelled")


@probes.add
async def question_is_answered_once(ctx: Ctx) -> None:
    done = await run_question(ctx)
    body = {**answer_to(ctx, done.id), "mode": "async"}
    answers = await asyncio.gather(*(ctx.target.resume(done.id, body) for _ in range(3)))
    statuses = [each.status for each in answers]
    check(statuses.count(202) == 1, "one of three concurrent resumes is accepted", statuses, answers[0])


@probes.add
async def run_at_work_is_not_resumed(ctx: Ctx) -> None:
    async with long_run(ctx) as started:
        await wait_for_status(ctx.target, started.id, ctx.options.timeout / 2, "in-progress")
        _check_refused(await ctx.target.resume(started.id, {**answer_to(ctx, started.id), "mode": "async"}))


async def _resume_async(ctx: Ctx) -> Exchange:
    done = await run_question(ctx)
    exchange = await ctx.target.resume(done.id, {**answer_to(ctx, done.id), "mode": "async"})
    check(dig(exchange.json, "run_id") == done.id, f"the run {done.id}", exchange.json, exchange)
    return exchange


async def _stream_resume(ctx: Ctx) -> AcpStream:
    done = await run_question(ctx)
    async with ctx.target.stream_run("resumeRun.request", answer_to(ctx, done.id), "runs", done.id) as stream:
        return await read(stream)


def _check_refused(exchange: Exchange) -> None:
    check(400 <= (exchange.status or 0) < 500, "a 4xx status", exchange.status, exchange)


async def _check_still(ctx: Ctx, done: CreatedRun, status: str) -> None:
    run = await wait_for_status(ctx.target, done.id, 0, status)
    check(dig(run.json, "status") == status, f"a run that is still {status}", run.json, run)
