"""Probes that test whether A2A agents that declare security refuse callers without a valid credential, and hide the
tasks of other callers."""

from typing import Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.a2a.agent import A2aTarget, Ctx, agent_for, message
from babelgate.conformance.protocols.a2a.binding import state_of
from babelgate.conformance.protocols.a2a.probes.push import webhook
from babelgate.conformance.protocols.a2a.scenes import (
    check_refusal,
    each_binding,
    long_task,
    plain,
    plain_task,
    require_http,
)
from babelgate.conformance.verdict import NotObserved, check

probes: Final = Probes[A2aTarget]()


def other(ctx: Ctx) -> dict[str, str]:
    if not ctx.options.other_headers:
        raise NotObserved("needs the keys of a second caller; pass --other-header")
    return dict(ctx.options.other_headers)


@probes.add
@each_binding
async def strangers_are_turned_away(ctx: Ctx, binding: str) -> None:
    await ctx.once(plain, binding)
    agent = await agent_for(ctx, "plain")
    params = {"message": message(ctx.triggers["plain"].text)}
    reply = await agent[binding].call("SendMessage", params, is_valid=False, is_anonymous=True)
    status, name = reply.exchange.status, reply.exchange.rpc_status
    check(bool(reply.reason), "a request without credentials fails", reply.reason_or_result, reply.exchange)
    expected = "status UNAUTHENTICATED or PERMISSION_DENIED" if name else "status 401 or 403"
    check(status in (401, 403), expected, name or status, reply.exchange)


@probes.add
@each_binding
async def strangers_are_told_how_to_come_in(ctx: Ctx, binding: str) -> None:
    require_http(binding, "has no header WWW-Authenticate")
    await ctx.once(plain, binding)
    agent = await agent_for(ctx, "plain")
    params = {"message": message(ctx.triggers["plain"].text)}
    reply = await agent[binding].call("SendMessage", params, is_valid=False, is_anonymous=True)
    actual = reply.exchange.header("www-authenticate")
    check(bool(actual), "the header WWW-Authenticate", actual, reply.exchange)


@probes.add
@each_binding
async def anothers_task_is_not_found(ctx: Ctx, binding: str) -> None:
    headers = other(ctx)
    sent = await ctx.once(plain_task, binding)
    agent = await agent_for(ctx, "plain")
    check_refusal(await agent[binding].call("GetTask", {"id": sent.task["id"]}, headers=headers), "TASK_NOT_FOUND")


@probes.add
@each_binding
async def anothers_task_cannot_be_cancelled(ctx: Ctx, binding: str) -> None:
    headers = other(ctx)
    async with long_task(ctx, binding) as long:
        check_refusal(await long.binding.call("CancelTask", {"id": long.id}, headers=headers), "TASK_NOT_FOUND")
        state = state_of(await long.get())
        check(state != "TASK_STATE_CANCELED", "a task that continues", state)


@probes.add
@each_binding
async def anothers_task_takes_no_message(ctx: Ctx, binding: str) -> None:
    headers = other(ctx)
    sent = await ctx.once(plain_task, binding)
    agent = await agent_for(ctx, "plain")
    intruding = message("Hello", taskId=sent.task["id"])
    check_refusal(await agent[binding].call("SendMessage", {"message": intruding}, headers=headers), "TASK_NOT_FOUND")


@probes.add
@each_binding
async def anothers_task_cannot_be_subscribed_to(ctx: Ctx, binding: str) -> None:
    headers = other(ctx)
    sent = await ctx.once(plain_task, binding)
    agent = await agent_for(ctx, "plain")
    async with agent[binding].stream("SubscribeToTask", {"id": sent.task["id"]}, headers=headers) as stream:
        if stream.exchange.is_stream:
            await stream.next()
        check_refusal(stream.reply, "TASK_NOT_FOUND")


@probes.add
@each_binding
async def anothers_task_is_not_pushed(ctx: Ctx, binding: str) -> None:
    headers = other(ctx)
    sent = await ctx.once(plain_task, binding)
    agent = await agent_for(ctx, "plain")
    params = {"taskId": sent.task["id"], "url": await ctx.once(webhook, binding)}
    reply = await agent[binding].call("CreateTaskPushNotificationConfig", params, headers=headers)
    check_refusal(reply, "TASK_NOT_FOUND")
