"""Deduplication of A2A artifacts: finds the new content when a server sends an artifact again, in pieces or as a
whole."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import cast

from babelgate.adapters.a2a.read.parts import as_extra
from babelgate.adapters.a2a.wire import replies as w
from babelgate.adapters.a2a.wire.task import CHUNK
from babelgate.canonical import AnnotationPart, DataPart, Event, FilePart, Part, ReasoningPart, RefusalPart, TextPart
from babelgate.canonical.event import ArtifactAdded, MessageEnded, PartAdded, PartDelta, PartEnded
from babelgate.canonical.value import JsonObject


@dataclass(frozen=True, slots=True)
class ArtifactPiece:
    """Form of an artifact update of the server: its `append`, `lastChunk` and other members. Callers of A2A receive the
    same."""

    last: bool
    append: bool | None = None
    """Value of the member `append` to show to callers; None if it follows from the events."""

    members: JsonObject = field(default_factory=dict[str, object])
    """Metadata of the update under the key `metadata`, and its unknown members under the key `own`."""

    def mark(self, events: list[Event], start: int, *, append: bool) -> bool:
        """Mark the events from index `start` on with the form of this update. Do not mark them if callers of A2A would
        see the same form without a mark.

        `append` is the value that callers would see without a mark. Return False if there are no events to mark.
        """
        indexes = [i for i in range(start, len(events)) if isinstance(events[i], PartAdded | PartDelta | ArtifactAdded)]
        if not indexes:
            return False
        *others, final = indexes
        shown_append = append if self.append is None else self.append
        if (
            others
            or self.members
            or shown_append != append
            or self.last != _is_last(events[final])
            or not _is_shown_at_once(events[final])
        ):
            for index in others:
                events[index] = _add_chunk_mark(events[index], {})
            chunk: JsonObject = {"append": shown_append, "lastChunk": self.last, **self.members}
            events[final] = _add_chunk_mark(events[final], chunk)
        return True


def _is_last(event: Event) -> bool:
    return isinstance(event, ArtifactAdded) and event.last


def _is_shown_at_once(event: Event) -> bool:
    """Return False for an event that adds a part without text: callers of A2A see such a part only together with the
    next event."""
    return not isinstance(event, PartAdded) or (
        isinstance(event.part, TextPart | RefusalPart) and bool(event.part.text)
    )


def _add_chunk_mark(event: Event, mark: JsonObject) -> Event:
    return event.replace(extra={**event.extra, CHUNK: mark})


@dataclass(slots=True)
class MergedPart:
    """A part of an artifact, or several adjacent texts with the same properties. They are compared as one text, because
    servers split texts at arbitrary places."""

    part: Part
    head: tuple[object, ...]
    """Properties of the part except its text. Two parts can be merged, or are the same part, only if these are
    equal."""
    texts: list[str] = field(default_factory=list[str])

    @classmethod
    def of(cls, part: Part) -> "MergedPart":
        """Return a merged part that contains one part."""
        match part:
            case TextPart() | RefusalPart():
                return cls(part, (part.kind, part.media_type, part.metadata, dict(part.extra)), [part.text])
            case ReasoningPart():
                # google-adk 2.13.0 sends the signature of a thought with its last piece, so it is not compared.
                return cls(part, (part.kind,), [part.text])
            case DataPart():
                return cls(part, (part.kind, part.data, part.metadata))
            case FilePart():
                digest = part.blob if part.inline is None else sha256(part.inline).hexdigest()
                return cls(part, (part.kind, part.name, part.url, digest))
            case _:
                return cls(part, (part.kind, part))

    @property
    def text(self) -> str:
        """All texts of the part, joined. Empty for a part without text."""
        if len(self.texts) > 1:
            self.texts = ["".join(self.texts)]
        return self.texts[0] if self.texts else ""

    @property
    def can_grow(self) -> bool:
        """True if the part is a text, a refusal or a thought, to which text can be appended."""
        return isinstance(self.part, TextPart | RefusalPart | ReasoningPart)

    def can_join(self, other: "MergedPart") -> bool:
        """Return True if the other part has the same properties, so that its text continues the text of this part."""
        return self.can_grow and self.head == other.head


def _merge_parts(parts: Sequence[Part]) -> list[MergedPart]:
    merged_parts: list[MergedPart] = []
    for merged in map(MergedPart.of, parts):
        if merged_parts and merged_parts[-1].can_join(merged):
            merged_parts[-1].texts += merged.texts
        else:
            merged_parts.append(merged)
    return [merged for merged in merged_parts if not merged.can_grow or merged.text]


def rest(earlier: Sequence[MergedPart], parts: Sequence[Part]) -> list[Part] | None:
    """Return those of `parts`, or the ends of their texts, that were not read `earlier`. Return None if the parts do
    not begin with the earlier ones.

    A server may also show less than before. Then its state is older, and nothing is new.
    """
    earlier = [merged for merged in earlier if not merged.can_grow or merged.text]
    now = _merge_parts(parts)
    for index, (before, after) in enumerate(zip(earlier, now, strict=False)):
        if before.head != after.head:
            return None
        if before.text == after.text:
            continue
        if index == len(earlier) - 1 and after.text.startswith(before.text):
            now[index] = MergedPart(after.part, after.head, [after.text[len(before.text) :]])
            return [_part(merged) for merged in now[index:]]
        if index == len(now) - 1 and before.text.startswith(after.text):
            return []
        return None
    return [_part(merged) for merged in now[len(earlier) :]]


def _part(merged: MergedPart) -> Part:
    return merged.part.replace(text=merged.text) if merged.can_grow else merged.part


@dataclass(slots=True)
class ArtifactTracker:
    """State of reading one artifact, or an answer in the messages of a status: the parts that were read so far, and the
    message or file that they became. Because of it, a repeated part is not read twice."""

    artifact_id: str
    """Id that the server has given to the artifact. Empty for an answer in the messages of the status."""
    file: bool
    """True if the artifact becomes a canonical artifact. False if it becomes a message with the agent's answer."""
    merged_parts: list[MergedPart] = field(default_factory=list[MergedPart])
    message_id: str | None = None
    """Id of the message to which parts are being added. None if the message has not begun or has ended."""
    open: bool = False
    """True if more text can be added to the last part of the message."""
    added: bool = False
    """True if an event of this run has added the canonical artifact, so that further parts are appended to it."""
    cut: bool = False
    """True if the last update was marked with the server's `lastChunk`. Then callers of A2A receive no other
    `lastChunk` at the end of the message."""

    cited: list[AnnotationPart] = field(default_factory=list[AnnotationPart])
    """Citations that were already added to the message."""

    @property
    def text(self) -> str:
        """Text of the artifact, without thoughts."""
        return "".join(merged.text for merged in self.merged_parts if isinstance(merged.part, TextPart | RefusalPart))

    def cite(self, citations: Sequence[AnnotationPart], events: list[Event]) -> bool:
        """Add the new ones of the citations to the open message. Return False if there are new citations, but no
        message is open."""
        new = [each for each in citations if each not in self.cited]
        if self.message_id is None:
            return not new
        if new:
            self._end_part(events)
        for each in new:
            events.append(PartAdded(message_id=self.message_id, part=each))
            self.cited.append(each)
        return True

    def recall(self, event: PartAdded | PartDelta | PartEnded | MessageEnded) -> None:
        """Restore the state from a recorded event of the message that the artifact became."""
        match event:
            case PartAdded():
                self.add(event.part)
                self.open = event.open
            case PartDelta():
                self.merged_parts[-1].texts.append(event.text)
            case PartEnded():
                self.open = False
            case MessageEnded():
                self.message_id = None

    def add(self, part: Part) -> None:
        """Store a part that was read, so that later repetitions of it are recognized."""
        if isinstance(part, AnnotationPart):
            self.cited.append(part)
            return
        merged = MergedPart.of(part)
        if self.merged_parts and self.merged_parts[-1].can_join(merged):
            self.merged_parts[-1].texts += merged.texts
        else:
            self.merged_parts.append(merged)

    def say(self, parts: Sequence[Part], events: list[Event], *, begun: bool) -> None:
        """Add parts to the open message, and append their events to `events`. Empty texts are skipped, except for the
        first part after the message has `begun`."""
        for part in parts:
            grows = isinstance(part, TextPart | RefusalPart | ReasoningPart)
            if grows and not part.text and not begun:
                continue
            begun = False
            if grows and self.open and self.merged_parts[-1].can_join(MergedPart.of(part)):
                events.append(PartDelta(message_id=self.message_id, text=part.text))
            else:
                self._end_part(events)
                events.append(PartAdded(message_id=self.message_id, part=part, open=grows))
                self.open = grows
            self.add(part)

    def _end_part(self, events: list[Event]) -> None:
        if self.open:
            self.open = False
            events.append(PartEnded(message_id=self.message_id))

    def close(self, events: list[Event]) -> None:
        """End the open message, if there is one."""
        if self.message_id is not None:
            self._end_part(events)
            events.append(MessageEnded(message_id=self.message_id, extra={CHUNK: {}} if self.cut else {}))
            self.message_id = None

    def give(
        self,
        artifact: w.Artifact,
        parts: Sequence[Part],
        events: list[Event],
        *,
        artifact_id: str,
        last: bool | None,
        fresh: bool,
    ) -> None:
        """Append the events for parts of an artifact that becomes a canonical artifact. `fresh` is True if the parts
        are the whole artifact.

        `last` is None if the server does not state it. Then a whole artifact is complete, and a piece is not.
        """
        last = fresh if last is None else last
        for index, part in enumerate(parts):
            event = ArtifactAdded(
                artifact_id=artifact_id,
                name=artifact.name or (part.name if isinstance(part, FilePart) else None),
                description=artifact.description,
                part=_with_name(part, artifact.name),
                # a2a.proto 1.0.1, TaskArtifactUpdateEvent.append: "to a previously sent artifact with the same ID".
                append=self.added and (not fresh or index > 0),
                last=last and index == len(parts) - 1,
                metadata=metadata_of(artifact),
                extra=as_extra(artifact, artifactId=self.artifact_id),
            )
            events.append(event)
            self.added = True
            self.add(part)


def _with_name(part: Part, name: str | None) -> Part:
    if isinstance(part, FilePart) and part.name is None and name:
        return part.replace(name=name)
    return part


def is_file(artifact: w.Artifact, parts: Sequence[Part]) -> bool:
    """Return True if an artifact contains a file, or has the name of a file. Any other artifact is an answer of the
    agent."""
    if kind_of(artifact) == "answer":
        return False
    if any(isinstance(part, FilePart) for part in parts):
        return True
    names = [artifact.name, *(part.filename for part in artifact.parts or ())]
    return any(name is not None and _is_file_name(name) for name in names)


def kind_of(artifact: w.Artifact) -> object:
    """Return the kind of an artifact (`answer`, `output`) that another gateway declares in its metadata, in the member
    `babelgate`. Return None if there is none."""
    members = (artifact.metadata or {}).get("babelgate")
    return cast("JsonObject", members).get("kind") if isinstance(members, dict) else None


def metadata_of(artifact: w.Artifact) -> JsonObject:
    """Return the metadata of an artifact without the member `babelgate`. Another gateway sends it to declare the
    artifact's kind (`kind_of`), for example `{"kind": "answer"}`, so it is not the agent's."""
    return {name: value for name, value in (artifact.metadata or {}).items() if name != "babelgate"}


def _is_file_name(name: str) -> bool:
    stem, dot, suffix = name.rpartition(".")
    return bool(stem and dot) and suffix.isalnum() and len(suffix) <= 8
