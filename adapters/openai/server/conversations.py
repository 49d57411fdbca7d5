"""Routes of conversations. Every thread, of any protocol, is shown as a conversation."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any

from litestar import Response

from babelgate.adapters.kit.json import ABSENT, read_json, validate
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import Caller, caller
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.own_files import resolve_own_files
from babelgate.adapters.openai.codec.items import decode_items
from babelgate.adapters.openai.codec.messages import refuse
from babelgate.adapters.openai.codec.names import CONVERSATION, encode_id
from babelgate.adapters.openai.server.item_pages import ItemPages
from babelgate.adapters.openai.server.lookup import find_conversation
from babelgate.adapters.openai.server.page import page_of
from babelgate.adapters.openai.wire import responses as w
from babelgate.adapters.openai.write.conversation import ConversationItem, ConversationWriter
from babelgate.canonical import FaultCode, FaultError, Hub, Scope
from babelgate.canonical.hub import StateUpdate, ThreadChange
from babelgate.canonical.thread import Thread
from babelgate.canonical.value import JsonObject


class Conversations(Handlers):
    """Handlers of the routes for conversations and their items."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._pages = ItemPages(hub)

    async def create_conversation(self, request: AnyRequest) -> Response[Any]:
        """Create a conversation, with its first items. Raises invalid for a malformed body, and unsupported for items
        that the gateway cannot store."""
        who = caller(request)
        raw_body = await read_json(request)
        body = validate(w.ConversationCreate, {} if raw_body is ABSENT else raw_body)
        messages = await resolve_own_files(self._hub, who, decode_items(body.items or (), "items"))
        thread = await self._hub.create_thread(who.principal, ThreadChange(metadata=dict(body.metadata or {})))
        if messages:
            await self._hub.update_state(who.principal, StateUpdate(thread_id=thread.thread_id, messages=messages))
        return json_response(_encode(thread))

    async def get_conversation(self, request: AnyRequest) -> Response[Any]:
        """Return the conversation in the path. Raises not_found."""
        return json_response(_encode(await self._find(caller(request), request)))

    async def _find(self, who: Caller, request: AnyRequest) -> Thread:
        return await find_conversation(self._hub, who.principal, request.path_params["conversation_id"])

    async def change_conversation(self, request: AnyRequest) -> Response[Any]:
        """Replace the metadata of a conversation. Raises not_found for an unknown conversation, and invalid for a
        malformed body."""
        who = caller(request)
        thread = await self._find(who, request)
        body = validate(w.MetadataUpdate, await read_json(request))
        # resources/conversations/conversations.py, update: replaces all metadata. The hub merges a thread's metadata.
        cleared = dict.fromkeys(_metadata(thread))
        change = ThreadChange(metadata={**cleared, **body.metadata})
        return json_response(_encode(await self._hub.change_thread(who.principal, thread.thread_id, change)))

    async def delete_conversation(self, request: AnyRequest) -> Response[Any]:
        """Delete a conversation. Raises not_found."""
        who = caller(request)
        thread = await self._find(who, request)
        await self._hub.delete_thread(who.principal, thread.thread_id)
        members: JsonObject = {"id": request.path_params["conversation_id"], "object": "conversation.deleted"}
        return json_response({**members, "deleted": True})

    # Items

    async def list_items(self, request: AnyRequest) -> Response[Any]:
        """Return a page of a conversation's items. Raises not_found for an unknown conversation, and invalid for wrong
        query parameters."""
        who = caller(request)
        thread = await self._find(who, request)
        return json_response(await self._pages.read(who.principal, thread.thread_id, request.query_params))

    async def _items(self, who: Caller, thread: Thread) -> Sequence[ConversationItem]:
        writer = ConversationWriter(thread.thread_id, who.principal.owner)
        async with aclosing(self._hub.reads.log(who.principal, Scope(thread.thread_id), inline=True)) as batches:
            async for batch in batches:
                for record in batch:
                    writer.write(record)
        return writer.items()

    async def add_items(self, request: AnyRequest) -> Response[Any]:
        """Add items to a conversation. Raises not_found, invalid, unsupported, and conflict while a run is active."""
        who = caller(request)
        thread = await self._find(who, request)
        body = validate(w.ItemsCreate, await read_json(request))
        messages = await resolve_own_files(self._hub, who, decode_items(body.items, "items"))
        if not messages:
            refuse("items", "Give at least one item with content.")
        before = {each.item["id"] for each in await self._items(who, thread)}
        await self._hub.update_state(who.principal, StateUpdate(thread_id=thread.thread_id, messages=messages))
        added = [each.item for each in await self._items(who, thread) if each.item["id"] not in before]
        return json_response(page_of(added, {"order": "asc", "limit": "100"}))

    async def get_item(self, request: AnyRequest) -> Response[Any]:
        """Return one item of a conversation. Raises not_found for an unknown conversation or item, and too_large if the
        conversation has too many items."""
        who = caller(request)
        return json_response((await self._find_item(who, await self._find(who, request), request)).item)

    async def _find_item(self, who: Caller, thread: Thread, request: AnyRequest) -> ConversationItem:
        item_id: str = request.path_params["item_id"]
        for each in await self._items(who, thread):
            if each.item["id"] == item_id:
                return each
        raise FaultError(FaultCode.NOT_FOUND, f"Item with id {item_id[:100]!r} not found.")

    async def delete_item(self, request: AnyRequest) -> Response[Any]:
        """Delete an item of a conversation, which must be a message. Raises not_found, unsupported, and conflict while
        a run is active."""
        who = caller(request)
        thread = await self._find(who, request)
        item = await self._find_item(who, thread, request)
        if item.message_id is None:
            raise FaultError(FaultCode.UNSUPPORTED, "Only messages can be deleted from a conversation.")
        update = StateUpdate(thread_id=thread.thread_id, removed_ids=(item.message_id,))
        await self._hub.update_state(who.principal, update)
        return json_response(_encode(thread))


def _encode(thread: Thread) -> JsonObject:
    """Return a thread as a conversation (SPEC/conversations/conversation.py)."""
    return {
        "id": encode_id(CONVERSATION, thread.thread_id),
        "object": "conversation",
        "created_at": thread.created_at // 1_000_000,
        "metadata": _metadata(thread),
    }


def _metadata(thread: Thread) -> Mapping[str, str]:
    return {name: value for name, value in thread.metadata.items() if isinstance(value, str)}
