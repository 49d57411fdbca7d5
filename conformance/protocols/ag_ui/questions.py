"""Probes of questions and their answers."""

from typing import Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.ag_ui.scenes import play_answer, play_question, play_questions
from babelgate.conformance.protocols.ag_ui.target import AgUiTarget, Ctx, request
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import Exchange, dig

probes: Final = Probes[AgUiTarget]()


@probes.add
async def question_is_an_interrupt(ctx: Ctx) -> None:
    played = await ctx.subject(play_question)
    is_interrupt = dig(played.end, "outcome", "type") == "interrupt" and bool(played.interrupts)
    check(is_interrupt, "the outcome interrupt, with an interrupt", played.end, played.exchange)


@probes.add
async def interrupts_have_different_ids(ctx: Ctx) -> None:
    played = await ctx.once(play_questions)
    ids = [dig(each, "id") for each in played.interrupts]
    check(bool(ids) and len(ids) == len(set(map(str, ids))), "interrupts with different ids", ids, played.exchange)


@probes.add
async def answered_run_continues(ctx: Ctx) -> None:
    played = await ctx.subject(play_answer)
    check(dig(played.end, "type") == "RUN_FINISHED", "RUN_FINISHED", played.end, played.exchange)
    check(dig(played.end, "runId") == played.body["runId"], "the runId of the answer", played.end, played.exchange)


@probes.add
async def unanswered_run_does_not_succeed(ctx: Ctx) -> None:
    asking = await play_question(ctx)
    answer = {"interruptId": "unknown", "status": "resolved", "payload": ctx.triggers["question"].answer}
    body = request(*asking.body["messages"], threadId=asking.body["threadId"], resume=[answer])
    exchange = await asking.agent.run(body)
    check(not _has_succeeded(exchange), "a refusal, an error or the interrupt again", exchange.status, exchange)


@probes.add
async def repeated_answer_does_no_harm(ctx: Ctx) -> None:
    played = await ctx.once(play_answer)
    exchange = await played.agent.run(played.body)
    check((exchange.status or 500) < 500, "no server error", exchange.status, exchange)


@probes.add
async def question_of_another_caller_stays_open(ctx: Ctx) -> None:
    asking = await play_question(ctx)
    check(bool(asking.interrupts), "an interrupt", asking.end, asking.exchange)
    answer = {
        "interruptId": dig(asking.interrupts[0], "id"),
        "status": "resolved",
        "payload": ctx.triggers["question"].answer,
    }
    body = request(threadId=asking.body["threadId"], resume=[answer])
    exchange = await asking.agent.run(body, is_anonymous=True, headers=dict(ctx.options.other_headers))
    check(not _has_succeeded(exchange), "no answer by another caller", exchange.status, exchange)


def _has_succeeded(exchange: Exchange) -> bool:
    last = exchange.frames[-1].json_or_none if exchange.frames else None
    is_finished = exchange.status == 200 and dig(last, "type") == "RUN_FINISHED"
    return is_finished and dig(last, "outcome", "type") in (None, "success")
