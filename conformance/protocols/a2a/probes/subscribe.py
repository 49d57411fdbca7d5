"""Probes that test SubscribeToTask of A2A, which is tasks/resubscribe in 0.3."""

from contextlib import suppress
from typing import Final
from uuid import uuid4

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.a2a.agent import A2aTarget, Ctx, agent_for
from babelgate.conformance.protocols.a2a.binding import TERMINAL, A2aEventStream, A2aReply, state_of
from babelgate.conformance.protocols.a2a.scenes import (
    Long,
    check_refusal,
    each_binding,
    long_task,
    plain,
    plain_task,
    require_stream,
)
from babelgate.conformance.verdict import NotObserved, check
from babelgate.conformance.wire.exchange import dig
from babelgate.conformance.wire.http import Unanswered

probes: Final = Probes[A2aTarget]()
snapshot_probes: Final = Probes[A2aTarget]()
"""Probes of the requirements that 1.0 has and 0.3 does not. They are not among `probes`, because 0.3 is judged by
those, too."""


async def end_of(stream: A2aEventStream) -> list[str]:
    """Read a stream to its end and return the task states in its events, in order."""
    await stream.stream.rest_of_it()
    carriers = [dig(each, "task") or dig(each, "statusUpdate") for each in stream.payloads]
    return [state_of(each) for each in carriers if each is not None]


async def _end(long: Long) -> bool:
    """Request the cancellation of a running task. Return True if the agent accepted the request; if not, the task ends
    by itself later."""
    return not (await long.binding.call("CancelTask", {"id": long.id})).reason


async def _need_end(long: Long, stream: A2aEventStream) -> None:
    """Raise NotObserved if a stream is still open because its task is still running. The probe then cannot tell whether
    the agent closes the stream."""
    if not stream.exchange.is_ended and state_of(await long.get()) not in TERMINAL:
        raise NotObserved("the task cannot be cancelled and did not end in time", "long")


@snapshot_probes.add
@each_binding
async def subscription_begins_with_the_task(ctx: Ctx, binding: str) -> None:
    async with long_task(ctx, binding) as long, long.binding.stream("SubscribeToTask", {"id": long.id}) as stream:
        require_stream(stream)
        first = await stream.next()
        check(dig(first, "task", "id") == long.id, "the current task", first, stream.exchange)


@probes.add
@each_binding
async def task_at_work_can_be_subscribed_to(ctx: Ctx, binding: str) -> None:
    async with long_task(ctx, binding) as long, long.binding.stream("SubscribeToTask", {"id": long.id}) as stream:
        check(stream.exchange.status == 200, "status 200", stream.exchange.status, stream.exchange)
        check(stream.exchange.is_stream, "a stream of events", stream.reply.reason_or_result, stream.exchange)


@probes.add
@each_binding
async def subscription_is_closed_at_the_end(ctx: Ctx, binding: str) -> None:
    async with long_task(ctx, binding) as long, long.binding.stream("SubscribeToTask", {"id": long.id}) as stream:
        require_stream(stream)
        is_cancelled = await _end(long)
        with suppress(Unanswered):
            await end_of(stream)
        if not is_cancelled:
            await _need_end(long, stream)
        check(stream.exchange.is_ended, "the agent closes the stream", stream.exchange.error, stream.exchange)


@snapshot_probes.add
@each_binding
async def ended_task_cannot_be_subscribed_to(ctx: Ctx, binding: str) -> None:
    sent = await ctx.once(plain_task, binding)
    agent = await agent_for(ctx, "plain")
    async with agent[binding].stream("SubscribeToTask", {"id": sent.task["id"]}) as stream:
        check_refusal(await first_reply(stream), "UNSUPPORTED_OPERATION")


async def first_reply(stream: A2aEventStream) -> A2aReply:
    """Return the first reply to a subscription: its result or its error. It is the first event if the response is a
    stream, and the response itself otherwise."""
    if stream.exchange.is_stream:
        await stream.next()
    return stream.reply


@probes.add
@each_binding
async def unknown_task_cannot_be_subscribed_to(ctx: Ctx, binding: str) -> None:
    await ctx.once(plain, binding)
    agent = await agent_for(ctx, "plain")
    async with agent[binding].stream("SubscribeToTask", {"id": str(uuid4())}) as stream:
        check_refusal(await first_reply(stream), "TASK_NOT_FOUND")


@probes.add
@each_binding
async def all_subscribers_are_told_the_same(ctx: Ctx, binding: str) -> None:
    async with long_task(ctx, binding) as long:
        async with (
            long.binding.stream("SubscribeToTask", {"id": long.id}) as one,
            long.binding.stream("SubscribeToTask", {"id": long.id}) as other,
        ):
            require_stream(one)
            require_stream(other)
            is_cancelled = await _end(long)
            try:
                first, second = await end_of(one), await end_of(other)
            except Unanswered:
                if not is_cancelled:
                    await _need_end(long, one)
                    await _need_end(long, other)
                raise
        check(
            bool(first) and first[-1:] == second[-1:],
            f"the states that the first subscriber received, {first}",
            second,
            other.exchange,
        )


@probes.add
@each_binding
async def a_subscriber_that_leaves_disturbs_no_other(ctx: Ctx, binding: str) -> None:
    async with long_task(ctx, binding) as long, long.binding.stream("SubscribeToTask", {"id": long.id}) as staying:
        require_stream(staying)
        async with long.binding.stream("SubscribeToTask", {"id": long.id}) as leaving:
            require_stream(leaving)
        state = state_of(await long.get())
        check(state in ("TASK_STATE_WORKING", "TASK_STATE_SUBMITTED"), "a task that continues", state)
        is_cancelled = await _end(long)
        try:
            states = await end_of(staying)
        except Unanswered:
            if not is_cancelled:
                await _need_end(long, staying)
            raise
        check(not TERMINAL.isdisjoint(states), "the end of the task", states, staying.exchange)
