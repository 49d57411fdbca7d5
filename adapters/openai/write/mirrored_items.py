"""Pass-through of events without a canonical form from an upstream that speaks the Responses API."""

from typing import Final

from babelgate.adapters.openai.codec.model import object_in
from babelgate.adapters.openai.wire.replies import ABOUT, ANNOTATION, ITEM, MIRROR, ItemTail
from babelgate.adapters.openai.write.items import ItemWriter, OutputItem
from babelgate.adapters.openai.write.message_items import MessageItemWriter
from babelgate.adapters.openai.write.stream_events import StreamEvents
from babelgate.canonical.event import Native
from babelgate.canonical.value import JsonObject

_ADDED: Final = "response.output_item.added"
_DONE: Final = "response.output_item.done"


class MirrorWriter:
    """Writer of the upstream's mirrored events and items. Items with a canonical form are written by `messages`."""

    __slots__ = ("_events", "_items", "_messages", "about")

    def __init__(self, items: ItemWriter, messages: MessageItemWriter, events: StreamEvents) -> None:
        self.about: JsonObject = {}
        """Members of the upstream's response that have no canonical form."""
        self._items = items
        self._messages = messages
        self._events = events

    def write(self, event: Native) -> None:
        """Write a `Native` event of this adapter; ignore those of other protocols."""
        if event.protocol != "openai":
            return
        if event.event == ABOUT:
            self.about = dict(event.extra.get("openai") or {})
        elif MIRROR in event.extra:
            self._repeat(event.extra[MIRROR])
        elif ITEM in event.extra:
            self._end_item(event.extra[ITEM])
        elif ANNOTATION in event.extra:
            self._messages.annotate(event.extra[ANNOTATION])
        elif event.event == _DONE:
            self._add_stored_item(event)

    def _repeat(self, original: JsonObject) -> None:
        """Emit an event of the upstream's stream, with the item's id and index in this response."""
        kind, index, body = str(original.get("type")), original.get("output_index"), object_in(original, "item")
        if body and kind in (_ADDED, _DONE):
            self._repeat_item(body, index, is_done=kind == _DONE)
            return
        upstream = self._items.upstream
        item = upstream.get(str(original.get("item_id"))) or upstream.get(index if isinstance(index, int) else -1)
        place: JsonObject = {} if item is None else {"output_index": item.index, "item_id": item.item_id}
        members = {
            name: place.get(name, value) for name, value in original.items() if name not in ("type", "sequence_number")
        }
        self._events.emit(kind, members)

    def _repeat_item(self, body: JsonObject, index: object, *, is_done: bool) -> None:
        """Begin an item of the upstream, unless it has begun, and end it if `is_done`. `index` is its index in the
        upstream's response."""
        item = self._items.upstream.get(str(body.get("id")))
        if item is None:
            item = self._begin_item({**body, "status": "in_progress"} if is_done and "status" in body else body)
            self._items.upstream[str(body.get("id"))] = item
            if isinstance(index, int):
                self._items.upstream[index] = item
        if is_done:
            self._items.end_mirrored(item, body)

    def _begin_item(self, body: JsonObject) -> OutputItem:
        self._messages.close_all()
        return self._items.begin_mirrored(body)

    def _end_item(self, tail: ItemTail) -> None:
        """End an item with a canonical form, after adding the upstream's members that have none."""
        item = self._items.upstream.get(tail.get("id", ""))
        if item is None or item.is_done:
            return
        item.unknown_members, item.parts = tail.get("own", {}), tail.get("parts", [])
        self._items.finish(item, item.unknown_members.get("status") or "completed")
        self._messages.release(item)

    def _add_stored_item(self, event: Native) -> None:
        """Add an item from the log of an earlier release, which stored whole items in `Native.data`."""
        body = dict(object_in({"item": event.data}, "item"))
        if isinstance(body.get("type"), str) and isinstance(body.get("id"), str):
            self._items.add_whole({**body, "id": self._items.unique_id(body["id"])})
