"""Probes that test A2A's REST binding, and that both bindings show the same tasks."""

from typing import Final
from uuid import uuid4

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.a2a.agent import A2aTarget, Ctx, agent_for, message
from babelgate.conformance.protocols.a2a.binding import A2aReply, state_of
from babelgate.conformance.protocols.a2a.rest import RestBinding
from babelgate.conformance.protocols.a2a.scenes import plain, plain_task
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import Exchange, dig
from babelgate.conformance.wire.http import Receives

probes: Final = Probes[A2aTarget]()


async def rest_of(ctx: Ctx) -> RestBinding:
    """Return the agent's REST binding, after it has answered a plain message. Probes of refusals need this: a binding
    that refuses everything proves nothing."""
    await ctx.once(plain, "HTTP+JSON")
    binding = (await agent_for(ctx, "plain"))["HTTP+JSON"]
    assert isinstance(binding, RestBinding)
    return binding


async def post_message(
    ctx: Ctx, content: bytes, *, receives: Receives = None, kind: str = "application/json"
) -> Exchange:
    rest = await rest_of(ctx)
    url, headers = f"{rest.root}/message:send", {**rest.headers, "Content-Type": kind}
    return await ctx.wire.request("POST", url, sends=None, receives=receives, content=content, headers=headers)


async def unknown_task(ctx: Ctx) -> A2aReply:
    """Return the reply to GetTask with the id of a task that does not exist, by REST."""
    return await (await rest_of(ctx)).call("GetTask", {"id": str(uuid4())})


@probes.add
async def rest_unknown_task_is_404(ctx: Ctx) -> None:
    reply = await unknown_task(ctx)
    check(reply.exchange.status == 404, "status 404", reply.exchange.status, reply.exchange)


@probes.add
async def rest_unknown_path_is_404(ctx: Ctx) -> None:
    rest = await rest_of(ctx)
    url = f"{rest.root}/babelgate/no/such/path"
    exchange = await ctx.wire.request("GET", url, sends=None, receives=None, headers=rest.headers)
    check(exchange.status == 404, "status 404", exchange.status, exchange)


@probes.add
async def rest_events_are_bare(ctx: Ctx) -> None:
    rest = await rest_of(ctx)
    async with rest.stream("SendStreamingMessage", {"message": message(ctx.triggers["plain"].text)}) as stream:
        first = await stream.next()
        has_envelope = any("jsonrpc" in frame.data for frame in stream.exchange.frames)
        is_bare = (dig(first, "task") or dig(first, "message")) is not None and not has_envelope
        check(is_bare, "a task or a message without an envelope", first, stream.exchange)


async def is_same(ctx: Ctx, sent: A2aReply, binding: str) -> None:
    """Check that the task in the reply `sent` has the same state when it is read through the binding `binding`. Raises
    Failed if it has not."""
    reply = await (await agent_for(ctx, "plain"))[binding].call("GetTask", {"id": sent.task["id"]})
    check(not reply.reason, f"the task {sent.task['id']}", reply.reason, reply.exchange)
    check(
        state_of(reply.result) == state_of(sent.task), f"the state {state_of(sent.task)}", reply.result, reply.exchange
    )


@probes.add
async def task_of_rpc_is_seen_by_rest(ctx: Ctx) -> None:
    sent = await ctx.once(plain_task, "JSONRPC")
    await ctx.once(plain, "HTTP+JSON")
    await is_same(ctx, sent, "HTTP+JSON")


@probes.add
async def task_of_rest_is_seen_by_rpc(ctx: Ctx) -> None:
    sent = await ctx.once(plain_task, "HTTP+JSON")
    await ctx.once(plain, "JSONRPC")
    await is_same(ctx, sent, "JSONRPC")
