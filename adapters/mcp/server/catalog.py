"""Methods for resources, prompts, completion, and the subscriptions of 2026-07-28."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final

import mcp_types as types

from babelgate.adapters.mcp.errors import INVALID_PARAMS
from babelgate.adapters.mcp.server.exchange import (
    UNCACHED,
    Method,
    MethodError,
    RequestExchange,
    caller_of,
    retry_of,
    run_method,
)
from babelgate.adapters.mcp.server.peer import ExchangePeer, LogLevels
from babelgate.adapters.mcp.server.prompts import Prompts
from babelgate.adapters.mcp.server.resources import SUGGESTIONS, Resources
from babelgate.canonical.value import JsonObject

SUBSCRIPTIONS: Final = 100
"""Maximum number of resources that one session, or one request of 2026-07-28, can follow. Chosen."""
_SUBSCRIPTION_KEY: Final = "io.modelcontextprotocol/subscriptionId"
"""Key in `_meta` of the notifications of a `subscriptions/listen` request, with the id of the request."""


def resource_methods(resources: Resources, levels: LogLevels) -> Mapping[str, Method]:
    """Return the methods that list, read and follow resources (SPEC/server/resources)."""

    async def list_resources(exchange: RequestExchange, params: types.PaginatedRequestParams) -> JsonObject:
        page = resources.list_page(caller_of(exchange), params.cursor)
        return {**UNCACHED, **await run_method(exchange, page)}

    async def list_templates(exchange: RequestExchange, params: types.PaginatedRequestParams) -> JsonObject:
        check_single_page(params)
        return {**UNCACHED, "resourceTemplates": resources.templates(caller_of(exchange))}

    async def read(exchange: RequestExchange, params: types.ReadResourceRequestParams) -> JsonObject:
        peer = ExchangePeer(exchange, params.uri, levels.is_info_sent(exchange), is_tool=False)
        work = resources.read(caller_of(exchange), params.uri, peer, retry_of(exchange, params))
        return _complete(await run_method(exchange, work))

    async def listen(exchange: RequestExchange, params: types.SubscriptionsListenRequestParams) -> JsonObject:
        return await _listen(resources, exchange, params)

    return {
        "resources/list": Method(types.PaginatedRequestParams, list_resources),
        "resources/templates/list": Method(types.PaginatedRequestParams, list_templates),
        "resources/read": Method(types.ReadResourceRequestParams, read),
        "subscriptions/listen": Method(types.SubscriptionsListenRequestParams, listen),
    }


def prompt_methods(prompts: Prompts, resources: Resources, levels: LogLevels) -> Mapping[str, Method]:
    """Return the methods for prompts (SPEC/server/prompts), and the completion of their arguments and of the variables
    of resource templates (SPEC/server/utilities/completion)."""

    async def list_prompts(exchange: RequestExchange, params: types.PaginatedRequestParams) -> JsonObject:
        check_single_page(params)
        return {**UNCACHED, "prompts": prompts.list_all(caller_of(exchange))}

    async def get(exchange: RequestExchange, params: types.GetPromptRequestParams) -> JsonObject:
        peer = ExchangePeer(exchange, params.name, levels.is_info_sent(exchange), is_tool=False)
        retry = retry_of(exchange, params)
        work = prompts.get(caller_of(exchange), params.name, params.arguments or {}, peer, retry)
        return {"resultType": "complete", **await run_method(exchange, work)}

    async def complete(exchange: RequestExchange, params: types.CompleteRequestParams) -> JsonObject:
        return {"resultType": "complete", **await run_method(exchange, suggest(exchange, params))}

    async def suggest(exchange: RequestExchange, params: types.CompleteRequestParams) -> JsonObject:
        who, argument = caller_of(exchange), params.argument
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

    return {
        "prompts/list": Method(types.PaginatedRequestParams, list_prompts),
        "prompts/get": Method(types.GetPromptRequestParams, get),
        "completion/complete": Method(types.CompleteRequestParams, complete),
    }


def check_single_page(params: types.PaginatedRequestParams) -> None:
    """Raise MethodError for a cursor, because the list has one page."""
    if params.cursor is not None:
        raise MethodError(INVALID_PARAMS, "cursor: The list has one page; leave cursor out.")


async def open_changes(resources: Resources, exchange: RequestExchange, uri: str) -> AsyncGenerator[None]:
    """Return an iterator over the changes of a resource. Raises MethodError if the caller cannot read the resource."""

    async def open_one() -> JsonObject:
        return {"changes": await resources.changes(caller_of(exchange), uri)}

    return (await run_method(exchange, open_one()))["changes"]


async def _listen(
    resources: Resources, exchange: RequestExchange, params: types.SubscriptionsListenRequestParams
) -> JsonObject:
    """Acknowledge a subscription, and send a notification for each change of its resources (NEXT/server/resources,
    Subscriptions)."""
    uris = list(dict.fromkeys(params.notifications.resource_subscriptions or ()))
    if len(uris) > SUBSCRIPTIONS:
        raise MethodError(INVALID_PARAMS, f"A request can follow at most {SUBSCRIPTIONS} resources.")
    opened = [(uri, await open_changes(resources, exchange, uri)) for uri in uris]
    meta: JsonObject = {_SUBSCRIPTION_KEY: exchange.request_id}
    accepted: JsonObject = {"resourceSubscriptions": uris} if uris else {}
    acknowledged: JsonObject = {"notifications": accepted, "_meta": meta}
    await exchange.notify("notifications/subscriptions/acknowledged", acknowledged)
    async with asyncio.TaskGroup() as group:
        for uri, changes in opened:
            group.create_task(_notify(exchange, uri, changes, meta))
    return {"resultType": "complete", "_meta": meta}


async def _notify(exchange: RequestExchange, uri: str, changes: AsyncGenerator[None], meta: JsonObject) -> None:
    """Send a notification for each change of a resource."""
    async with aclosing(changes):
        async for _ in changes:
            await exchange.notify("notifications/resources/updated", {"uri": uri, "_meta": meta})


def _complete(result: JsonObject) -> dict[str, Any]:
    """Return contents with the hints for caches, or questions as they are."""
    return result if result.get("resultType") == "input_required" else {**UNCACHED, **result}
