"""Handlers of the MCP SDK's server for resources, prompts, completion and subscriptions."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY

from babelgate.adapters.mcp.errors import INVALID_PARAMS
from babelgate.adapters.mcp.server.prompts import Prompts
from babelgate.adapters.mcp.server.resources import SUGGESTIONS, Resources
from babelgate.adapters.mcp.server.sdk_context import (
    UNCACHED,
    Context,
    LogLevels,
    SdkPeer,
    caller_of,
    retry_of,
    run_method,
)
from babelgate.canonical.value import JsonObject

_SUBSCRIPTIONS: Final = 100
"""Maximum number of resources that one session, or one request of 2026-07-28, can follow. Chosen."""


def add_resources(server: Server[Any], resources: Resources, levels: LogLevels) -> None:
    """Register the methods that list and read resources (SPEC/server/resources)."""

    async def list_resources(ctx: Context, params: types.PaginatedRequestParams) -> dict[str, Any]:
        return {**UNCACHED, **await run_method(ctx, resources.list_page(caller_of(ctx), params.cursor))}

    async def list_templates(ctx: Context, params: types.PaginatedRequestParams) -> dict[str, Any]:
        if params.cursor is not None:
            raise MCPError(INVALID_PARAMS, "cursor: The list has one page; leave cursor out.")
        return {**UNCACHED, "resourceTemplates": resources.templates(caller_of(ctx))}

    async def read(ctx: Context, params: types.ReadResourceRequestParams) -> dict[str, Any]:
        peer = SdkPeer(ctx, params.uri, levels.is_info_sent(ctx), is_tool=False)
        work = resources.read(caller_of(ctx), params.uri, peer, retry_of(ctx, params))
        return _complete(await run_method(ctx, work))

    server.add_request_handler("resources/list", types.PaginatedRequestParams, list_resources)
    server.add_request_handler("resources/templates/list", types.PaginatedRequestParams, list_templates)
    server.add_request_handler("resources/read", types.ReadResourceRequestParams, read)


def add_prompts(server: Server[Any], prompts: Prompts, resources: Resources, levels: LogLevels) -> None:
    """Register the methods for prompts (SPEC/server/prompts), and the completion of their arguments and of the
    variables of resource templates (SPEC/server/utilities/completion)."""

    async def list_prompts(ctx: Context, params: types.PaginatedRequestParams) -> dict[str, Any]:
        if params.cursor is not None:
            raise MCPError(INVALID_PARAMS, "cursor: The list has one page; leave cursor out.")
        return {**UNCACHED, "prompts": prompts.list_all(caller_of(ctx))}

    async def get(ctx: Context, params: types.GetPromptRequestParams) -> dict[str, Any]:
        peer = SdkPeer(ctx, params.name, levels.is_info_sent(ctx), is_tool=False)
        work = prompts.get(caller_of(ctx), params.name, params.arguments or {}, peer, retry_of(ctx, params))
        return {"resultType": "complete", **await run_method(ctx, work)}

    async def complete(ctx: Context, params: types.CompleteRequestParams) -> dict[str, Any]:
        return {"resultType": "complete", **await run_method(ctx, suggest(ctx, params))}

    async def suggest(ctx: Context, params: types.CompleteRequestParams) -> dict[str, Any]:
        who, argument = caller_of(ctx), params.argument
        if isinstance(params.ref, types.PromptReference):
            values, has_more = prompts.complete(who, params.ref.name, argument.name, argument.value), False
        else:
            other_values = (params.context.arguments if params.context is not None else None) or {}
            values, has_more = await resources.complete(
                who, params.ref.uri, argument.name, argument.value, other_values
            )
        total = {} if has_more else {"total": len(values)}
        has_more = has_more or len(values) > SUGGESTIONS
        return {"completion": {"values": values[:SUGGESTIONS], **total, "hasMore": has_more}}

    server.add_request_handler("prompts/list", types.PaginatedRequestParams, list_prompts)
    server.add_request_handler("prompts/get", types.GetPromptRequestParams, get)
    server.add_request_handler("completion/complete", types.CompleteRequestParams, complete)


def add_subscriptions(server: Server[Any], resources: Resources, *, in_session: bool) -> None:
    """Register the methods that follow resources: those of a session up to 2025-11-25, or `subscriptions/listen` of
    2026-07-28, whose response is the stream of notifications."""

    async def subscribe(ctx: Context, params: types.SubscribeRequestParams) -> dict[str, Any]:
        followed = _subscriptions(ctx)
        if params.uri in followed:
            return {}
        if len(followed) >= _SUBSCRIPTIONS:
            raise MCPError(INVALID_PARAMS, f"A session can follow at most {_SUBSCRIPTIONS} resources.")
        changes = await run_method(ctx, _open(ctx, resources, params.uri))
        followed[params.uri] = asyncio.ensure_future(_notify(ctx, params.uri, changes["changes"]))
        return {}

    async def unsubscribe(ctx: Context, params: types.UnsubscribeRequestParams) -> dict[str, Any]:
        task = _subscriptions(ctx).pop(params.uri, None)
        if task is not None:
            task.cancel()
        return {}

    async def listen(ctx: Context, params: types.SubscriptionsListenRequestParams) -> dict[str, Any]:
        uris = list(dict.fromkeys(params.notifications.resource_subscriptions or ()))
        if len(uris) > _SUBSCRIPTIONS:
            raise MCPError(INVALID_PARAMS, f"A request can follow at most {_SUBSCRIPTIONS} resources.")
        opened = [(uri, (await run_method(ctx, _open(ctx, resources, uri)))["changes"]) for uri in uris]
        meta: JsonObject = {SUBSCRIPTION_ID_META_KEY: ctx.request_id}
        accepted = types.SubscriptionFilter(resource_subscriptions=uris or None)
        acknowledged = types.SubscriptionsAcknowledgedNotificationParams.model_validate(
            {"notifications": accepted, "_meta": meta}
        )
        await ctx.session.send_notification(
            types.SubscriptionsAcknowledgedNotification(params=acknowledged), ctx.request_id
        )
        async with asyncio.TaskGroup() as group:
            for uri, changes in opened:
                group.create_task(_notify(ctx, uri, changes, meta))
        return {"resultType": "complete", "_meta": meta}

    if in_session:
        server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, subscribe)
        server.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, unsubscribe)
    else:
        server.add_request_handler("subscriptions/listen", types.SubscriptionsListenRequestParams, listen)


async def _open(ctx: Context, resources: Resources, uri: str) -> dict[str, Any]:
    return {"changes": await resources.changes(caller_of(ctx), uri)}


async def _notify(ctx: Context, uri: str, changes: AsyncGenerator[None], meta: JsonObject | None = None) -> None:
    """Send a notification for each change of a resource (SPEC/server/resources, Subscriptions). With `meta`, it belongs
    to a request of 2026-07-28; otherwise it is sent on the stream of the session."""
    async with aclosing(changes):
        async for _ in changes:
            params = {"uri": uri} if meta is None else {"uri": uri, "_meta": meta}
            notification = types.ResourceUpdatedNotification.model_validate({"params": params})
            await ctx.session.send_notification(notification, None if meta is None else ctx.request_id)


def _subscriptions(ctx: Context) -> dict[str, asyncio.Future[None]]:
    """Return the tasks that follow resources for the session of a request, by URI. They end with the session."""
    # The SDK has no public accessor for the connection's state and exit stack, which both end with the session.
    connection = ctx.session._connection  # pyright: ignore[reportPrivateUsage]
    followed: dict[str, asyncio.Future[None]] | None = connection.state.get("followed")
    if followed is None:
        followed = connection.state["followed"] = {}

        def stop(tasks: dict[str, asyncio.Future[None]] = followed) -> None:
            _cancel_all(list(tasks.values()))

        connection.exit_stack.callback(stop)
    return followed


def _cancel_all(tasks: Sequence[asyncio.Future[None]]) -> None:
    for each in tasks:
        each.cancel()


def _complete(result: JsonObject) -> dict[str, Any]:
    """Return contents with the hints for caches, or questions as they are."""
    return result if result.get("resultType") == "input_required" else {**UNCACHED, **result}
