"""Probes of the agreement between both bindings of a revision."""

from typing import Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.a2a.agent import Agent, Ctx, agent_for
from babelgate.conformance.protocols.a2a.binding import Reply, state_of
from babelgate.conformance.protocols.a2a.scenes import plain, plain_task
from babelgate.conformance.verdict import check

probes: Final = Probes[Agent]()


async def is_same(ctx: Ctx, sent: Reply, binding: str) -> None:
    """Check that a task is visible through another binding. Raises Failed."""
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
