"""Probes that test `subscriptions/listen`: the request whose response is a stream of notifications."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
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
from babelgate.conformance.protocols.mcp.resources import list_resources
from babelgate.conformance.protocols.mcp.target import Ctx, McpTarget, messages_of, request
from babelgate.conformance.protocols.mcp.v2026.target import OF_MCP, envelope
from babelgate.conformance.verdict import NotApplicable, check
from babelgate.conformance.wire.exchange import as_object, dig
from babelgate.conformance.wire.http import EventSource

probes: Final = Probes[McpTarget]()

_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_ID: Final = f"{OF_MCP}subscriptionId"
_LISTS: Final[Mapping[str, str]] = {
    "toolsListChanged": "tools",
    "promptsListChanged": "prompts",
    "resourcesListChanged": "resources",
}
"""Capability with `listChanged`, by member of the filter."""


@dataclass(frozen=True, slots=True)
class _Opened:
    """Stream of `subscriptions/listen`, and the first message on it."""

    id: Any
    first: Any
    stream: EventSource


@probes.add
async def listening_is_acknowledged(ctx: Ctx) -> None:
    opened = await ctx.subject(_listen_for_all)
    method = dig(opened.first, "method")
    check(method == _ACKNOWLEDGED, f"{_ACKNOWLEDGED} first", opened.first, opened.stream.exchange)


@probes.add
async def only_declared_changes_are_acknowledged(ctx: Ctx) -> None:
    opened = await ctx.once(_listen_for_all)
    accepted = as_object(dig(opened.first, "params", "notifications"))
    check(accepted is not None, "the accepted notifications", opened.first, opened.stream.exchange)
    members = {name for name, value in (accepted or {}).items() if value}
    declared = {member for member, name in _LISTS.items() if ctx.target.has_capability(name, "listChanged")}
    if ctx.target.has_capability("resources", "subscribe"):
        declared.add("resourceSubscriptions")
    odd = sorted(members & {*_LISTS, "resourceSubscriptions"} - declared)
    check(not odd, "only notifications that the server declares", odd, opened.stream.exchange)


@probes.add
async def notifications_name_their_subscription(ctx: Ctx) -> None:
    opened = await ctx.once(_listen_for_all)
    actual = dig(opened.first, "params", "_meta", _ID)
    check(actual == opened.id, f"the subscriptionId {opened.id}", opened.first, opened.stream.exchange)


@probes.add
async def updates_name_their_subscription(ctx: Ctx) -> None:
    watch = await ctx.once(_watch_change)
    ids = [dig(each, "params", "_meta", _ID) for each in watch.messages if dig(each, "method") == UPDATED]
    sent = dig(watch.exchange.request_json, "id")
    check(all(each == sent for each in ids), f"the subscriptionId {sent}", watch.messages, watch.exchange)


@probes.add
async def changed_resource_is_notified_to_listeners(ctx: Ctx) -> None:
    await ctx.subject(_watch_change)


@probes.add
async def only_requested_changes_are_notified(ctx: Ctx) -> None:
    await ctx.once(_watch_change)
    params, _ = await prepare(ctx)
    async with _listening(ctx, {"toolsListChanged": True}) as opened:
        await ctx.target.ask("tools/call", params)
        messages = [opened.first, *await read_until_update(opened.stream, QUIET_SECONDS)]
    allowed = (None, _ACKNOWLEDGED, "notifications/tools/list_changed")
    found = [each for each in messages if dig(each, "method") not in allowed]
    check(not found, "only what the request names", found, opened.stream.exchange)


@probes.add
async def former_subscriptions_are_unknown(ctx: Ctx) -> None:
    await ctx.once(list_resources)
    for method in ("resources/subscribe", "resources/unsubscribe"):
        reply = await ctx.target.ask(method, {"uri": "babelgate-check://no-such/resource"}, is_valid=False)
        check(reply.code == -32601, f"the code -32601 for {method}", reply.response, reply.exchange)


async def _listen_for_all(ctx: Ctx) -> _Opened:
    """Request all notifications, and return what the server sends first. Raises NotApplicable if it declares none."""
    is_declared = any(ctx.target.has_capability(each, "listChanged") for each in _LISTS.values())
    if not is_declared and not ctx.target.has_capability("resources", "subscribe"):
        raise NotApplicable("the server declares neither listChanged nor subscribe")
    entries = await ctx.once(list_resources) if ctx.target.has_capability("resources") else []
    uris = [str(dig(each, "uri")) for each in entries[:1]]
    async with _listening(ctx, {**dict.fromkeys(_LISTS, True), "resourceSubscriptions": uris}) as opened:
        return opened


async def _watch_change(ctx: Ctx) -> WatchedChange:
    """Listen for updates of the first resources, call the tool that changes one, and check that the change is
    notified."""
    if not ctx.target.has_capability("resources", "subscribe"):
        raise NotApplicable("the server does not declare resources.subscribe")
    params, before = await prepare(ctx)
    async with _listening(ctx, {"resourceSubscriptions": list(before)}) as opened:
        await ctx.target.ask("tools/call", params)
        messages = await read_until_update(opened.stream, ctx.options.timeout)
    watch = WatchedChange(list(before), messages, await find_changed(ctx, before), opened.stream.exchange)
    check_updated(watch)
    return watch


@asynccontextmanager
async def _listening(ctx: Ctx, notifications: Mapping[str, Any]) -> AsyncGenerator[_Opened]:
    """Send `subscriptions/listen` and read the first message. Raises Failed if the response is an error."""
    params = {"_meta": envelope(), "notifications": dict(notifications)}
    body = request(next(ctx.target.ids), "subscriptions/listen", params)
    async with ctx.target.posted(body, schema="subscriptions.listen.request") as stream:
        frame = await stream.next()
        first = frame.json_or_none if frame is not None else next(iter(messages_of(stream.exchange)), None)
        check(dig(first, "error") is None and first is not None, "a stream of notifications", first, stream.exchange)
        yield _Opened(body["id"], first, stream)
        if ctx.target.process is not None:  # By HTTP the end of the connection ends the subscription.
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": body["id"]}}
            await ctx.target.process.post(cancel, sends=None)
