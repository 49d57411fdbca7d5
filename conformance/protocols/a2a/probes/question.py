"""Probes that test A2A tasks that wait for an answer of their caller."""

from typing import Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.a2a.agent import A2aTarget, Ctx, agent_for
from babelgate.conformance.protocols.a2a.binding import TERMINAL, state_of
from babelgate.conformance.protocols.a2a.scenes import (
    answer_question,
    each_binding,
    final_reply,
    follow_up,
    get,
    shown_stream,
)
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import as_list, dig

probes: Final = Probes[A2aTarget]()


@probes.add
@each_binding
async def question_is_a_state(ctx: Ctx, binding: str) -> None:
    sent = await ctx.subject(final_reply, binding, "question")
    state = state_of(sent.task)
    check(state == "TASK_STATE_INPUT_REQUIRED", "a task that needs input", state, sent.exchange)


@probes.add
@each_binding
async def question_is_a_message(ctx: Ctx, binding: str) -> None:
    sent = await ctx.once(final_reply, binding, "question")
    parts = as_list(dig(sent.task, "status", "message", "parts"))
    check(bool(parts), "a status message with the question", dig(sent.task, "status"), sent.exchange)


@probes.add
@each_binding
async def answer_goes_on_with_the_task(ctx: Ctx, binding: str) -> None:
    dialogue = await ctx.once(answer_question, binding, "question")
    check(not dialogue.answer.reason, "the answer is accepted", dialogue.answer.reason, dialogue.answer.exchange)
    id = dig(dialogue.answer.task, "id")
    check(
        id == dialogue.question.task["id"],
        f"the same task, {dialogue.question.task['id']}",
        id,
        dialogue.answer.exchange,
    )


@probes.add
@each_binding
async def answered_task_ends(ctx: Ctx, binding: str) -> None:
    dialogue = await ctx.once(answer_question, binding, "question")
    state = state_of(dialogue.answer.task)
    check(state == "TASK_STATE_COMPLETED", "a completed task", state, dialogue.answer.exchange)


@probes.add
@each_binding
async def question_and_answer_are_in_the_history(ctx: Ctx, binding: str) -> None:
    dialogue = await ctx.once(answer_question, binding, "question")
    check(not dialogue.answer.reason, "the answer is accepted", dialogue.answer.reason, dialogue.answer.exchange)
    task = await get(dialogue.agent, binding, dialogue.question.task["id"])
    ids = [str(dig(each, "messageId")) for each in as_list(dig(task, "history"))]
    sent = dialogue.answer.exchange.body.decode()
    check(any(id in sent for id in ids), "the history has the caller's answer", ids)


@probes.add
@each_binding
async def waiting_task_keeps_waiting(ctx: Ctx, binding: str) -> None:
    agent = await agent_for(ctx, "question")
    sent = await final_reply(ctx, binding, "question")
    task = await get(agent, binding, sent.task["id"])
    check(state_of(task) == state_of(sent.task), f"the state {state_of(sent.task)}", state_of(task))


@probes.add
@each_binding
async def waiting_task_can_be_cancelled(ctx: Ctx, binding: str) -> None:
    agent = await agent_for(ctx, "question")
    sent = await final_reply(ctx, binding, "question")
    reply = await agent[binding].call("CancelTask", {"id": sent.task["id"]})
    state = reply.reason or state_of(reply.result)
    check(state == "TASK_STATE_CANCELED", "a canceled task", state, reply.exchange)


@probes.add
@each_binding
async def authentication_is_a_state(ctx: Ctx, binding: str) -> None:
    sent = await ctx.subject(final_reply, binding, "auth")
    state = state_of(sent.task)
    check(state == "TASK_STATE_AUTH_REQUIRED", "a task that needs authentication", state, sent.exchange)


@probes.add
@each_binding
async def stream_shows_the_question(ctx: Ctx, binding: str) -> None:
    streamed = await shown_stream(ctx, binding, "question")
    check(
        "TASK_STATE_INPUT_REQUIRED" in streamed.states, "the state that needs input", streamed.states, streamed.exchange
    )


@probes.add
@each_binding
async def answer_can_be_streamed(ctx: Ctx, binding: str) -> None:
    agent = await agent_for(ctx, "question")
    sent = await final_reply(ctx, binding, "question")
    answer = follow_up(sent.task, str(ctx.triggers["question"].answer))
    async with agent[binding].stream("SendStreamingMessage", {"message": answer}) as stream:
        while (event := await stream.next()) is not None:
            carrier = dig(event, "task") or dig(event, "statusUpdate") or dig(event, "artifactUpdate")
            id = dig(carrier, "id") or dig(carrier, "taskId")
            check(id == sent.task["id"], f"events of the task {sent.task['id']}", event, stream.exchange)
        states = [state_of(dig(each, "task") or dig(each, "statusUpdate")) for each in stream.payloads]
        told_end = any(state in TERMINAL for state in states)
        check(told_end, "the end of the task", stream.reply.reason or states, stream.exchange)
