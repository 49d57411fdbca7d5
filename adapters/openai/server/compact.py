"""POST /v1/responses/compact: returns a conversation as one item, from which a later request can continue (Open
Responses, POST /responses/compact)."""

import time
from contextlib import aclosing
from functools import partial
from typing import Any, Final, cast

from litestar import Response
from litestar.connection import ASGIConnection

from babelgate.adapters.kit.aside import aside
from babelgate.adapters.kit.json import most_bytes, most_values, read_json, validate
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import Caller, caller
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.openai.codec.compaction import encode_compaction, expand_items, is_compaction
from babelgate.adapters.openai.codec.items import ItemConversation
from babelgate.adapters.openai.codec.messages import refuse
from babelgate.adapters.openai.server.lookup import FoundRun, decode_request_of_model, find_agent, find_previous
from babelgate.adapters.openai.server.references import ItemReferences
from babelgate.adapters.openai.wire import responses as w
from babelgate.adapters.openai.write.conversation import ConversationWriter
from babelgate.canonical import Hub, RunStatus, Scope
from babelgate.canonical.event import RunCreated, RunEnded
from babelgate.canonical.value import JsonObject

_NO_USAGE: Final[JsonObject] = {
    "input_tokens": 0,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 0,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 0,
}
"""Usage of a compaction, which calls no model."""


class Compact(Handlers):
    """Handler of the route that creates compactions."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._references = ItemReferences(hub)

    async def compact(self, request: AnyRequest) -> Response[Any]:
        """Return a compaction of the request's input and of the conversation that it continues. Raises invalid for a
        malformed body, not_found for an unknown model, and too_large."""
        who = caller(request)
        raw_body = await self._references.expand(who.principal, await read_expanded(request))
        body = decode_request_of_model(w.ResponseCompact, raw_body)
        find_agent(self._hub, who.principal, body.model)
        items: list[JsonObject] = []
        if body.previous_response_id is not None:
            previous = await find_previous(self._hub, who.principal, body.previous_response_id)
            items = await self._items_until(who, previous)
        new_items = (
            [w.Item(type="message", role="user", content=body.input)] if isinstance(body.input, str) else body.input
        )
        # An output without its call would be refused when the caller sends the compaction back.
        ItemConversation.of([*(validate(w.Item, item) for item in items), *(new_items or ())], same=True)
        items += [item.verbatim or item.model_dump(exclude_unset=True) for item in new_items or ()]
        if not items:
            refuse("input", "There is nothing to compact: give input, or previous_response_id.")
        item = await aside(partial(encode_compaction, items))
        members: JsonObject = {"id": str(item["id"]).replace("cmp_", "resp_"), "object": "response.compaction"}
        return json_response({**members, "created_at": int(time.time()), "output": [item], "usage": _NO_USAGE})

    async def _items_until(self, who: Caller, previous: FoundRun) -> list[JsonObject]:
        """Return the items of a conversation up to the end of the run `previous`. Raises invalid if that run has not
        ended, and too_large."""
        run = previous.run
        if run.status is RunStatus.PAUSED:
            refuse("previous_response_id", "The response waits for the output of its calls.")
        if not run.has_ended:
            refuse("previous_response_id", "The response has not ended.")
        writer = ConversationWriter(run.thread_id, who.principal.owner)
        log = self._hub.reads.log(who.principal, Scope(run.thread_id), inline=True)
        async with aclosing(log) as batches:
            async for batch in batches:
                for record in batch:
                    event = record.event
                    if isinstance(event, RunCreated) and event.checkpoint is not None:
                        refuse(
                            "previous_response_id",
                            "The conversation has branches: send its items as input instead.",
                        )
                    writer.write(record)
                    if isinstance(event, RunEnded) and record.run_id == run.run_id:
                        return [each.item for each in writer.items()]
        return [each.item for each in writer.items()]


async def read_expanded(request: AnyRequest) -> object:
    """Return the JSON body of a request, with the compactions in its `input` replaced by their items. Raises invalid
    for a body that is not JSON or a malformed compaction, and too_large.

    The expanded items count towards the limits of a body.
    """
    return await expand_body(await read_json(request), request)


async def expand_body(raw_body: object, connection: ASGIConnection[Any, Any, Any, Any]) -> object:
    """Return a parsed body, with the compactions in its `input` replaced by their items. Raises invalid for a malformed
    compaction, and too_large beyond the limits of a body."""
    items = cast("JsonObject", raw_body).get("input") if isinstance(raw_body, dict) else None
    if not isinstance(items, list) or not any(map(is_compaction, cast("list[Any]", items))):
        return cast("object", raw_body)
    expand = partial(
        expand_items, cast("list[Any]", items), most=most_bytes(connection), values=most_values(connection)
    )
    return {**cast("JsonObject", raw_body), "input": await aside(expand)}
