"""Texts, reasoning and files of another server → canonical messages."""

from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import Any, Final

from babelgate.adapters.ag_ui import wire as w
from babelgate.adapters.ag_ui.codec.names import PROTOCOL, own_of
from babelgate.adapters.kit.json import ABSENT, parse_text
from babelgate.canonical import AnnotationPart, DataPart, Event, FilePart, ReasoningPart, RefusalPart, TextPart
from babelgate.canonical.event import MessageEnded, MessageStarted, PartAdded, PartDelta, PartEnded
from babelgate.canonical.json import as_list, as_object, as_text, objects_in
from babelgate.canonical.value import JsonObject

_ROLES: Final[Any] = {"user": "user", "developer": "system", "system": "system"}


@dataclass(slots=True)
class _Message:
    """Canonical message that has begun and has not ended."""

    message_id: str
    parts: int = 0
    text: tuple[int, str] | None = None
    """Index and kind (`text` or `refusal`) of the open text part, to which further text is appended. None if no text
    part is open."""
    thoughts: dict[str, int] = field(default_factory=dict[str, int])
    """Index of each open reasoning part, by the id of its message on the wire."""


class MessageReader:
    """Decoder of the message events of one run. It passes canonical events to `add`. `known_ids` are the ids of
    messages in the request. `new_id` returns an id for a message whose own is missing or already used."""

    def __init__(self, add: Callable[[Event], None], known_ids: Set[str], new_id: Callable[[str], str]) -> None:
        self.seen: dict[str, str] = {}
        """Canonical id of each message of the wire that this run has begun."""
        self._add = add
        self._known_ids = known_ids
        self._new_id = new_id
        self._open: dict[str, _Message] = {}
        """Messages that have not ended, by their canonical id."""
        self._thoughts: dict[str, _Message] = {}
        """Message of each open reasoning part, by the id of the reasoning on the wire."""

    def has_message(self, name: str) -> bool:
        """Return True if the request or this run contains a message with this id of the wire."""
        return name in self.seen or name in self._known_ids

    # Text

    def start(self, event: JsonObject) -> None:
        """Begin the message of a `TEXT_MESSAGE_START`, or continue it if its reasoning or a file has begun it
        already."""
        name, marks = as_text(event.get("messageId")), own_of(event)
        current = self.seen.get(name)
        if current is not None and current in self._open:
            return
        metadata: JsonObject = as_object(event.get("metadata"))
        metadata = {key: value for key, value in metadata.items() if key not in (w.OWN, w.RESERVED)}
        metadata = as_object(marks.get("metadata")) or metadata
        role = "tool" if marks.get("role") == "tool" else _ROLES.get(event.get("role"), "agent")
        self._begin(name, role=role, name=as_text(event.get("name")) or None, metadata=metadata)

    def _begin(self, wire_id: str, **members: Any) -> _Message:
        # An id is used once in the log. A message that is opened again becomes another one.
        message_id = self._new_id(wire_id) if not wire_id or self.has_message(wire_id) else wire_id
        self.seen[wire_id] = message_id
        message = self._open[message_id] = _Message(message_id)
        self._add(MessageStarted(message_id=message_id, **members))
        return message

    def _begin_at(self, wire_id: str, marks: JsonObject) -> _Message:
        """Begin a message at its first reasoning or file, before its text. `marks` are the gateway's own members of the
        event, such as `phase`."""
        phase: Any = "progress" if marks.get("phase") == "progress" else "answer"
        return self._begin(wire_id, phase=phase, metadata=as_object(marks.get("metadata")))

    def say(self, event: JsonObject) -> None:
        """Add the text of a `TEXT_MESSAGE_CONTENT` to its message, and begin the message if its start event is missing.
        The gateway's own member `kind` marks a refusal or the JSON of a data part."""
        name, delta, kind = as_text(event.get("messageId")), as_text(event.get("delta")), own_of(event).get("kind")
        message = self._find(name)
        if kind == "separator":
            return
        if kind == "data":
            value = parse_text(delta)
            if value is not ABSENT:
                self._end_text(message)
                self._add_part(message, DataPart(data=value))
                return
        kind = "refusal" if kind == "refusal" else "text"
        if message.text is None or message.text[1] != kind:
            self._end_text(message)
            part = RefusalPart(text="") if kind == "refusal" else TextPart(text="")
            message.text = (self._add_part(message, part, is_open=True), kind)
        if delta:
            self._add(PartDelta(message_id=message.message_id, index=message.text[0], text=delta))

    def _find(self, name: str) -> _Message:
        message = self._open.get(self.seen.get(name, ""))
        return self._begin(name) if message is None else message

    def _add_part(self, message: _Message, part: Any, *, is_open: bool = False) -> int:
        index = message.parts
        message.parts += 1
        self._add(PartAdded(message_id=message.message_id, index=index, part=part, open=is_open))
        return index

    def _end_text(self, message: _Message) -> None:
        if message.text is not None:
            self._add(PartEnded(message_id=message.message_id, index=message.text[0]))
            message.text = None

    def end(self, event: JsonObject) -> None:
        """End the message of a `TEXT_MESSAGE_END`. The gateway's own member `citations` becomes annotation parts."""
        message = self._open.get(self.seen.get(as_text(event.get("messageId")), ""))
        if message is None:
            return
        self._end_text(message)
        for each in objects_in(own_of(event).get("citations")):
            start, end = each.get("start"), each.get("end")
            citation = AnnotationPart(
                start=start if isinstance(start, int) else None,
                end=end if isinstance(end, int) else None,
                url=as_text(each.get("url")) or None,
                title=as_text(each.get("title")) or None,
                description=as_text(each.get("description")) or None,
            )
            self._add_part(message, citation)
        self._end_message(message)

    def _end_message(self, message: _Message) -> None:
        self._end_text(message)
        for name in list(message.thoughts):
            self.end_thought(name)
        if self._open.pop(message.message_id, None) is not None:
            self._add(MessageEnded(message_id=message.message_id))

    def close(self) -> None:
        """End all messages that are still open at the end of the run."""
        for message in list(self._open.values()):
            self._end_message(message)

    # Reasoning

    def start_thought(self, event: JsonObject) -> None:
        """Begin the reasoning part of a `REASONING_MESSAGE_START`. It belongs to the message that another gateway names
        in the event, or otherwise to a separate message."""
        name, marks = as_text(event.get("messageId")), own_of(event)
        if name in self._thoughts:
            return
        place = as_text(marks.get("messageId"))
        message = self._open.get(self.seen.get(place or name, ""))
        if message is None:
            message = self._begin_at(place or name, marks)
        self._end_text(message)
        extra: JsonObject = {} if place else {PROTOCOL: {"id": name}}
        message.thoughts[name] = self._add_part(message, ReasoningPart(text="", extra=extra), is_open=True)
        self._thoughts[name] = message

    def think(self, event: JsonObject) -> None:
        """Add the text of a `REASONING_MESSAGE_CONTENT` to its part, and begin the part if its start event is
        missing."""
        name, delta = as_text(event.get("messageId")), as_text(event.get("delta"))
        if name not in self._thoughts:
            self.start_thought(event)
        message = self._thoughts[name]
        if delta:
            self._add(PartDelta(message_id=message.message_id, index=message.thoughts[name], text=delta))

    def end_thought(self, name: str) -> None:
        """End a reasoning part, by its id on the wire. If its message was begun only for this part, end the message,
        too."""
        message = self._thoughts.pop(name, None)
        if message is None:
            return
        index = message.thoughts.pop(name)
        self._add(PartEnded(message_id=message.message_id, index=index))
        if self.seen.get(name) == message.message_id and message.parts == 1:
            self._end_message(message)

    # Whole messages

    def add_file(self, part: FilePart, marks: JsonObject) -> None:
        """Add a file from an activity of another gateway to its message. `marks` are the gateway's own members of the
        activity, and name the message."""
        name = as_text(marks.get("messageId"))
        message = self._open.get(self.seen.get(name, ""))
        if message is None:
            message = self._begin_at(name, marks)
        self._end_text(message)
        self._add_part(message, part)

    def add_progress(self, name: str, content: JsonObject) -> None:
        """Add a complete progress message from an activity of another gateway. `name` is the id of the activity; a
        repeated one is ignored."""
        if name in self.seen:
            return
        metadata = as_object(content.get("metadata"))
        message = self._begin(name, phase="progress", metadata=metadata)
        self._add_part(message, TextPart(text=as_text(content.get("text"))))
        self._end_message(message)

    def add_whole(self, wire: JsonObject) -> None:
        """Add a message of a `MESSAGES_SNAPSHOT` that no earlier event has shown. A message without text is ignored."""
        name, content = as_text(wire.get("id")), wire.get("content")
        text = (
            content
            if isinstance(content, str)
            else "".join(as_text(part.get("text")) for part in objects_in(as_list(content)))
        )
        if not text:
            return
        part = ReasoningPart(text=text) if wire.get("role") == "reasoning" else TextPart(text=text)
        message = self._begin(name, name=as_text(wire.get("name")) or None)
        self._add_part(message, part)
        self._end_message(message)
