"""Output items of a response for the agent's messages: items of the types `message` and `reasoning`."""

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any, Literal

from babelgate.adapters.kit.json import json_text
from babelgate.adapters.openai.codec.model import openai_extra
from babelgate.adapters.openai.codec.names import encode_item_id
from babelgate.adapters.openai.wire.replies import ITEM, PIECE_EXTRAS, ItemHead
from babelgate.adapters.openai.write.call_items import CallItemWriter
from babelgate.adapters.openai.write.items import ItemWriter, OutputItem, PartKind, message_body
from babelgate.adapters.openai.write.message_tracker import MessageTracker
from babelgate.adapters.openai.write.response_state import IncompleteReason
from babelgate.adapters.openai.write.run_losses import RunLosses
from babelgate.canonical import (
    AnnotationPart,
    DataPart,
    Feature,
    FilePart,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from babelgate.canonical.event import MessageEnded, MessageStarted, PartAdded, PartDelta, PartEnded
from babelgate.canonical.value import JsonObject


@dataclass(slots=True)
class _Message:
    """State of one canonical message of the run."""

    message_id: str
    phase: Literal["commentary", "final_answer"]
    is_shown: bool
    item: OutputItem | None = None
    """Open item that shows the message: one of the type `message` or `reasoning`. None: no open item."""
    length: int = 0
    """Length of the message's text so far, in characters."""
    has_refused: bool = False
    incomplete_reason: IncompleteReason | None = None
    call_ids: dict[int, str] = field(default_factory=dict[int, str])
    """Ids of the calls of the agent's own tools in the message, by part index."""
    part_head: ItemHead = field(default_factory=ItemHead)
    """Head of the upstream's item to which the newest part belongs."""
    item_head: ItemHead = field(default_factory=ItemHead)
    """Head of the upstream's item that `item` shows."""

    def continued_item(self, kind: Literal["message", "reasoning"]) -> OutputItem | None:
        """Return the open item if the newest part continues it: it has the type `kind` and shows the same item of the
        upstream. Otherwise return None."""
        item = self.item
        if item is None or item.body["type"] != kind or self.part_head.get("id") != self.item_head.get("id"):
            return None
        return item


class MessageItemWriter:
    """Writer of the output items for one run's messages. The tool calls in messages are passed to a CallItemWriter."""

    __slots__ = ("_calls", "_items", "_losses", "_messages", "tracker")

    def __init__(self, items: ItemWriter, calls: CallItemWriter, losses: RunLosses) -> None:
        self.tracker = MessageTracker()
        self._items = items
        self._calls = calls
        self._losses = losses
        self._messages: dict[str, _Message] = {}

    @property
    def has_refused(self) -> bool:
        return any(message.has_refused for message in self._messages.values())

    @property
    def incomplete_reason(self) -> IncompleteReason | None:
        """Reason why the answer is incomplete (SPEC/responses/response.py, IncompleteDetails.reason); None if it is
        complete."""
        reason: IncompleteReason | None = None
        for message in self._messages.values():
            reason = message.incomplete_reason or reason
        return reason

    def drop_void(self, void: Container[str] | None) -> None:
        """Remove the state of messages that a restart of the agent has voided. `void` are their ids; None means all
        messages."""
        if void is None:
            self._messages, self.tracker = {}, MessageTracker()
        else:
            self.tracker.drop_void(void)
            self._messages = {each: message for each, message in self._messages.items() if each not in void}

    def write(self, event: MessageStarted | PartAdded | PartEnded | MessageEnded) -> None:
        """Write an event of a message, other than a text delta, for which there is `add_delta`."""
        match event:
            case MessageStarted():
                self._start(event)
            case PartAdded():
                self._add_part(event)
            case PartEnded():
                self._end_part(event)
            case MessageEnded():
                self._end(event)

    def add_delta(self, event: PartDelta) -> None:
        """Write a text delta of an open part."""
        message_id, index = event.message_id or "", event.index or 0
        message = self._messages.get(message_id)
        kind = self.tracker.open_kinds.get((message_id, index))
        if message is None or kind is None or not event.text:
            return
        if kind is TextPart:
            self._add_text(message, "output_text", event.text, _logprobs_of(event))
            message.length += len(event.text)
        elif kind is RefusalPart:
            self._add_text(message, "refusal", event.text)
        elif kind is ReasoningPart:
            if message.item is not None and message.item.open in ("summary_text", "reasoning_text"):
                self._items.add_text(message.item, event.text)
        elif kind is ToolCallPart:
            self._calls.extend_arguments(message.call_ids.get(index, ""), event.text)

    # Open items, which items of another server end

    def close_all(self) -> None:
        """End the open items of all messages."""
        for message in self._messages.values():
            self._close(message)

    def release(self, item: OutputItem) -> None:
        """Detach `item`, which the upstream has ended, from its message. If the message continues, it begins another
        item."""
        for message in self._messages.values():
            if message.item is item:
                message.item = None

    def annotate(self, annotation: JsonObject) -> None:
        """Add an annotation to the open text part of each message."""
        for message in self._messages.values():
            if message.item is not None and message.item.open == "output_text":
                self._items.cite(message.item, annotation)

    # Messages

    def _start(self, event: MessageStarted) -> None:
        message_id, is_progress = event.message_id or "", event.phase == "progress"
        # Messages that a graph's nodes add, and no model, are progress, and have any role.
        is_shown = event.role == "agent" or (is_progress and event.role != "tool")
        self._messages[message_id] = _Message(message_id, "commentary" if is_progress else "final_answer", is_shown)
        if event.metadata:
            self._losses.note(Feature.METADATA)
        if not is_shown and event.role != "tool":
            self._losses.note(Feature.TOOL_ACTIVITY)

    def _end(self, event: MessageEnded) -> None:
        message = self._messages.get(event.message_id or "")
        if message is None:
            return
        self._close(message)
        reason = self.tracker.end_message(event, has_refused=self.has_refused)
        if reason is not None:
            message.incomplete_reason = "max_output_tokens" if reason == "length" else reason

    # Parts

    def _add_part(self, event: PartAdded) -> None:
        message = self._messages.get(event.message_id or "")
        if message is None:
            return
        if event.part.metadata:
            self._losses.note(Feature.METADATA)
        if isinstance(event.part, ToolResultPart):
            self._calls.add_result(event.part)
        elif message.is_shown:
            self.tracker.add_part(event)
            message.part_head = event.extra.get(ITEM) or message.part_head
            self._show_part(message, event)

    def _show_part(self, message: _Message, event: PartAdded) -> None:
        match event.part:
            case TextPart(text=text):
                self._add_text(message, "output_text", text, _logprobs_of(event))
                message.length += len(text)
            case RefusalPart(text=text):
                message.has_refused = True
                self._add_text(message, "refusal", text)
            case ReasoningPart(text=text):
                self._think(message, text)
            case DataPart() as part:
                self._show_data(message, part)
            case AnnotationPart() as part:
                self._cite(message, part)
            case FilePart():
                self._losses.note(Feature.FILE_BYTES)
            case ToolCallPart() as part:
                self._add_call(message, part, event)
            case ToolResultPart():
                pass

    def _end_part(self, event: PartEnded) -> None:
        kind = self.tracker.end_part(event)
        message = self._messages.get(event.message_id or "")
        if kind is ToolCallPart and message is not None:
            self._calls.end_arguments(message.call_ids.get(event.index or 0, ""))

    def _add_text(self, message: _Message, kind: PartKind, text: str, logprobs: list[Any] | None = None) -> None:
        if not text:
            return
        item = self._message_item(message)
        if item.open != kind:
            self._items.begin_part(item, kind, message.length)
        self._items.add_text(item, text, logprobs)

    def _show_data(self, message: _Message, part: DataPart) -> None:
        """Write data as JSON text in a separate part, because positions of citations do not count it."""
        self._losses.note(Feature.DATA)
        self.tracker.add_data(message.message_id, part.data)
        item = self._message_item(message)
        self._items.begin_part(item, "output_text", message.length)
        self._items.add_text(item, json_text(part.data))
        self._items.end_part(item)

    def _think(self, message: _Message, text: str) -> None:
        item = message.continued_item("reasoning")
        if item is None:
            self._close(message)
            item_id = message.part_head.get("id") or encode_item_id("rs_", message.message_id)
            item = self._begin_item(message, {"type": "reasoning", "id": item_id})
        self._items.begin_part(item, "reasoning_text" if "form" in message.part_head else "summary_text")
        if text:
            self._items.add_text(item, text)

    def _cite(self, message: _Message, part: AnnotationPart) -> None:
        item = self._message_item(message)
        if item.open != "output_text":
            self._items.begin_part(item, "output_text", message.length)
        # SPEC/responses/response_output_text.py, AnnotationURLCitation, requires all four.
        cited: JsonObject = {
            "type": "url_citation",
            "url": part.url or "",
            "title": part.title or part.description or "",
            "start_index": max((part.start or 0) - item.started_at, 0),
            "end_index": max((message.length if part.end is None else part.end) - item.started_at, 0),
        }
        self._items.cite(item, {**openai_extra(part).get("own", {}), **cited})

    def _add_call(self, message: _Message, part: ToolCallPart, event: PartAdded) -> None:
        if part.side == "caller":  # shown as a question when the run stops
            return
        self._close(message)
        message.call_ids[event.index or 0] = part.call_id
        self._calls.add(part, message.message_id, is_open=event.open)

    # Items

    def _message_item(self, message: _Message) -> OutputItem:
        """Return the open item of the type `message` for a message, or begin one."""
        item = message.continued_item("message")
        if item is not None:
            return item
        self._close(message)
        body = message_body(message.message_id, message.phase)
        if "id" in message.part_head:
            del body["phase"]
            body |= dict(message.part_head)
        return self._begin_item(message, body)

    def _begin_item(self, message: _Message, body: JsonObject) -> OutputItem:
        item = message.item = self._items.add(body, message.message_id)
        message.item_head = message.part_head
        upstream_id = message.part_head.get("id")
        if upstream_id is not None:
            self._items.upstream[upstream_id] = item
        return item

    def _close(self, message: _Message) -> None:
        if message.item is not None:
            self._items.finish(message.item)
            message.item = None


def _logprobs_of(event: PartAdded | PartDelta) -> list[Any] | None:
    """Return the logprobs of a piece of text, or None if there are none. Their form is the same in chat completions and
    responses."""
    if not event.extra or PIECE_EXTRAS not in event.extra:
        return None
    return event.extra[PIECE_EXTRAS].get("logprobs", {}).get("content")
