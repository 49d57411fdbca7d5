"""Probes that test GetTask of A2A."""

from typing import Final
from uuid import uuid4

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.a2a.agent import A2aTarget, Ctx, agent_for
from babelgate.conformance.protocols.a2a.binding import state_of
from babelgate.conformance.protocols.a2a.scenes import (
    answer_question,
    check_refusal,
    each_binding,
    final_reply,
    get,
    plain,
    plain_task,
)
from babelgate.conformance.verdict import NotObserved, check
from babelgate.conformance.wire.exchange import as_list, dig

probes: Final = Probes[A2aTarget]()


@probes.add
@each_binding
async def get_gives_the_task(ctx: Ctx, binding: str) -> None:
    sent = await ctx.once(plain_task, binding)
    agent = await agent_for(ctx, "plain")
    reply = await agent[binding].call("GetTask", {"id": sent.task["id"]})
    check(not reply.reason, "GetTask succeeds", reply.reason, reply.exchange)
    check(dig(reply.result, "id") == sent.task["id"], "the requested task", reply.result, reply.exchange)
    context = dig(sent.task, "contextId")
    check(dig(reply.result, "contextId") == context, f"its context {context}", reply.result, reply.exchange)


@probes.add
@each_binding
async def ended_tasks_stay_as_they_are(ctx: Ctx, binding: str) -> None:
    sent = await final_reply(ctx, binding, "plain")
    if sent.task is None:
        raise NotObserved("the agent answers with messages, not with tasks", "plain")
    agent = await agent_for(ctx, "plain")
    before = state_of(await get(agent, binding, sent.task["id"]))
    for _ in range(2):
        after = state_of(await get(agent, binding, sent.task["id"]))
        check(after == before, f"the state {before}", after)


@probes.add
@each_binding
async def get_gives_the_artifacts(ctx: Ctx, binding: str) -> None:
    sent = await ctx.once(plain_task, binding)
    task = await get(await agent_for(ctx, "plain"), binding, sent.task["id"])
    before = sorted(str(dig(each, "artifactId")) for each in as_list(dig(sent.task, "artifacts")))
    after = sorted(str(dig(each, "artifactId")) for each in as_list(dig(task, "artifacts")))
    check(before == after, f"only the artifacts of SendMessage, {before}", after)


@probes.add
@each_binding
async def unknown_task_is_not_found(ctx: Ctx, binding: str) -> None:
    await ctx.once(plain, binding)
    agent = await agent_for(ctx, "plain")
    check_refusal(await agent[binding].call("GetTask", {"id": str(uuid4())}), "TASK_NOT_FOUND")


@probes.add
@each_binding
async def history_is_limited(ctx: Ctx, binding: str) -> None:
    dialogue = await ctx.once(answer_question, binding, "question")
    task = await get(dialogue.agent, binding, dialogue.question.task["id"])
    if len(as_list(dig(task, "history"))) < 2:
        raise NotObserved("the task has no history of two messages or more", "question")
    short = await get(dialogue.agent, binding, dialogue.question.task["id"], historyLength=1)
    history = as_list(dig(short, "history"))
    check(len(history) <= 1, "at most one message of the history", history)


@probes.add
@each_binding
async def the_newest_history_is_kept(ctx: Ctx, binding: str) -> None:
    dialogue = await ctx.once(answer_question, binding, "question")
    whole = as_list(dig(await get(dialogue.agent, binding, dialogue.question.task["id"]), "history"))
    short = await get(dialogue.agent, binding, dialogue.question.task["id"], historyLength=1)
    history = as_list(dig(short, "history"))
    if not whole or len(history) != 1:
        raise NotObserved("the agent shows no history, or none for historyLength 1", "question")
    last, first = dig(whole, -1, "messageId"), dig(history, 0, "messageId")
    check(first == last, f"the newest message, {last}", first)
