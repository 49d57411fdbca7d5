"""Events that have no canonical form and that another server of this API sent, as the upstream of the agent."""

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
    """Writer of the upstream's events. Items that have a canonical form belong to `messages`."""

    __slots__ = ("_events", "_items", "_messages", "about")

    def __init__(self, items: ItemWriter, messages: MessageItemWriter, events: StreamEvents) -> None:
        self.about: JsonObject = {}
        """Members of the upstream's response."""
        self._items = items
        self._messages = messages
        self._events = events

    def write(self, event: Native) -> None:
        """Write an event, if it is of this API."""
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
        """Repeat an event of the upstream's stream, with the gateway's id and index of the item."""
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
        """Begin an item, unless it has begun, and end it if `is_done`. `index`: the upstream's index of the item."""
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
        """End an item that has a canonical form, with the members that have none."""
        item = self._items.upstream.get(tail.get("id", ""))
        if item is None or item.is_done:
            return
        item.unknown_members, item.parts = tail.get("own", {}), tail.get("parts", [])
        self._items.finish(item, item.unknown_members.get("status") or "completed")
        self._messages.release(item)

    def _add_stored_item(self, event: Native) -> None:
        """Add an item that an earlier release stored as it came."""
        body = dict(object_in({"item": event.data}, "item"))
        if isinstance(body.get("type"), str) and isinstance(body.get("id"), str):
            self._items.add_whole({**body, "id": self._items.unique_id(body["id"])})
