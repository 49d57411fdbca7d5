"""Conversion of an agent's output to the messages of a run.

ACP has one open message at a time, and its parts do not name their message (OpenAPI 0.2.0, MessagePartEvent). So a part
of another message closes the open one. Artifacts and tool activity, which belong to no message, are added to the open
message. Without an open message, they open one, which the next message of the same author continues.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any, ClassVar, Final

from babelgate.adapters.acp import wire as w
from babelgate.adapters.acp.carries import CARRIES
from babelgate.adapters.acp.codec.messages import encode_role, message_members
from babelgate.adapters.acp.codec.parts import (
    EncodingContext,
    as_received,
    encode_part,
    has_part,
    is_repetition,
    mark,
    part_of,
    trajectory,
    wrap_value,
)
from babelgate.adapters.acp.errors import encode_own
from babelgate.adapters.kit.json import json_text
from babelgate.adapters.kit.server.encoding import LazyList, TextTemplate
from babelgate.adapters.kit.time import encode_time
from babelgate.canonical import (
    DataPart,
    Feature,
    FilePart,
    Part,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from babelgate.canonical.event import (
    ArtifactAdded,
    MessageEnded,
    MessageStarted,
    PartAdded,
    PartDelta,
    PartEnded,
    RunStarted,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
)
from babelgate.canonical.growing import GrowingParts, GrowingText, GrowingTexts, extend_part
from babelgate.canonical.thread import Loss
from babelgate.canonical.value import Extra, Json, JsonObject

_Key = tuple[str, int]
"""Key of a part: the id of its canonical message, and its index in the message."""
_LONG: Final = 256
"""Number of plain-text parts of a message above which they are encoded while they are sent. Chosen: as pydantic models
they take 300 kB."""
_TOGETHER: Final = 64
"""Number of parts that are encoded in one step. Chosen, because encoded parts stay in memory until the client has
received them."""
_TEXT: Final = {"content_type", "content"}
"""Names of the members that are set in a part which contains only plain text."""


@dataclass(slots=True)
class _Texts:
    """Consecutive plain-text parts of one message, stored as texts. As pydantic models they would take twenty times the
    memory."""

    content_type: str
    texts: GrowingTexts = field(default_factory=GrowingTexts)

    def __iter__(self) -> Iterator[w.MessagePart]:
        return (w.MessagePart(content_type=self.content_type, content=text) for text in self.texts)


class _LazyParts(LazyList):
    """Copy of a message's parts at one moment. They are encoded one by one, because a long message has thousands."""

    def __init__(self, parts: Sequence[w.MessagePart | _Texts]) -> None:
        self._parts = [
            _Texts(part.content_type, part.texts.copy()) if isinstance(part, _Texts) else part for part in parts
        ]

    def __iter__(self) -> Iterator[w.MessagePart]:
        for part in self._parts:
            yield from part if isinstance(part, _Texts) else (part,)

    def encode(self) -> Iterator[bytes]:
        for part in self._parts:
            if not isinstance(part, _Texts):
                yield w.dump(part)
                continue
            template, texts = text_template(part.content_type), iter(part.texts)
            while encoded := b",".join(template.encode_all(islice(texts, _TOGETHER))):
                yield encoded


@lru_cache(maxsize=64)
def text_template(content_type: str) -> TextTemplate:
    """Return the template that encodes plain-text parts of this content type as JSON."""
    return TextTemplate(lambda text: w.MessagePart(content_type=content_type, content=text))


@dataclass(slots=True)
class _OpenMessage:
    """The wire message to which parts are being added."""

    owner: str | None
    """Id of the canonical message that the wire message shows. None if it contains only parts that belong to no
    canonical message."""
    run_id: str | None
    role: str
    created_at: str
    members: dict[str, Any] = field(default_factory=dict[str, Any])
    """Further members of the wire message, such as times and metadata (`message_members`)."""
    parts: list[w.MessagePart | _Texts] = field(default_factory=list[w.MessagePart | _Texts])

    def add_texts(self, content_type: str, texts: Sequence[str]) -> None:
        """Add one plain-text part for each text."""
        last = self.parts[-1] if self.parts else None
        if not isinstance(last, _Texts) or last.content_type != content_type:
            last = _Texts(content_type)
            self.parts.append(last)
        last.texts.extend(texts)

    def message(self, completed_at: str | None = None) -> w.Message:
        """Return the wire message with its parts so far. `completed_at` is the time of its end, or None while it is
        open."""
        parts = _LazyParts(self.parts)
        is_long = sum(len(part.texts) for part in self.parts if isinstance(part, _Texts)) > _LONG
        visible_parts: list[w.MessagePart] = [] if is_long else list(parts)
        message = w.Message(role=self.role, parts=visible_parts, created_at=self.created_at, completed_at=completed_at)
        more = {**self.members, "parts": parts} if is_long else self.members
        return message.model_copy(update=more) if more else message


class MessageEncoder:
    """Encoder that converts canonical events of a run to its wire messages. The events must be written in order."""

    def __init__(self, view: EncodingContext) -> None:
        self.view = view
        self.at = 0
        """Time of the record that is being written, in microseconds since 1970. The owner sets it."""
        self.run_id: str | None = None
        """Id of the run to which the record that is being written belongs. The owner sets it."""
        self.events: list[w.Event] | None = None
        """Wire events for the record that is being written. None if the caller needs only the messages, and no
        events."""
        self.output: list[w.Message] = []
        """Messages of the run that are complete."""
        self._sources: list[tuple[str | None, str | None]] = []
        """Pairs of the run id and the canonical message id from which each message in `output` was written."""
        self.losses: dict[Loss, None] = {}
        self.streamed_losses: dict[Loss, None] = {}
        """Losses that concern only the run object, because the run's event stream shows these features."""
        self._current: _OpenMessage | None = None
        self._speakers: dict[str, MessageStarted] = {}
        self._progress: dict[str, GrowingParts] = {}
        self._open: dict[_Key, Part] = {}
        self._held_text: dict[_Key, GrowingText] = {}
        """Text of open parts that are added to the wire message only when they are complete, by part."""
        self._calls: dict[str, tuple[str, Json]] = {}
        self._pieces: dict[str, list[ArtifactAdded]] = {}
        self._data: list[Json] = []
        """Values of the data parts in the current activation. A structured output that equals one of them is not shown
        again."""

    def all_messages(self) -> list[w.Message]:
        """Return the complete messages, and the open message with its parts so far."""
        if self._current is None or not self._current.parts:
            return list(self.output)
        return [*self.output, self._current.message()]

    def emit(self, make: Callable[[], w.Event]) -> None:
        """Append the event that `make` creates to `events`, unless no events are needed."""
        if self.events is not None:
            self.events.append(make())

    def lose(self, feature: Feature) -> None:
        """Record the loss of a feature, if `CARRIES` declares that ACP does not carry it whole."""
        carry = CARRIES[feature]
        if carry.is_lost():
            losses = self.losses if carry.is_lost(in_stream=True) else self.streamed_losses
            losses[Loss(feature=feature.value, how=carry.how)] = None

    def write(self, event: object) -> None:
        """Apply one canonical event to the messages of the run, and emit the wire events that show it."""
        write = self._WRITES.get(type(event))
        if write is not None:
            write(self, event)

    def end(self, output: Json = None) -> None:
        """End an activation of the agent: add unfinished artifacts and the structured output, and complete the open
        message."""
        for pieces in list(self._pieces.values()):
            self._show_artifact(pieces)
        self._pieces.clear()
        if output is not None and output not in self._data:
            self._add_part(mark(encode_part(DataPart(data=output), self.view), kind="output"))
        self._data.clear()
        self.close()

    def start_over(self, start: RunStarted) -> bool:
        """Remove the messages that a restart of the run voids. Return True if at least one complete message was
        removed."""
        self.close()
        valid = [run_id != self.run_id or not start.is_void(owner) for run_id, owner in self._sources]
        self.output[:] = [message for message, each in zip(self.output, valid, strict=True) if each]
        self._sources = [source for source, each in zip(self._sources, valid, strict=True) if each]
        if start.is_void(None):
            self._pieces.clear()
            self._data.clear()
        return not all(valid)

    # Messages

    def _message_started(self, event: MessageStarted) -> None:
        message_id = event.message_id or ""
        if is_repetition(event.extra):
            return
        self._speakers[message_id] = event
        if event.metadata:
            self.lose(Feature.METADATA)
        if event.phase == "progress":
            self._progress[message_id] = GrowingParts()
            return
        self._switch_to(message_id)

    def _switch_to(self, message_id: str) -> None:
        """Complete the open wire message if it shows another canonical message, and open one for the canonical message
        `message_id`."""
        current = self._current
        if current is not None and current.owner == message_id:
            return
        start = self._speakers.get(message_id)
        role = encode_role("agent", start.name if start else None, self.view.agent)
        members = message_members(start.extra, metadata=start.metadata) if start else {}
        if current is not None and current.owner is None and current.role == role and members in ({}, current.members):
            current.owner = message_id
            return
        self.close()
        self._start(_OpenMessage(message_id, self.run_id, role, encode_time(self.at), members))

    def begin(self, name: str | None, extra: Extra) -> None:
        """Open a wire message because the agent's own ACP server has opened one. `name` is the agent's name in the
        role, or None for the called agent. The first part in it may belong to no canonical message."""
        self.close()
        role = encode_role("agent", name, self.view.agent)
        self._start(_OpenMessage(None, self.run_id, role, encode_time(self.at), message_members(extra)))

    def _start(self, current: _OpenMessage) -> None:
        self._current = current
        self.emit(lambda: w.MessageEvent(type="message.created", message=current.message()))

    def _add_part(self, part: w.MessagePart) -> None:
        if self._current is None:
            role = encode_role("agent", None, self.view.agent)
            self._start(_OpenMessage(None, self.run_id, role, encode_time(self.at)))
        assert self._current is not None
        if type(part) is w.MessagePart and part.model_fields_set == _TEXT and part.content is not None:
            self._current.add_texts(part.content_type or "", (part.content,))
        else:
            self._current.parts.append(part)
        self.emit(lambda: w.PartEvent(part=part))

    def close(self, extra: Extra | None = None, usage: JsonObject | None = None) -> None:
        """Complete the open wire message, if there is one. `extra` is that of the event that ends it, and `usage` the
        token usage that the event reports."""
        if self._current is None:
            return
        own_members = {**self._current.members.get(w.OWN, {}), "usage": usage or {}}
        self._current.members |= message_members(extra or {}, **own_members)
        message = self._current.message(encode_time(self.at))
        self._sources.append((self._current.run_id, self._current.owner))
        self._current = None
        self.output.append(message)
        self.emit(lambda: w.MessageEvent(type="message.completed", message=message))

    def _part_added(self, event: PartAdded) -> None:
        message_id = event.message_id or ""
        progress_parts = self._progress.get(message_id)
        if progress_parts is not None:
            progress_parts.append(event.part)
            return
        part = event.part
        if is_repetition(part.extra):
            return
        self._switch_to(message_id)
        key = (message_id, event.index or 0)
        if event.open:
            self._open[key] = part
            empty = isinstance(part, TextPart | RefusalPart) and not part.text and not has_part(event.extra)
            if empty or isinstance(part, ReasoningPart | ToolCallPart):
                self._held_text[key] = GrowingText()
                return
        self._show(part, event.extra)

    def _part_delta(self, event: PartDelta) -> None:
        message_id = event.message_id or ""
        progress_parts = self._progress.get(message_id)
        if progress_parts is not None:
            if progress_parts.begun:
                progress_parts.extend(None, (event.text,))
            return
        key = (message_id, event.index or 0)
        part = self._open.get(key)
        if part is None or not (event.text or has_part(event.extra)):
            return
        text = self._held_text.get(key)
        if isinstance(part, ReasoningPart | ToolCallPart):
            if text is not None:
                text.append(event.text)
            return
        self._held_text.pop(key, None)
        self._switch_to(message_id)
        media_type = part.media_type or "text/plain"
        wire = as_received(w.MessagePart(content_type=media_type, content=event.text), event.extra)
        self._add_part(mark(wire, kind="refusal") if isinstance(part, RefusalPart) else wire)

    def add_texts(self, event: PartDelta, texts: Sequence[str]) -> str | None:
        """Add the texts of consecutive records to one part, and return the content type of the part. Return None, and
        add nothing, if each record must be written separately."""
        message_id = event.message_id or ""
        key = (message_id, event.index or 0)
        part, current = self._open.get(key), self._current
        if current is None or current.owner != message_id or message_id in self._progress:
            return None
        if not isinstance(part, TextPart):  # each piece of a refusal has a mark
            return None
        self._held_text.pop(key, None)
        media_type = part.media_type or "text/plain"
        current.add_texts(media_type, texts)
        return media_type

    def _part_ended(self, event: PartEnded) -> None:
        message_id = event.message_id or ""
        key = (message_id, event.index or 0)
        part = self._open.pop(key, None)
        text = self._held_text.pop(key, None)
        if part is None or text is None:
            return
        self._switch_to(message_id)
        self._show(extend_part(part, text.join()))

    def _show(self, part: Part, extra: Extra | None = None) -> None:
        """Add a canonical part to the open wire message. `extra` is that of the event that added the part, if any."""
        match part:
            case RefusalPart():
                self.lose(Feature.REFUSAL)
            case ReasoningPart():
                self.lose(Feature.REASONING)
            case ToolCallPart():
                self.lose(Feature.TOOL_ACTIVITY if part.side == "agent" else Feature.CALLER_TOOLS)
                self._calls[part.call_id] = (part.name, None)
            case DataPart():
                self._data.append(part.data)
            case _:
                pass
        if part.metadata:
            self.lose(Feature.METADATA)
        wire = encode_part(part, self.view)
        if isinstance(part, ToolResultPart) and isinstance(wire.metadata, w.Trajectory):
            name, _ = self._calls.get(part.call_id, (None, None))
            wire.metadata.tool_name = name
        if isinstance(part, FilePart) and (part.name is not None or wire.content_url != part.url):
            self.lose(Feature.FILE_BYTES if part.url is None else Feature.FILE_URL)
            wire = mark(wire, kind="file", **_in_store(part, wire))
        self._add_part(as_received(wire, extra or {}))

    def _message_ended(self, event: MessageEnded) -> None:
        message_id = event.message_id or ""
        self._speakers.pop(message_id, None)
        progress = self._progress.pop(message_id, None)
        if progress is not None:
            self.lose(Feature.PROGRESS)
            self._add_part(mark(trajectory(_progress_text(progress.join_all())), kind="progress"))
            return
        if self._current is not None and self._current.owner == message_id:
            self.close(event.extra, event.usage)

    # Parts that belong to no message

    def _tool_started(self, event: ToolStarted) -> None:
        self._calls[event.call_id or ""] = (event.name, event.input)
        self._add_native_part(event.extra)

    def _add_native_part(self, extra: Extra) -> bool:
        """Add the wire part that the agent's own ACP server sent, if `extra` contains one. Return True if the event
        must not be written in any other form."""
        native = part_of(extra)
        if native is not None:
            self._add_part(native)
        return has_part(extra)

    def _tool_ended(self, event: ToolEnded) -> None:
        """Add a part with a tool call when the call has ended. A trajectory is "a tool execution with tool name, input,
        and output" (components.schemas.TrajectoryMetadata), so it needs all three."""
        _, tool_input = self._calls.pop(event.call_id or "", (event.name, None))
        if self._add_native_part(event.extra):
            return
        self.lose(Feature.TOOL_ACTIVITY)
        output = None if event.output is None else wrap_value(event.output)
        if event.fault is not None:
            output = {"error": event.fault.message}
        part = trajectory(tool=event.name, input=None if tool_input is None else wrap_value(tool_input), output=output)
        fault = encode_own(event.fault)
        self._add_part(mark(part, kind="tool", call_id=event.call_id, fault=fault))

    def _step_started(self, event: StepStarted) -> None:
        members = {"step_id": event.step_id, "node": event.node, "ns": list(event.ns), "input": event.input}
        self._add_part(mark(trajectory(event.name), kind="step", **members))

    def _step_ended(self, event: StepEnded) -> None:
        """Emit an event for the end of a step. The messages do not show it, because a run object has no place for the
        end of a step."""
        self.lose(Feature.STEP)
        members: JsonObject = {"step_id": event.step_id, "name": event.name, "node": event.node, "ns": list(event.ns)}
        generic: JsonObject = {
            "kind": "step_ended",
            **members,
            "update": event.update,
            "fault": encode_own(event.fault),
        }
        self.emit(lambda: w.GenericEvent(generic={w.OWN: {name: value for name, value in generic.items() if value}}))

    def _artifact(self, event: ArtifactAdded) -> None:
        if event.origin == "caller":
            return
        if event.description or event.metadata or event.folder:
            self.lose(Feature.ARTIFACT)
        key = event.artifact_id or ""
        pieces = self._pieces.setdefault(key, [])
        if not event.append:
            pieces.clear()
        pieces.append(event)
        if len(pieces) > 1:
            self.lose(Feature.ARTIFACT_APPEND)
        if event.last:
            del self._pieces[key]
            self._show_artifact(pieces)

    def _show_artifact(self, pieces: list[ArtifactAdded]) -> None:
        first = pieces[0]
        name = first.name or _file_name(first.part) or first.artifact_id or "artifact"
        members = {"description": first.description, "folder": first.folder, "labels": first.metadata}
        parts = [piece.part for piece in pieces]
        joined = _join_parts(parts)
        sizes = [size for size in map(_size, parts) if size is not None]
        for number, part in enumerate(joined):
            if is_repetition(part.extra):
                continue
            wire = encode_part(part, self.view)
            # SDK 1.0.3: an Artifact is a MessagePart with a name.
            wire.name = name
            shown_sizes = sizes if len(parts) > len(joined) else None
            marks = {
                **members,
                "pieces": shown_sizes,
                **_in_store(part, wire),
                "continues": number > 0,
                "more": part is not joined[-1],
            }
            if not isinstance(part, FilePart):
                marks["content"] = part.kind
            elif part.name != name:
                marks["file_name"] = part.name
            marks = {name: value for name, value in marks.items() if value}
            self._add_part(mark(wire, kind="artifact", artifact_id=first.artifact_id, **marks) if marks else wire)

    _WRITES: ClassVar[Mapping[type, Any]] = {
        MessageStarted: _message_started,
        PartAdded: _part_added,
        PartDelta: _part_delta,
        PartEnded: _part_ended,
        MessageEnded: _message_ended,
        ToolStarted: _tool_started,
        ToolEnded: _tool_ended,
        StepStarted: _step_started,
        StepEnded: _step_ended,
        ArtifactAdded: _artifact,
    }


def _progress_text(parts: Sequence[Part]) -> str:
    """Return the parts of a progress message as one text."""
    texts = [json_text(part.data) if isinstance(part, DataPart) else getattr(part, "text", "") for part in parts]
    return "".join(texts)


def _size(part: Part) -> int | None:
    """Return the size of a part: the characters of a text, or the bytes of a file. Return None for any other part, and
    for a file without bytes."""
    if isinstance(part, TextPart):
        return len(part.text)
    return len(part.inline) if isinstance(part, FilePart) and part.inline is not None else None


def _in_store(part: Part, wire: w.MessagePart) -> JsonObject:
    """Return the hash and the size of a stored file that the wire part shows as a URL of the gateway. Return an empty
    object for any other part."""
    if not isinstance(part, FilePart) or part.blob is None or wire.content_url == part.url:
        return {}
    return {"blob": part.blob, "size": part.size}


def _file_name(part: Part) -> str | None:
    """Return the name of a file, or None for a part without a name."""
    return part.name if isinstance(part, FilePart) else None


def _join_parts(parts: list[Part]) -> list[Part]:
    """Return the pieces of an artifact as a list with one part, if all of them are texts or files with bytes. Return
    them unchanged otherwise."""
    first = parts[0]
    if len(parts) == 1:
        return parts
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    if len(texts) == len(parts):
        return [first.replace(text="".join(texts))]
    files = [part.inline for part in parts if isinstance(part, FilePart) and part.inline is not None]
    if len(files) == len(parts):
        return [first.replace(inline=b"".join(files))]
    return parts
