"""The output items of a response, as events: added, told piece by piece, done."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from babelgate.canonical.growing import GrowingText
from babelgate.canonical.value import JsonObject

Status = Literal["in_progress", "completed", "incomplete"]


@dataclass(slots=True)
class OutputItem:
    """One item, and what of it is open."""

    index: int
    body: JsonObject
    """What does not grow."""
    message_id: str | None = None
    """Of the message that it is of, if it is."""
    status: Any = "in_progress"
    closed: list[JsonObject] = field(default_factory=list[JsonObject])
    """Parts of it that are whole: of the content, or of the summary."""
    open: Literal["", "output_text", "refusal", "summary_text", "reasoning_text"] = ""
    """The part that grows."""
    pieces: GrowingText = field(default_factory=GrowingText)
    annotations: list[JsonObject] = field(default_factory=list[JsonObject])
    started_at: int = 0
    """Characters of the message before the part."""
    is_void: bool = False
    is_whole: bool = False
    """The body is all of it."""
    own: JsonObject = field(default_factory=dict[str, Any])
    """Members that only another server of this API has told, and those of its parts, one after the other."""
    parts: list[JsonObject] = field(default_factory=list[JsonObject])
    tokens: list[Any] = field(default_factory=list[Any])
    """`logprobs` of the part that grows."""

    @property
    def item_id(self) -> str:
        return self.body["id"]

    @property
    def is_done(self) -> bool:
        return self.status != "in_progress"

    def show(self) -> JsonObject:
        """As it is now."""
        if self.is_whole:
            return self.body
        told = {**self.body, "status": self.status}
        parts = [*self.closed, *([self.show_part()] if self.open else [])]
        match self.body["type"]:
            case "message":
                told["content"] = [self.with_own(number, part) for number, part in enumerate(parts)]
            case "reasoning":
                told["summary"] = [part for part in parts if part["type"] == "summary_text"]
                if thoughts := [part for part in parts if part["type"] == "reasoning_text"]:
                    told["content"] = thoughts
            case _:
                pass
        return {**told, **self.own}

    def with_own(self, number: int, part: JsonObject) -> JsonObject:
        return {**self.parts[number], **part} if number < len(self.parts) else part

    def show_part(self) -> JsonObject:
        text = self.pieces.join()
        match self.open:
            case "refusal":
                return {"type": "refusal", "refusal": text}
            case "summary_text" | "reasoning_text":
                return {"type": self.open, "text": text}
            case _:
                # SPEC/responses/response_output_text.py: annotations are there. Open Responses: logprobs, if not null.
                told: JsonObject = {"annotations": list(self.annotations), "logprobs": list(self.tokens)}
                return {"type": "output_text", "text": text, **told}


class ItemWriter:
    """Writes items one after the other, as `tell` is told: (type of the event, its members)."""

    def __init__(self, tell: Callable[[str, JsonObject], None]) -> None:
        self.items: list[OutputItem] = []
        self._tell = tell
        self._used: set[str] = set()

    def output(self) -> list[JsonObject]:
        return [item.show() for item in self.items if not item.is_void]

    def unique_id(self, wanted: str) -> str:
        """An item has an id of its own, also where its message becomes several items, or is said again."""
        found, number = wanted, 1
        while found in self._used:
            number += 1
            found = f"{wanted}_{number}"
        self._used.add(found)
        return found

    def add(self, body: JsonObject, message_id: str | None = None) -> OutputItem:
        """`body["id"]` = what the id is made of."""
        body["id"] = self.unique_id(body["id"])
        item = OutputItem(len(self.items), body, message_id)
        self.items.append(item)
        self._tell("response.output_item.added", {"output_index": item.index, "item": item.show()})
        return item

    def begin_mirrored(self, body: JsonObject) -> OutputItem:
        """An item that is told as another server tells it, until `end_mirrored`."""
        item = OutputItem(len(self.items), {**body, "id": self.unique_id(str(body.get("id") or "item"))}, is_whole=True)
        self.items.append(item)
        self._tell("response.output_item.added", {"output_index": item.index, "item": item.show()})
        return item

    def end_mirrored(self, item: OutputItem, body: JsonObject) -> None:
        item.body = {**body, "id": item.item_id}
        self.finish(item)

    def add_whole(self, body: JsonObject) -> None:
        """An item that is not told in pieces, as it is: its id is `unique_id`'s."""
        item = OutputItem(len(self.items), body, is_whole=True, status="completed")
        self.items.append(item)
        for kind in ("added", "done"):
            self._tell(f"response.output_item.{kind}", {"output_index": item.index, "item": item.show()})

    def finish(self, item: OutputItem, status: Any = "completed") -> None:
        if item.is_done:
            return
        self.end_part(item)
        item.status = status
        self._tell("response.output_item.done", {"output_index": item.index, "item": item.show()})

    # Parts

    def _at(self, item: OutputItem) -> JsonObject:
        place = {"content_index": len(item.closed)}
        if item.open in ("summary_text", "reasoning_text"):
            name = "summary_index" if item.open == "summary_text" else "content_index"
            place = {name: sum(part["type"] == item.open for part in item.closed)}
        return {"item_id": item.item_id, "output_index": item.index, **place}

    def begin_part(
        self,
        item: OutputItem,
        kind: Literal["output_text", "refusal", "summary_text", "reasoning_text"],
        started_at: int = 0,
    ) -> None:
        self.end_part(item)
        item.open, item.pieces, item.annotations, item.started_at = kind, GrowingText(), [], started_at
        item.tokens = []
        name = "reasoning_summary_part" if kind == "summary_text" else "content_part"
        self._tell(f"response.{name}.added", {**self._at(item), "part": item.show_part()})

    def say(self, item: OutputItem, text: str, tokens: list[Any] | None = None) -> None:
        """`tokens` = their `logprobs`."""
        item.pieces.append(text)
        item.tokens += tokens or ()
        more: JsonObject = {"logprobs": tokens or []} if item.open == "output_text" else {}
        self._tell(f"response.{_EVENTS[item.open]}.delta", {**self._at(item), "delta": text, **more})

    def cite(self, item: OutputItem, annotation: JsonObject) -> None:
        told = {"annotation_index": len(item.annotations), "annotation": annotation}
        item.annotations.append(annotation)
        self._tell("response.output_text.annotation.added", {**self._at(item), **told})

    def end_part(self, item: OutputItem) -> None:
        if not item.open:
            return
        part, at, kind = item.with_own(len(item.closed), item.show_part()), self._at(item), item.open
        text = item.pieces.join()
        told: JsonObject = {"refusal": text} if kind == "refusal" else {"text": text}
        if kind == "output_text":
            told["logprobs"] = list(item.tokens)
        self._tell(f"response.{_EVENTS[kind]}.done", {**at, **told})
        name = "reasoning_summary_part" if kind == "summary_text" else "content_part"
        self._tell(f"response.{name}.done", {**at, "part": part})
        item.closed.append(part)
        item.open = ""

    # Calls

    def add_arguments(self, item: OutputItem, name: str, text: str, *, ends: bool = True) -> None:
        """Of a call: a piece of them, and their end. `name` = of the events, and `done` has them under it."""
        at: JsonObject = {"item_id": item.item_id, "output_index": item.index}
        member = "input" if name == "custom_tool_call_input" else "arguments"
        if text:
            item.body[member] += text
            self._tell(f"response.{name}.delta", {**at, "delta": text})
        if ends:
            self._tell(f"response.{name}.done", {**at, member: item.body[member]})


_EVENTS: Final = {
    "output_text": "output_text",
    "refusal": "refusal",
    # In both OpenAI's API and Open Responses, which call the text of reasoning by different names.
    "summary_text": "reasoning_summary_text",
    # Of servers that show the text itself.
    "reasoning_text": "reasoning_text",
}
