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
    """Canonical message that is open."""

    message_id: str
    parts: int = 0
    text: tuple[int, str] | None = None
    """Index and kind of the open text part."""
    thoughts: dict[str, int] = field(default_factory=dict[str, int])
    """Indexes of the open reasoning parts, by the id on the wire."""
    data: str | None = None
    """JSON of a data part, so far."""


class MessageReader:
    """Reader of one run's messages. `add` adds an event, and `known` has the ids of messages of the conversation."""

    def __init__(self, add: Callable[[Event], None], known_ids: Set[str], new_id: Callable[[str], str]) -> None:
        self.seen: dict[str, str] = {}
        """Canonical id of each message of the wire that this run has begun."""
        self._add = add
        self._known_ids = known_ids
        self._new_id = new_id
        self._open: dict[str, _Message] = {}
        """Open messages by canonical id."""
        self._thoughts: dict[str, _Message] = {}
        """Messages of the open reasoning, by the id on the wire."""

    def has_message(self, name: str) -> bool:
        """Return True if the conversation or this run has a message with this id."""
        return name in self.seen or name in self._known_ids

    # Text

    def start(self, event: JsonObject) -> None:
        """Begin a message, or continue one that has begun with its reasoning."""
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
        """Begin the message that a file or reasoning belongs to."""
        phase: Any = "progress" if marks.get("phase") == "progress" else "answer"
        return self._begin(wire_id, phase=phase, metadata=as_object(marks.get("metadata")))

    def say(self, event: JsonObject) -> None:
        """Add a piece of text. The message begins with it if its start is missing."""
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
        """End a message, with its citations."""
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
        """End all open messages."""
        for message in list(self._open.values()):
            self._end_message(message)

    # Reasoning

    def start_thought(self, event: JsonObject) -> None:
        """Begin reasoning: in the message that a gateway names, and else in a separate message."""
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
        """Add a piece of reasoning."""
        name, delta = as_text(event.get("messageId")), as_text(event.get("delta"))
        if name not in self._thoughts:
            self.start_thought(event)
        message = self._thoughts[name]
        if delta:
            self._add(PartDelta(message_id=message.message_id, index=message.thoughts[name], text=delta))

    def end_thought(self, name: str) -> None:
        """End reasoning. A message that has nothing else ends with it."""
        message = self._thoughts.pop(name, None)
        if message is None:
            return
        index = message.thoughts.pop(name)
        self._add(PartEnded(message_id=message.message_id, index=index))
        if self.seen.get(name) == message.message_id and message.parts == 1:
            self._end_message(message)

    # Whole messages

    def add_file(self, part: FilePart, marks: JsonObject) -> None:
        """Add a file of a message. `marks` are those of its activity."""
        name = as_text(marks.get("messageId"))
        message = self._open.get(self.seen.get(name, ""))
        if message is None:
            message = self._begin_at(name, marks)
        self._end_text(message)
        self._add_part(message, part)

    def add_progress(self, name: str, content: JsonObject) -> None:
        """Add a progress message."""
        if name in self.seen:
            return
        metadata = as_object(content.get("metadata"))
        message = self._begin(name, phase="progress", metadata=metadata)
        self._add_part(message, TextPart(text=as_text(content.get("text"))))
        self._end_message(message)

    def add_whole(self, wire: JsonObject) -> None:
        """Add a message of a snapshot that no event has shown."""
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
