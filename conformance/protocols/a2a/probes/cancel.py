"""Probes that test CancelTask of A2A."""

from typing import Final
from uuid import uuid4

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.a2a.agent import A2aTarget, Ctx, agent_for
from babelgate.conformance.protocols.a2a.binding import TERMINAL, state_of
from babelgate.conformance.protocols.a2a.scenes import (
    check_refusal,
    each_binding,
    final_reply,
    get,
    long_task,
    plain,
    plain_task,
    require_stream,
)
from babelgate.conformance.verdict import NotObserved, check
from babelgate.conformance.wire.exchange import dig

probes: Final = Probes[A2aTarget]()


@probes.add
@each_binding
async def cancel_gives_the_task(ctx: Ctx, binding: str) -> None:
    async with long_task(ctx, binding) as long:
        reply = await long.binding.call("CancelTask", {"id": long.id})
        check(not reply.reason, "CancelTask of a running task succeeds", reply.reason, reply.exchange)
        check(dig(reply.result, "id") == long.id, "the cancelled task", reply.result, reply.exchange)


@probes.add
@each_binding
async def cancelled_task_is_canceled(ctx: Ctx, binding: str) -> None:
    async with long_task(ctx, binding) as long:
        reply = await long.binding.call("CancelTask", {"id": long.id})
        state = reply.reason or state_of(reply.result)
        # An agent may answer before it has stopped, so the probe looks at the task again.
        if state not in TERMINAL:
            state = state_of(await long.get())
        check(state == "TASK_STATE_CANCELED", "a canceled task", state, reply.exchange)


@probes.add
@each_binding
async def cancelled_task_stays_canceled(ctx: Ctx, binding: str) -> None:
    async with long_task(ctx, binding) as long:
        await long.binding.call("CancelTask", {"id": long.id})
        for _ in range(2):
            state = state_of(await long.get())
            check(state == "TASK_STATE_CANCELED", "a canceled task", state)


@probes.add
@each_binding
async def ended_task_cannot_be_cancelled(ctx: Ctx, binding: str) -> None:
    sent = await ctx.once(plain_task, binding)
    agent = await agent_for(ctx, "plain")
    check_refusal(await agent[binding].call("CancelTask", {"id": sent.task["id"]}), "TASK_NOT_CANCELABLE")


@probes.add
@each_binding
async def refused_cancel_changes_nothing(ctx: Ctx, binding: str) -> None:
    sent = await final_reply(ctx, binding, "plain")
    if sent.task is None:
        raise NotObserved("the agent answers with messages, not with tasks", "plain")
    agent = await agent_for(ctx, "plain")
    before = state_of(await get(agent, binding, sent.task["id"]))
    await agent[binding].call("CancelTask", {"id": sent.task["id"]})
    after = state_of(await get(agent, binding, sent.task["id"]))
    check(after == before, f"the state {before}", after)


@probes.add
@each_binding
async def unknown_task_cannot_be_cancelled(ctx: Ctx, binding: str) -> None:
    await ctx.once(plain, binding)
    agent = await agent_for(ctx, "plain")
    check_refusal(await agent[binding].call("CancelTask", {"id": str(uuid4())}), "TASK_NOT_FOUND")


@probes.add
@each_binding
async def cancel_ends_the_stream(ctx: Ctx, binding: str) -> None:
    async with long_task(ctx, binding) as long, long.binding.stream("SubscribeToTask", {"id": long.id}) as stream:
        require_stream(stream)
        await stream.next()
        await long.binding.call("CancelTask", {"id": long.id})
        await stream.stream.rest_of_it()
        states = [state_of(dig(each, "task") or dig(each, "statusUpdate")) for each in stream.payloads]
        check("TASK_STATE_CANCELED" in states, "the state canceled in the stream", states, stream.exchange)
