"""Probes of tool calls: those of the agent's own tools, of the page's tools, and approvals."""

from typing import Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.vercel_ui.scenes import (
    ChatAnswer,
    answer_with_call,
    answer_with_tool,
    ask_for_approval,
    call_with_result,
    decide,
)
from babelgate.conformance.protocols.vercel_ui.target import ChatTarget, Ctx
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import dig

probes: Final = Probes[ChatTarget]()


@probes.add
async def tools_of_the_agent_end_in_the_stream(ctx: Ctx) -> None:
    answer = await ctx.once(answer_with_tool)
    called = [dig(each, "toolCallId") for each in answer.all("tool-input-available")]
    ended = [dig(each, "toolCallId") for each in answer.all("tool-output-available", "tool-output-error")]
    check(set(called) == set(ended), "an output for each call", ended, answer.exchange)


@probes.add
async def outputs_follow_their_inputs(ctx: Ctx) -> None:
    answer = await ctx.once(answer_with_tool)
    called: set[object] = set()
    for chunk in answer.chunks:
        kind, call_id = str(dig(chunk, "type")), dig(chunk, "toolCallId")
        if kind.startswith("tool-input"):
            called.add(call_id)
        elif kind.startswith("tool-output"):
            check(call_id in called, "the input of a call before its output", chunk, answer.exchange)


@probes.add
async def page_does_not_execute_tools_of_the_agent(ctx: Ctx) -> None:
    answer = await ctx.once(answer_with_tool)
    for chunk in answer.all("tool-input-available"):
        check(dig(chunk, "providerExecuted") is True, "providerExecuted: true", chunk, answer.exchange)


@probes.add
async def call_of_the_page_is_made(ctx: Ctx) -> None:
    await ctx.subject(answer_with_call)


@probes.add
async def call_finishes_with_its_reason(ctx: Ctx) -> None:
    answer = await ctx.once(answer_with_call)
    check(answer.reason == "tool-calls", "the finishReason tool-calls", answer.reason, answer.exchange)


@probes.add
async def result_continues_the_answer(ctx: Ctx) -> None:
    await ctx.subject(call_with_result)


@probes.add
async def result_begins_a_step(ctx: Ctx) -> None:
    answer = await ctx.once(call_with_result)
    _check_step(answer)


@probes.add
async def result_continues_the_same_message(ctx: Ctx) -> None:
    called, answer = await ctx.once(answer_with_call), await ctx.once(call_with_result)
    ids = called.message_id, answer.message_id
    check(ids[0] == ids[1], "the messageId of the message that goes on", ids[1], answer.exchange)


@probes.add
async def approval_is_requested_for_a_call(ctx: Ctx) -> None:
    answer = await ctx.once(ask_for_approval)
    called: set[object] = set()
    for chunk in answer.chunks:
        if dig(chunk, "type") == "tool-input-available":
            called.add(dig(chunk, "toolCallId"))
        elif dig(chunk, "type") == "tool-approval-request":
            check(dig(chunk, "toolCallId") in called, "a request for a call before it", chunk, answer.exchange)


@probes.add
async def approval_continues_the_answer(ctx: Ctx) -> None:
    answer = await ctx.subject(decide, True)
    _check_step(answer)


@probes.add
async def approved_call_has_an_output(ctx: Ctx) -> None:
    answer = await ctx.once(decide, True)
    ended = answer.all("tool-output-available", "tool-output-error")
    check(bool(ended), "an output of the approved call", answer.chunks, answer.exchange)


@probes.add
async def refused_call_is_denied(ctx: Ctx) -> None:
    answer = await ctx.once(decide, False)
    outputs = answer.all("tool-output-available")
    check(not outputs, "no output of a call that the user refuses", outputs, answer.exchange)


def _check_step(answer: ChatAnswer) -> None:
    """Raise Failed unless the response to tool results has a `start-step` or `error` chunk. Without one, a page with
    `sendAutomaticallyWhen` repeats its request without end."""
    is_begun = bool(answer.all("start-step", "error"))
    check(is_begun, "start-step in the answer to results", answer.chunks, answer.exchange)
