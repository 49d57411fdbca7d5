"""Probes that test SendMessage of A2A, and the task that it returns."""

import asyncio
from typing import Final
from uuid import uuid4

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.a2a.agent import A2aTarget, Ctx, agent_for, message
from babelgate.conformance.protocols.a2a.binding import INTERRUPTED, TERMINAL, state_of
from babelgate.conformance.protocols.a2a.scenes import (
    check_refusal,
    context_of,
    each_binding,
    final_reply,
    follow_up,
    long_task,
    plain,
    plain_task,
)
from babelgate.conformance.verdict import Failed, Prerequisite, check
from babelgate.conformance.wire.exchange import as_list, dig

probes: Final = Probes[A2aTarget]()


@probes.add
@each_binding
async def send_succeeds(ctx: Ctx, binding: str) -> None:
    await ctx.subject(plain, binding)


@probes.add
@each_binding
async def send_waits(ctx: Ctx, binding: str) -> None:
    sent = await ctx.once(plain_task, binding)
    state = state_of(sent.task)
    check(state in TERMINAL | INTERRUPTED, "the task has ended or is interrupted", state, sent.exchange)


@probes.add
@each_binding
async def send_can_return_at_once(ctx: Ctx, binding: str) -> None:
    try:
        async with long_task(ctx, binding) as long:
            state = state_of(long.task)
            check(state in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"), "the task is submitted or working", state)
    except Prerequisite as error:
        raise Failed(error.expected, error.actual, error.exchange) from None


@probes.add
@each_binding
async def send_gives_a_context(ctx: Ctx, binding: str) -> None:
    sent = await ctx.once(plain, binding)
    context = dig(sent.task, "contextId") or dig(sent.message, "contextId")
    check(isinstance(context, str) and bool(context), "the answer has a contextId", context, sent.exchange)


@probes.add
@each_binding
async def send_keeps_the_callers_context(ctx: Ctx, binding: str) -> None:
    agent = await agent_for(ctx, "plain")
    await ctx.once(plain, binding)
    chosen = str(uuid4())
    sent = await agent[binding].call("SendMessage", {"message": message(ctx.triggers["plain"].text, contextId=chosen)})
    if sent.reason:
        return  # An agent that does not accept the caller's context must refuse the message.
    context = dig(sent.task, "contextId") or dig(sent.message, "contextId")
    check(context == chosen, f"the contextId of the message, {chosen}, or an error", context, sent.exchange)


@probes.add
@each_binding
async def send_goes_on_in_a_context(ctx: Ctx, binding: str) -> None:
    first = await ctx.once(plain_task, binding)
    agent = await agent_for(ctx, "plain")
    context = context_of(first)
    sent = await agent[binding].call("SendMessage", {"message": message(ctx.triggers["plain"].text, contextId=context)})
    check(not sent.reason, "a message in the context of an earlier task succeeds", sent.reason, sent.exchange)
    actual = dig(sent.task, "contextId") or dig(sent.message, "contextId")
    check(actual == context, f"the contextId {context}", actual, sent.exchange)
    id = dig(sent.task, "id")
    check(id != first.task["id"], "a new task, because the first one has ended", id, sent.exchange)


@probes.add
@each_binding
async def tasks_have_unique_ids(ctx: Ctx, binding: str) -> None:
    first = await ctx.once(plain_task, binding)
    agent = await agent_for(ctx, "plain")
    sent = await agent[binding].call("SendMessage", {"message": message(ctx.triggers["plain"].text)})
    id = dig(sent.task, "id")
    check(id != first.task["id"], "an id other than that of the first task", id, sent.exchange)


@probes.add
@each_binding
async def two_messages_at_once_are_two_tasks(ctx: Ctx, binding: str) -> None:
    first = await final_reply(ctx, binding, "plain")
    agent = await agent_for(ctx, "plain")
    text, context = ctx.triggers["plain"].text, context_of(first)
    sent = await asyncio.gather(
        *(agent[binding].call("SendMessage", {"message": message(text, contextId=context)}) for _ in range(3))
    )
    for each in sent:
        check(not each.reason, "three concurrent messages in one context succeed", each.reason, each.exchange)
    ids = [dig(each.task, "id") for each in sent]
    check(len(set(map(str, ids))) == 3, "three tasks", ids, sent[-1].exchange)


@probes.add
@each_binding
async def message_to_an_unknown_task_is_refused(ctx: Ctx, binding: str) -> None:
    await ctx.once(plain, binding)
    agent = await agent_for(ctx, "plain")
    lost = message(ctx.triggers["plain"].text, taskId=str(uuid4()))
    check_refusal(await agent[binding].call("SendMessage", {"message": lost}), "TASK_NOT_FOUND")


@probes.add
@each_binding
async def message_to_an_ended_task_is_refused(ctx: Ctx, binding: str) -> None:
    sent = await ctx.once(plain_task, binding)
    agent = await agent_for(ctx, "plain")
    chosen = agent[binding]
    late = follow_up(sent.task, ctx.triggers["plain"].text)
    # 0.3 defines no error for this. Its SDK answers -32602, and 1.0 made it UnsupportedOperation.
    others = ("INVALID_PARAMS", "INVALID_REQUEST") if chosen.is_first_generation else ()
    check_refusal(await chosen.call("SendMessage", {"message": late}), "UNSUPPORTED_OPERATION", *others)


@probes.add
@each_binding
async def task_and_foreign_context_are_refused(ctx: Ctx, binding: str) -> None:
    agent = await agent_for(ctx, "question")
    waiting = await ctx.once(waiting_task, binding)
    wrong = follow_up(waiting, "Babelgate", contextId=str(uuid4()))
    check_refusal(await agent[binding].call("SendMessage", {"message": wrong}))


async def waiting_task(ctx: Ctx, binding: str) -> dict[str, object]:
    """Return a new task that has asked its caller a question. No probe answers the question, so the task keeps
    waiting."""
    question = await final_reply(ctx, binding, "question")
    state = state_of(question.task)
    check(state in INTERRUPTED, "the task waits for its caller", state, question.exchange)
    return question.task


@probes.add
@each_binding
async def context_is_inferred_from_the_task(ctx: Ctx, binding: str) -> None:
    agent = await agent_for(ctx, "question")
    question = await final_reply(ctx, binding, "question")
    check(state_of(question.task) in INTERRUPTED, "the task waits for its caller", question.task, question.exchange)
    answer = message(str(ctx.triggers["question"].answer), taskId=question.task["id"])
    reply = await agent[binding].call("SendMessage", {"message": answer})
    check(not reply.reason, "an answer with only the taskId succeeds", reply.reason, reply.exchange)
    actual = (dig(reply.task, "id"), dig(reply.task, "contextId"))
    expected = (question.task["id"], question.task.get("contextId"))
    check(actual == expected, f"the task {expected[0]} in the context {expected[1]}", actual, reply.exchange)


@probes.add
@each_binding
async def history_is_limited_in_the_answer(ctx: Ctx, binding: str) -> None:
    agent = await agent_for(ctx, "question")
    question = await ctx.once(final_reply, binding, "question")
    params = {"message": message(ctx.triggers["question"].text), "configuration": {"historyLength": 1}}
    reply = await agent[binding].call("SendMessage", params)
    check(not reply.reason, "SendMessage with historyLength succeeds", reply.reason, reply.exchange)
    history = as_list(dig(reply.task, "history"))
    check(len(history) <= 1, "at most one message of the history", history, reply.exchange)
    check(question.task is not None, "a task")


@probes.add
@each_binding
async def failure_is_a_state(ctx: Ctx, binding: str) -> None:
    sent = await ctx.subject(final_reply, binding, "fail")
    state = state_of(sent.task)
    check(state == "TASK_STATE_FAILED", "a task that has failed", state, sent.exchange)


@probes.add
@each_binding
async def failure_has_a_reason(ctx: Ctx, binding: str) -> None:
    sent = await ctx.once(final_reply, binding, "fail")
    parts = as_list(dig(sent.task, "status", "message", "parts"))
    check(bool(parts), "a status message with the reason", dig(sent.task, "status"), sent.exchange)


@probes.add
@each_binding
async def rejection_is_a_state(ctx: Ctx, binding: str) -> None:
    sent = await ctx.subject(final_reply, binding, "reject")
    state = state_of(sent.task)
    check(state == "TASK_STATE_REJECTED", "a task that was rejected", state, sent.exchange)


@probes.add
@each_binding
async def bare_message_has_a_context(ctx: Ctx, binding: str) -> None:
    sent = await ctx.subject(final_reply, binding, "message")
    check(sent.message is not None, "a message and no task", sent.result, sent.exchange)
    context = dig(sent.message, "contextId")
    check(isinstance(context, str) and bool(context), "the message has a contextId", sent.message, sent.exchange)


@probes.add
@each_binding
async def the_agent_speaks_as_agent(ctx: Ctx, binding: str) -> None:
    """Check that messages of the agent have the role ROLE_AGENT: a status message, or a message without a task."""
    sent = await ctx.once(final_reply, binding, "question" if "question" in ctx.triggers else "plain")
    messages = [sent.message] if sent.message else [dig(sent.task, "status", "message")]
    for each in messages:
        if each is not None:
            role = dig(each, "role")
            check(role == "ROLE_AGENT", "messages of the agent have its role", role, sent.exchange)


@probes.add
@each_binding
async def the_user_is_in_the_history_as_user(ctx: Ctx, binding: str) -> None:
    sent = await ctx.once(plain_task, binding)
    request_body = sent.exchange.body.decode()
    for each in as_list(dig(sent.task, "history")):
        if str(dig(each, "messageId")) in request_body:
            check(dig(each, "role") == "ROLE_USER", "messages of the caller have its role", each, sent.exchange)


@probes.add
@each_binding
async def artifacts_have_unique_ids(ctx: Ctx, binding: str) -> None:
    sent = await ctx.once(plain_task, binding)
    ids = [str(dig(each, "artifactId")) for each in as_list(dig(sent.task, "artifacts"))]
    check(len(ids) == len(set(ids)), "unique artifact ids in the task", ids, sent.exchange)
