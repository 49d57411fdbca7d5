"""Output items of a response, and the events that build them in a stream."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from babelgate.adapters.openai.codec.names import encode_item_id
from babelgate.canonical.event import RunStarted
from babelgate.canonical.growing import GrowingText
from babelgate.canonical.value import JsonObject

PartKind = Literal["output_text", "refusal", "summary_text", "reasoning_text"]
"""Types of content parts whose text arrives in deltas."""


@dataclass(slots=True)
class OutputItem:
    """State of one output item, which may have an open part."""

    index: int
    body: JsonObject
    """Members of the item except its parts and status; all of its members if `is_whole`."""
    message_id: str | None = None
    """Id of the canonical message that the item shows, or None."""
    status: Any = "in_progress"
    closed: list[JsonObject] = field(default_factory=list[JsonObject])
    """Complete content or summary parts."""
    open: Literal[""] | PartKind = ""
    """Type of the open part, or "" if no part is open."""
    pieces: GrowingText = field(default_factory=GrowingText)
    """Text of the open part so far."""
    annotations: list[JsonObject] = field(default_factory=list[JsonObject])
    """Annotations of the open part so far."""
    started_at: int = 0
    """Length of the message's text before the open part, in characters."""
    is_void: bool = False
    """True if a restart of the agent voided the item."""
    is_whole: bool = False
    """True if `body` has all members, because the item has no deltas or is the upstream's."""
    unknown_members: JsonObject = field(default_factory=dict[str, Any])
    """Members of the upstream's item that have no canonical form."""
    parts: list[JsonObject] = field(default_factory=list[JsonObject])
    """Members of the upstream's content parts that have no canonical form, in the order of the parts."""
    tokens: list[Any] = field(default_factory=list[Any])
    """Logprobs of the open part so far."""

    @property
    def item_id(self) -> str:
        return self.body["id"]

    @property
    def is_done(self) -> bool:
        return self.status != "in_progress"

    def show(self) -> JsonObject:
        """Return the item as JSON, in its present state."""
        if self.is_whole:
            return self.body
        members = {**self.body, "status": self.status}
        parts = [*self.closed, *([self.show_part()] if self.open else [])]
        match self.body["type"]:
            case "message":
                members["content"] = [self.with_unknown_members(number, part) for number, part in enumerate(parts)]
            case "reasoning":
                members["summary"] = [part for part in parts if part["type"] == "summary_text"]
                if thoughts := [part for part in parts if part["type"] == "reasoning_text"]:
                    members["content"] = thoughts
            case _:
                pass
        return {**members, **self.unknown_members}

    def with_unknown_members(self, number: int, part: JsonObject) -> JsonObject:
        """Return the part with the index `number`, with the members of the upstream's part added that have no canonical
        form."""
        return {**self.parts[number], **part} if number < len(self.parts) else part

    def show_part(self) -> JsonObject:
        """Return the open part as JSON, in its present state."""
        text = self.pieces.join()
        match self.open:
            case "refusal":
                return {"type": "refusal", "refusal": text}
            case "summary_text" | "reasoning_text":
                return {"type": self.open, "text": text}
            case _:
                # SPEC/responses/response_output_text.py requires `annotations`, and Open Responses non-null `logprobs`.
                members: JsonObject = {"annotations": list(self.annotations), "logprobs": list(self.tokens)}
                return {"type": "output_text", "text": text, **members}


class ItemWriter:
    """Builder of a response's output items. It calls `emit` with the type and the members of each event of the
    stream."""

    __slots__ = ("_emit", "_used", "items", "upstream")

    def __init__(self, emit: Callable[[str, JsonObject], None]) -> None:
        self.items: list[OutputItem] = []
        self.upstream: dict[str | int, OutputItem] = {}
        """Items that show an item of the agent's upstream response, by the upstream's id and index of the item."""
        self._emit = emit
        self._used: set[str] = set()

    def output(self) -> list[JsonObject]:
        """Return the items as JSON, without those that a restart of the agent has voided."""
        return [item.show() for item in self.items if not item.is_void]

    def text(self) -> str:
        """Return the text of all messages, without refusals."""
        parts = (part for item in self.output() if item["type"] == "message" for part in item["content"])
        return "".join(part["text"] for part in parts if part["type"] == "output_text")

    @property
    def has_message(self) -> bool:
        """True if there is a message item that no restart has voided."""
        return any(item.body["type"] == "message" and not item.is_void for item in self.items)

    def unique_id(self, wanted: str) -> str:
        """Reserve and return an item id that is not in use: `wanted`, or `wanted` with a number. One message can become
        several items, or be sent again after a restart."""
        item_id, number = wanted, 1
        while item_id in self._used:
            number += 1
            item_id = f"{wanted}_{number}"
        self._used.add(item_id)
        return item_id

    def add(self, body: JsonObject, message_id: str | None = None) -> OutputItem:
        """Begin an item, and return it. Its id is derived from `body["id"]`. `message_id` is the canonical message that
        it shows, or None."""
        body["id"] = self.unique_id(body["id"])
        item = OutputItem(len(self.items), body, message_id)
        self.items.append(item)
        self._emit("response.output_item.added", {"output_index": item.index, "item": item.show()})
        return item

    def begin_mirrored(self, body: JsonObject) -> OutputItem:
        """Begin an item of the upstream that is passed through unchanged until `end_mirrored`, and return it."""
        item = OutputItem(len(self.items), {**body, "id": self.unique_id(str(body.get("id") or "item"))}, is_whole=True)
        self.items.append(item)
        self._emit("response.output_item.added", {"output_index": item.index, "item": item.show()})
        return item

    def end_mirrored(self, item: OutputItem, body: JsonObject) -> None:
        """End an item of the upstream, whose final members are `body`."""
        item.body = {**body, "id": item.item_id}
        self.finish(item)

    def add_answer(self, source_id: str, text: str) -> None:
        """Add a complete message item with one text. Its id is derived from `source_id`."""
        item = self.add(message_body(source_id, "final_answer"))
        self.begin_part(item, "output_text")
        self.add_text(item, text)
        self.finish(item)

    def add_whole(self, body: JsonObject) -> None:
        """Add a complete item without deltas. Its id must be one that `unique_id` has returned."""
        item = OutputItem(len(self.items), body, is_whole=True, status="completed")
        self.items.append(item)
        for kind in ("added", "done"):
            self._emit(f"response.output_item.{kind}", {"output_index": item.index, "item": item.show()})

    def finish(self, item: OutputItem, status: Any = "completed") -> None:
        """End an item with a status. An item that has ended is not changed."""
        if item.is_done:
            return
        self.end_part(item)
        item.status = status
        self._emit("response.output_item.done", {"output_index": item.index, "item": item.show()})

    def finish_all(self) -> None:
        """End all open items at the end of a run. Items of calls without a result get the status `incomplete`."""
        for item in self.items:
            self.finish(item, "completed" if item.body["type"] in ("message", "reasoning") else "incomplete")

    def withdraw(self, event: RunStarted) -> None:
        """Mark the items as void whose output a restart of the agent has voided. Streams have shown them, so they end
        as incomplete; the response object does not contain them."""
        for item in self.items:
            if not item.is_void and event.is_void(item.message_id):
                self.finish(item, "incomplete")
                item.is_void = True
        if event.void is None:
            self.upstream.clear()

    # Parts

    def _at(self, item: OutputItem) -> JsonObject:
        place = {"content_index": len(item.closed)}
        if item.open in ("summary_text", "reasoning_text"):
            name = "summary_index" if item.open == "summary_text" else "content_index"
            place = {name: sum(part["type"] == item.open for part in item.closed)}
        return {"item_id": item.item_id, "output_index": item.index, **place}

    def begin_part(self, item: OutputItem, kind: PartKind, started_at: int = 0) -> None:
        """Open a part of an item, after ending its open one. `started_at` is the length of the message's text before
        the part, in characters."""
        self.end_part(item)
        item.open, item.pieces, item.annotations, item.started_at = kind, GrowingText(), [], started_at
        item.tokens = []
        name = "reasoning_summary_part" if kind == "summary_text" else "content_part"
        self._emit(f"response.{name}.added", {**self._at(item), "part": item.show_part()})

    def add_text(self, item: OutputItem, text: str, tokens: list[Any] | None = None) -> None:
        """Add text to the open part of an item. `tokens` are the logprobs of the text, if the agent sent some."""
        item.pieces.append(text)
        item.tokens += tokens or ()
        more: JsonObject = {"logprobs": tokens or []} if item.open == "output_text" else {}
        self._emit(f"response.{_EVENTS[item.open]}.delta", {**self._at(item), "delta": text, **more})

    def cite(self, item: OutputItem, annotation: JsonObject) -> None:
        """Add an annotation to the open part of an item."""
        members = {"annotation_index": len(item.annotations), "annotation": annotation}
        item.annotations.append(annotation)
        self._emit("response.output_text.annotation.added", {**self._at(item), **members})

    def end_part(self, item: OutputItem) -> None:
        """End the open part of an item, if it has one."""
        if not item.open:
            return
        part, at, kind = item.with_unknown_members(len(item.closed), item.show_part()), self._at(item), item.open
        text = item.pieces.join()
        members: JsonObject = {"refusal": text} if kind == "refusal" else {"text": text}
        if kind == "output_text":
            members["logprobs"] = list(item.tokens)
        self._emit(f"response.{_EVENTS[kind]}.done", {**at, **members})
        name = "reasoning_summary_part" if kind == "summary_text" else "content_part"
        self._emit(f"response.{name}.done", {**at, "part": part})
        item.closed.append(part)
        item.open = ""

    # Calls

    def add_arguments(self, item: OutputItem, name: str, text: str, *, ends: bool = True) -> None:
        """Add text to the arguments of a call's item, and end them if `ends`. `name` is the part of the event types
        that denotes the kind of call, such as `function_call_arguments`."""
        at: JsonObject = {"item_id": item.item_id, "output_index": item.index}
        member = "input" if name == "custom_tool_call_input" else "arguments"
        if text:
            item.body[member] += text
            self._emit(f"response.{name}.delta", {**at, "delta": text})
        if ends:
            self._emit(f"response.{name}.done", {**at, member: item.body[member]})


def message_body(source_id: str, phase: str) -> JsonObject:
    """Return the first members of a message item. Its id is derived from `source_id`, the id of the canonical
    message."""
    return {"type": "message", "id": encode_item_id("msg_", source_id), "role": "assistant", "phase": phase}


_EVENTS: Final = {
    "output_text": "output_text",
    "refusal": "refusal",
    # OpenAI's API and Open Responses agree on this name; they name the text of reasoning itself differently.
    "summary_text": "reasoning_summary_text",
    # Text of reasoning itself, from servers that show it.
    "reasoning_text": "reasoning_text",
}
"""Term for a part in the types of events such as `response.output_text.delta`, by the part's type."""
