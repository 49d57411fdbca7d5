"""What an agent says, as the messages of ACP.

ACP knows one open message at a time, and its parts do not say whose they are (OpenAPI 0.2.0, MessagePartEvent). So the
message that speaks has the floor: a part of another one closes it. What belongs to no message (artifacts, tool
activity) joins the open one, or opens one with which the next message of the same speaker goes on.
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
    View,
    as_said,
    encode_part,
    has_part,
    is_said_before,
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
from babelgate.canonical.fold import extend_part
from babelgate.canonical.growing import GrowingText, GrowingTexts
from babelgate.canonical.thread import Loss
from babelgate.canonical.value import Extra, Json, JsonObject

_Key = tuple[str, int]
_LONG: Final = 256
"""Parts of plain text from which on they are made while they are sent. Chosen: as models they take 300 kB."""
_TOGETHER: Final = 64
"""Parts that are encoded at once. Chosen: what a client has not taken of them stays in memory."""
_TEXT: Final = {"content_type", "content"}
"""Members of a part of plain text."""


@dataclass(slots=True)
class _Texts:
    """Parts of plain text that follow each other. As models they would take twenty times as much."""

    content_type: str
    texts: GrowingTexts = field(default_factory=GrowingTexts)

    def __iter__(self) -> Iterator[w.MessagePart]:
        return (w.MessagePart(content_type=self.content_type, content=text) for text in self.texts)


class _LazyParts(LazyList):
    """Parts of a message as they are now."""

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
    """Return the JSON of a part of plain text, without its text."""
    return TextTemplate(lambda text: w.MessagePart(content_type=content_type, content=text))


@dataclass(slots=True)
class _Floor:
    """The open message of the wire."""

    owner: str | None
    """The canonical message that speaks; None = nobody yet."""
    run_id: str | None
    role: str
    created_at: str
    members: dict[str, Any] = field(default_factory=dict[str, Any])
    """What the agent's own ACP server says of the message."""
    parts: list[w.MessagePart | _Texts] = field(default_factory=list[w.MessagePart | _Texts])

    def add_texts(self, content_type: str, texts: Sequence[str]) -> None:
        last = self.parts[-1] if self.parts else None
        if not isinstance(last, _Texts) or last.content_type != content_type:
            last = _Texts(content_type)
            self.parts.append(last)
        last.texts.extend(texts)

    def message(self, completed_at: str | None = None) -> w.Message:
        parts = _LazyParts(self.parts)
        is_long = sum(len(part.texts) for part in self.parts if isinstance(part, _Texts)) > _LONG
        shown: list[w.MessagePart] = [] if is_long else list(parts)
        made = w.Message(role=self.role, parts=shown, created_at=self.created_at, completed_at=completed_at)
        more = {**self.members, "parts": parts} if is_long else self.members
        return made.model_copy(update=more) if more else made


class MessageEncoder:
    def __init__(self, view: View) -> None:
        self.view = view
        self.at = 0
        """Of the record that is being written, and so is the run."""
        self.run_id: str | None = None
        self.events: list[w.Event] | None = None
        """What the record is told as; None where nobody is told."""
        self.output: list[w.Message] = []
        """Complete messages."""
        self._origins: list[tuple[str | None, str | None]] = []
        """Of each of them, the run and the canonical message that said it."""
        self.losses: dict[Loss, None] = {}
        self.streamed_losses: dict[Loss, None] = {}
        """Losses of a run object: its event stream carries these features."""
        self._floor: _Floor | None = None
        self._speakers: dict[str, MessageStarted] = {}
        self._progress: dict[str, list[Part]] = {}
        self._open: dict[_Key, Part] = {}
        self._held: dict[_Key, GrowingText] = {}
        """Text of open parts that are shown whole."""
        self._calls: dict[str, tuple[str, Json]] = {}
        self._pieces: dict[str, list[ArtifactAdded]] = {}
        self._data: list[Json] = []
        """Of this activation: what need not be shown again as its structured output."""

    def so_far(self) -> list[w.Message]:
        """The complete messages, and what the open one holds by now."""
        if self._floor is None or not self._floor.parts:
            return list(self.output)
        return [*self.output, self._floor.message()]

    def tell(self, make: Callable[[], w.Event]) -> None:
        if self.events is not None:
            self.events.append(make())

    def lose(self, feature: Feature) -> None:
        carry = CARRIES[feature]
        if carry.is_lost():
            losses = self.losses if carry.is_lost(in_stream=True) else self.streamed_losses
            losses[Loss(feature=feature.value, how=carry.how)] = None

    def write(self, event: object) -> None:
        write = self._WRITES.get(type(event))
        if write is not None:
            write(self, event)

    def end(self, output: Json = None) -> None:
        """An activation ends, with its structured output if it has one."""
        for pieces in list(self._pieces.values()):
            self._show_artifact(pieces)
        self._pieces.clear()
        if output is not None and output not in self._data:
            self._say(mark(encode_part(DataPart(data=output), self.view), kind="output"))
        self._data.clear()
        self.close()

    def start_over(self, start: RunStarted) -> bool:
        """Take back what is void; whether any of it had been shown."""
        self.close()
        stands = [run_id != self.run_id or not start.is_void(owner) for run_id, owner in self._origins]
        self.output[:] = [message for message, each in zip(self.output, stands, strict=True) if each]
        self._origins = [origin for origin, each in zip(self._origins, stands, strict=True) if each]
        if start.is_void(None):
            self._pieces.clear()
            self._data.clear()
        return not all(stands)

    # Messages

    def _message_started(self, event: MessageStarted) -> None:
        message_id = event.message_id or ""
        if is_said_before(event.extra):
            return
        self._speakers[message_id] = event
        if event.metadata:
            self.lose(Feature.METADATA)
        if event.phase == "progress":
            self._progress[message_id] = []
            return
        self._take_floor(message_id)

    def _take_floor(self, message_id: str) -> None:
        """Make `message_id` the one whose parts come next."""
        floor = self._floor
        if floor is not None and floor.owner == message_id:
            return
        started = self._speakers.get(message_id)
        role = encode_role("agent", started.name if started else None, self.view.agent)
        members = message_members(started.extra, metadata=started.metadata) if started else {}
        if floor is not None and floor.owner is None and floor.role == role and members in ({}, floor.members):
            floor.owner = message_id
            return
        self.close()
        self._start(_Floor(message_id, self.run_id, role, encode_time(self.at), members))

    def begin(self, name: str | None, extra: Extra) -> None:
        """The agent's own ACP server began a message, of which the first part belongs to none here."""
        self.close()
        role = encode_role("agent", name, self.view.agent)
        self._start(_Floor(None, self.run_id, role, encode_time(self.at), message_members(extra)))

    def _start(self, floor: _Floor) -> None:
        self._floor = floor
        self.tell(lambda: w.MessageEvent(type="message.created", message=floor.message()))

    def _say(self, part: w.MessagePart) -> None:
        if self._floor is None:
            role = encode_role("agent", None, self.view.agent)
            self._start(_Floor(None, self.run_id, role, encode_time(self.at)))
        assert self._floor is not None
        if type(part) is w.MessagePart and part.model_fields_set == _TEXT and part.content is not None:
            self._floor.add_texts(part.content_type or "", (part.content,))
        else:
            self._floor.parts.append(part)
        self.tell(lambda: w.PartEvent(part=part))

    def close(self, extra: Extra | None = None, usage: JsonObject | None = None) -> None:
        """`extra` = of the event that ends the message, and what its model counted."""
        if self._floor is None:
            return
        about = {**self._floor.members.get(w.OWN, {}), "usage": usage or {}}
        self._floor.members |= message_members(extra or {}, **about)
        message = self._floor.message(encode_time(self.at))
        self._origins.append((self._floor.run_id, self._floor.owner))
        self._floor = None
        self.output.append(message)
        self.tell(lambda: w.MessageEvent(type="message.completed", message=message))

    def _part_added(self, event: PartAdded) -> None:
        message_id = event.message_id or ""
        said = self._progress.get(message_id)
        if said is not None:
            said.append(event.part)
            return
        part = event.part
        if is_said_before(part.extra):
            return
        self._take_floor(message_id)
        key = (message_id, event.index or 0)
        if event.open:
            self._open[key] = part
            empty = isinstance(part, TextPart | RefusalPart) and not part.text and not has_part(event.extra)
            if empty or isinstance(part, ReasoningPart | ToolCallPart):
                self._held[key] = GrowingText()
                return
        self._show(part, event.extra)

    def _part_delta(self, event: PartDelta) -> None:
        message_id = event.message_id or ""
        said = self._progress.get(message_id)
        if said is not None:
            if said:
                said[-1] = extend_part(said[-1], event.text)
            return
        key = (message_id, event.index or 0)
        part = self._open.get(key)
        if part is None or not (event.text or has_part(event.extra)):
            return
        held = self._held.get(key)
        if isinstance(part, ReasoningPart | ToolCallPart):
            if held is not None:
                held.append(event.text)
            return
        self._held.pop(key, None)
        self._take_floor(message_id)
        media_type = part.media_type or "text/plain"
        said = as_said(w.MessagePart(content_type=media_type, content=event.text), event.extra)
        self._say(mark(said, kind="refusal") if isinstance(part, RefusalPart) else said)

    def add_texts(self, event: PartDelta, texts: Sequence[str]) -> str | None:
        """As `EventWriter.add_texts`."""
        message_id = event.message_id or ""
        key = (message_id, event.index or 0)
        part, floor = self._open.get(key), self._floor
        if floor is None or floor.owner != message_id or message_id in self._progress:
            return None
        if not isinstance(part, TextPart | RefusalPart):
            return None
        self._held.pop(key, None)
        media_type = part.media_type or "text/plain"
        floor.add_texts(media_type, texts)
        return media_type

    def _part_ended(self, event: PartEnded) -> None:
        message_id = event.message_id or ""
        key = (message_id, event.index or 0)
        part = self._open.pop(key, None)
        held = self._held.pop(key, None)
        if part is None or held is None:
            return
        self._take_floor(message_id)
        self._show(extend_part(part, held.join()))

    def _show(self, part: Part, extra: Extra | None = None) -> None:
        """`extra` = of the event that brings it."""
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
        made = encode_part(part, self.view)
        if isinstance(part, ToolResultPart) and isinstance(made.metadata, w.Trajectory):
            name, _ = self._calls.get(part.call_id, (None, None))
            made.metadata.tool_name = name
        if isinstance(part, FilePart) and (part.name is not None or made.content_url != part.url):
            self.lose(Feature.FILE_BYTES if part.url is None else Feature.FILE_URL)
            made = mark(made, kind="file", **_in_store(part, made))
        self._say(as_said(made, extra or {}))

    def _message_ended(self, event: MessageEnded) -> None:
        message_id = event.message_id or ""
        self._speakers.pop(message_id, None)
        progress = self._progress.pop(message_id, None)
        if progress is not None:
            self.lose(Feature.PROGRESS)
            self._say(mark(trajectory(_progress_text(progress)), kind="progress"))
            return
        if self._floor is not None and self._floor.owner == message_id:
            self.close(event.extra, event.usage)

    # What belongs to no message

    def _tool_started(self, event: ToolStarted) -> None:
        self._calls[event.call_id or ""] = (event.name, event.input)
        self._say_own(event.extra)

    def _say_own(self, extra: Extra) -> bool:
        """Show what the agent's own ACP server said, as it said it; whether it is known."""
        own = part_of(extra)
        if own is not None:
            self._say(own)
        return has_part(extra)

    def _tool_ended(self, event: ToolEnded) -> None:
        """A trajectory is "a tool execution with tool name, input, and output": it is told when it has all of them
        (components.schemas.TrajectoryMetadata)."""
        _, given = self._calls.pop(event.call_id or "", (event.name, None))
        if self._say_own(event.extra):
            return
        self.lose(Feature.TOOL_ACTIVITY)
        output = None if event.output is None else wrap_value(event.output)
        if event.fault is not None:
            output = {"error": event.fault.message}
        told = trajectory(tool=event.name, input=None if given is None else wrap_value(given), output=output)
        fault = encode_own(event.fault)
        self._say(mark(told, kind="tool", call_id=event.call_id, fault=fault))

    def _step_started(self, event: StepStarted) -> None:
        about = {"step_id": event.step_id, "node": event.node, "ns": list(event.ns), "input": event.input}
        self._say(mark(trajectory(event.name), kind="step", **about))

    def _step_ended(self, event: StepEnded) -> None:
        """A run has no place for it."""
        self.lose(Feature.STEP)
        about: JsonObject = {"step_id": event.step_id, "name": event.name, "node": event.node, "ns": list(event.ns)}
        told: JsonObject = {"kind": "step_ended", **about, "update": event.update, "fault": encode_own(event.fault)}
        self.tell(lambda: w.GenericEvent(generic={w.OWN: {name: value for name, value in told.items() if value}}))

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
        about = {"description": first.description, "folder": first.folder, "labels": first.metadata}
        parts = [piece.part for piece in pieces]
        joined = _join_parts(parts)
        sizes = [size for size in map(_size, parts) if size is not None]
        for number, part in enumerate(joined):
            if is_said_before(part.extra):
                continue
            made = encode_part(part, self.view)
            # SDK 1.0.3: an Artifact is a MessagePart with a name.
            made.name = name
            cut = sizes if len(parts) > len(joined) else None
            told = {
                **about,
                "pieces": cut,
                **_in_store(part, made),
                "continues": number > 0,
                "more": part is not joined[-1],
            }
            if not isinstance(part, FilePart):
                told["content"] = part.kind
            elif part.name != name:
                told["file_name"] = part.name
            told = {name: value for name, value in told.items() if value}
            self._say(mark(made, kind="artifact", artifact_id=first.artifact_id, **told) if told else made)

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


def _progress_text(parts: list[Part]) -> str:
    """What a progress message says, as text."""
    told = [json_text(part.data) if isinstance(part, DataPart) else getattr(part, "text", "") for part in parts]
    return "".join(told)


def _size(part: Part) -> int | None:
    """Characters of a text, bytes of a file."""
    if isinstance(part, TextPart):
        return len(part.text)
    return len(part.inline) if isinstance(part, FilePart) and part.inline is not None else None


def _in_store(part: Part, made: w.MessagePart) -> JsonObject:
    """Of a file of the gateway's that is shown by a URL."""
    if not isinstance(part, FilePart) or part.blob is None or made.content_url == part.url:
        return {}
    return {"blob": part.blob, "size": part.size}


def _file_name(part: Part) -> str | None:
    return part.name if isinstance(part, FilePart) else None


def _join_parts(parts: list[Part]) -> list[Part]:
    """The pieces of an artifact as one part, if they are all text or all bytes at hand."""
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
