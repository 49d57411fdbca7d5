"""Deduplication of A2A artifacts: what was told of one by another server, against what the server shows of it now."""

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
    """How an update of an artifact came."""

    last: bool
    append: bool | None = None
    """None = as it is told: what is new in an artifact that is sent again goes to the end of what was sent before."""

    beside: JsonObject = field(default_factory=dict[str, object])
    """The `metadata` of the update, and members of it that nobody here knows (`own`)."""

    def mark(self, events: list[Event], start: int, *, append: bool) -> bool:
        """Have what was told from `start` on shown as it came, unless it would be anyway; `append` = whether it would
        be appended, to what this run said. False if nothing was told."""
        told = [i for i in range(start, len(events)) if isinstance(events[i], PartAdded | PartDelta | ArtifactAdded)]
        if not told:
            return False
        *others, final = told
        shown = append if self.append is None else self.append
        if (
            others
            or self.beside
            or shown != append
            or self.last != _says_last(events[final])
            or not _is_shown(events[final])
        ):
            for index in others:
                events[index] = _add_chunk_mark(events[index], {})
            events[final] = _add_chunk_mark(events[final], {"append": shown, "lastChunk": self.last, **self.beside})
        return True


def _says_last(event: Event) -> bool:
    return isinstance(event, ArtifactAdded) and event.last


def _is_shown(event: Event) -> bool:
    """Whether it is shown at once: what is said and no text waits for what follows."""
    return not isinstance(event, PartAdded) or (
        isinstance(event.part, TextPart | RefusalPart) and bool(event.part.text)
    )


def _add_chunk_mark(event: Event, mark: JsonObject) -> Event:
    return event.replace(extra={**event.extra, CHUNK: mark})


@dataclass(slots=True)
class MergedPart:
    """A part, or texts side by side that differ in nothing else: where text is cut means nothing."""

    part: Part
    head: tuple[object, ...]
    texts: list[str] = field(default_factory=list[str])

    @classmethod
    def of(cls, part: Part) -> "MergedPart":
        match part:
            case TextPart() | RefusalPart():
                return cls(part, (part.kind, part.media_type, part.metadata, dict(part.extra)), [part.text])
            case ReasoningPart():
                # google-adk 2.13.0 says the signature of a thought with its last piece: it does not tell pieces apart.
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
        if len(self.texts) > 1:
            self.texts = ["".join(self.texts)]
        return self.texts[0] if self.texts else ""

    @property
    def can_grow(self) -> bool:
        return isinstance(self.part, TextPart | RefusalPart | ReasoningPart)

    def can_join(self, other: "MergedPart") -> bool:
        return self.can_grow and self.head == other.head


def _merge_parts(parts: Sequence[Part]) -> list[MergedPart]:
    merged_parts: list[MergedPart] = []
    for merged in map(MergedPart.of, parts):
        if merged_parts and merged_parts[-1].can_join(merged):
            merged_parts[-1].texts += merged.texts
        else:
            merged_parts.append(merged)
    return [merged for merged in merged_parts if not merged.can_grow or merged.text]


def rest(told: Sequence[MergedPart], parts: Sequence[Part]) -> list[Part] | None:
    """What of `parts` was not told yet; None if they are others than those that were told. A server may also show less
    than it said before: then it is behind, and there is nothing new."""
    told = [merged for merged in told if not merged.can_grow or merged.text]
    now = _merge_parts(parts)
    for index, (before, after) in enumerate(zip(told, now, strict=False)):
        if before.head != after.head:
            return None
        if before.text == after.text:
            continue
        if index == len(told) - 1 and after.text.startswith(before.text):
            now[index] = MergedPart(after.part, after.head, [after.text[len(before.text) :]])
            return [_part(merged) for merged in now[index:]]
        if index == len(now) - 1 and before.text.startswith(after.text):
            return []
        return None
    return [_part(merged) for merged in now[len(told) :]]


def _part(merged: MergedPart) -> Part:
    return merged.part.replace(text=merged.text) if merged.can_grow else merged.part


@dataclass(slots=True)
class ArtifactTracker:
    """Of one artifact."""

    artifact_id: str
    """The server's."""
    file: bool
    """It is an artifact here too; otherwise it is an answer."""
    merged_parts: list[MergedPart] = field(default_factory=list[MergedPart])
    message_id: str | None = None
    """Of the message that is open for it."""
    open: bool = False
    """Its last part is."""
    added: bool = False
    """This run has added the artifact, so that there is something to append to."""
    cut: bool = False
    """What was said last came in pieces, none of which is still to say that it is the last."""

    cited: list[AnnotationPart] = field(default_factory=list[AnnotationPart])

    @property
    def text(self) -> str:
        return "".join(merged.text for merged in self.merged_parts if isinstance(merged.part, TextPart | RefusalPart))

    def cite(self, citations: Sequence[AnnotationPart], events: list[Event]) -> bool:
        """Those that are new, in the open message; false if there is none."""
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
        """Of its message, which was told before."""
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
        if isinstance(part, AnnotationPart):
            self.cited.append(part)
            return
        merged = MergedPart.of(part)
        if self.merged_parts and self.merged_parts[-1].can_join(merged):
            self.merged_parts[-1].texts += merged.texts
        else:
            self.merged_parts.append(merged)

    def say(self, parts: Sequence[Part], events: list[Event], *, begun: bool) -> None:
        """Parts of the open message, which has `begun` with them. Pieces without text say nothing."""
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
        """Parts of an artifact; `fresh` = they are all of it. `last` = None where the server does not say: most say
        nothing of what they give whole."""
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
    """Text and data are the answer, unless they are the content of something with the name of a file."""
    if kind_of(artifact) == "answer":
        return False
    if any(isinstance(part, FilePart) for part in parts):
        return True
    names = [artifact.name, *(part.filename for part in artifact.parts or ())]
    return any(name is not None and _is_file_name(name) for name in names)


def kind_of(artifact: w.Artifact) -> object:
    """What a gateway like this one says that it is."""
    own = (artifact.metadata or {}).get("babelgate")
    return cast("JsonObject", own).get("kind") if isinstance(own, dict) else None


def metadata_of(artifact: w.Artifact) -> JsonObject:
    return {name: value for name, value in (artifact.metadata or {}).items() if name != "babelgate"}


def _is_file_name(name: str) -> bool:
    stem, dot, suffix = name.rpartition(".")
    return bool(stem and dot) and suffix.isalnum() and len(suffix) <= 8
