"""Probes that test the subscriptions of a session, up to MCP 2025-11-25."""

from collections.abc import Mapping
from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.mcp.changes import (
    QUIET_SECONDS,
    UPDATED,
    WatchedChange,
    check_updated,
    find_changed,
    prepare,
    read_until_update,
)
from babelgate.conformance.protocols.mcp.resources import find_resources
from babelgate.conformance.protocols.mcp.target import Ctx, McpReply, McpTarget
from babelgate.conformance.verdict import NotApplicable, check
from babelgate.conformance.wire.exchange import as_object, dig

probes: Final = Probes[McpTarget]()

_CLIENTS: Final[tuple[Mapping[str, Any], ...]] = ({}, {"elicitation": {}, "sampling": {}})
"""Capabilities of clients that may subscribe. Some servers keep a session only for clients that they can ask."""
_LISTS: Final = ("tools", "prompts", "resources")


@probes.add
async def subscription_is_answered(ctx: Ctx) -> None:
    session = await _enter(ctx)
    await ctx.once(find_resources)
    reply = await _ask_first(ctx, session, "resources/subscribe")
    check(as_object(reply.result) is not None, "a result", reply.response, reply.exchange)


@probes.add
async def end_of_a_subscription_is_answered(ctx: Ctx) -> None:
    session = await _enter(ctx)
    reply = await _ask_first(ctx, session, "resources/subscribe")
    check(as_object(reply.result) is not None, "a result of resources/subscribe", reply.response, reply.exchange)
    reply = await _ask_first(ctx, session, "resources/unsubscribe")
    check(as_object(reply.result) is not None, "a result", reply.response, reply.exchange)


@probes.add
async def changed_resource_is_notified(ctx: Ctx) -> None:
    await ctx.subject(_watch_change)


@probes.add
async def ended_subscription_is_silent(ctx: Ctx) -> None:
    await ctx.once(_watch_change)
    session = await _enter(ctx)
    params, before = await prepare(ctx)
    async with session.listening() as stream:
        for uri in before:
            await session.ask("resources/subscribe", {"uri": uri})
        for uri in before:
            await session.ask("resources/unsubscribe", {"uri": uri})
        await session.ask("tools/call", params)
        messages = await read_until_update(stream, QUIET_SECONDS)
    updates = [each for each in messages if dig(each, "method") == UPDATED]
    check(not updates, "no notification after resources/unsubscribe", updates, stream.exchange)


@probes.add
async def undeclared_changes_of_lists_are_not_notified(ctx: Ctx) -> None:
    undeclared = {
        f"notifications/{each}/list_changed" for each in _LISTS if not ctx.target.has_capability(each, "listChanged")
    }
    if not undeclared:
        raise NotApplicable("the server declares listChanged for every list")
    watch = await ctx.once(_watch_change)
    found = [each for each in watch.messages if dig(each, "method") in undeclared]
    check(not found, "no notification without listChanged", found, watch.exchange)


async def _enter(ctx: Ctx) -> McpTarget:
    """Open a session that can subscribe. Raises NotApplicable if the server declares subscriptions to no client."""
    for capabilities in _CLIENTS:
        session, _ = await ctx.target.enter(capabilities)
        if session.has_capability("resources", "subscribe"):
            return session
    raise NotApplicable("the server does not declare resources.subscribe")


async def _ask_first(ctx: Ctx, session: McpTarget, method: str) -> McpReply:
    """Send a request that has the URI of the first resource."""
    entries = await ctx.once(find_resources)
    return await session.ask(method, {"uri": dig(entries[0], "uri")})


async def _watch_change(ctx: Ctx) -> WatchedChange:
    """Subscribe to the first resources, call the tool that changes one, and check that the change is
    notified."""
    session = await _enter(ctx)
    params, before = await prepare(ctx)
    async with session.listening() as stream:
        for uri in before:
            reply = await session.ask("resources/subscribe", {"uri": uri})
            check(as_object(reply.result) is not None, "a result", reply.response, reply.exchange)
        await session.ask("tools/call", params)
        messages = await read_until_update(stream, ctx.options.timeout)
    watch = WatchedChange(list(before), messages, await find_changed(ctx, before), stream.exchange)
    check_updated(watch)
    return watch
