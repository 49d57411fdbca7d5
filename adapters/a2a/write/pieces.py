"""Messages and artifacts of an agent while their pieces arrive."""

from dataclasses import dataclass, field
from typing import Final, cast

import msgspec

from babelgate.adapters.a2a.wire.task import CHUNK, PROTOCOL, Artifact, shown_part
from babelgate.canonical import AnnotationPart, FilePart, Message, Part, Record, TextPart
from babelgate.canonical.event import ArtifactAdded, MessageEnded, MessageStarted, PartAdded, PartDelta, RunStarted
from babelgate.canonical.growing import GrowingParts
from babelgate.canonical.value import Extra, JsonObject

EMPTY: Final = TextPart(text="")
"""Part of an artifact or message without content: each must have a part (specification 1.0, 4.1.4 and 4.1.7)."""


class PieceSource(msgspec.Struct, frozen=True):
    """The run, and the message in it, that something comes from."""

    run_id: str | None = None
    message_id: str | None = None

    def is_void(self, record: Record, start: RunStarted) -> bool:
        """Return True if a restart of the run voids what comes from here."""
        return self.run_id == record.run_id and start.is_void(self.message_id)


@dataclass(slots=True)
class OpenArtifact:
    """An artifact while its pieces arrive."""

    artifact: Artifact
    """The artifact without its parts."""
    source: PieceSource
    is_void: bool = False
    """True if a restart has voided the artifact, and nothing has replaced it."""
    parts: GrowingParts = field(default_factory=GrowingParts)
    gathered: list[Part] = field(default_factory=list[Part])
    """Parts of a piece that is not complete."""

    def value(self) -> Artifact:
        """Return the artifact with all its parts."""
        return self.piece(*self.parts.join_all() or (EMPTY,))

    def piece(self, *parts: Part) -> Artifact:
        """Return the artifact with these parts only."""
        whole = self.artifact
        return Artifact(whole.artifact_id, parts, whole.name, whole.description, whole.metadata, whole.members)


@dataclass(slots=True)
class OpenMessage:
    """A message of the agent while it is open."""

    started: MessageStarted
    source: PieceSource
    parts: GrowingParts = field(default_factory=GrowingParts)
    artifact: OpenArtifact | None = None
    """Artifact of an answer, from its first piece on."""
    places: dict[int, int] = field(default_factory=dict[int, int])
    """Indexes of parts in the artifact, by index in the message."""
    gathered: list[tuple[int, Part]] = field(default_factory=list[tuple[int, Part]])
    """Parts of a piece that is not complete, each with its index in the message."""
    activity: int | None = None
    """Index of a thought or a call that is not complete."""
    citations: list[AnnotationPart] = field(default_factory=list[AnnotationPart])
    held: tuple[int, Part] | None = None
    """A complete part other than text, with its index. It is sent once the next event shows whether it is the last."""

    @property
    def is_answer(self) -> bool:
        """True if the message is shown as an artifact."""
        return self.started.phase == "answer" and self.started.role == "agent"

    def message(self) -> Message:
        """Return the message with all parts that A2A can show."""
        started = self.started
        shown_parts = [part for part in (shown_part(part)[0] for part in self.parts.join_all()) if part is not None]
        return Message(
            message_id=started.message_id,
            role=started.role,
            name=started.name,
            phase=started.phase,
            parts=tuple(shown_parts) or (EMPTY,),
            metadata=started.metadata,
            extra=started.extra,
        )

    def take_held(self) -> tuple[int, Part] | None:
        """Remove and return the held part with its index, or None if no part is held."""
        held, self.held = self.held, None
        return held

    def add_to_artifact(self, artifact: OpenArtifact, index: int, part: Part) -> None:
        """Add a part, or more of its text, to the artifact. `index` is its place in the message."""
        place = self.places.get(index)
        if place is None:
            self.places[index] = len(artifact.parts.begun)
            artifact.parts.append(part)
        elif isinstance(part, TextPart):
            artifact.parts.extend(place, (part.text,))

    def file_mark(self) -> JsonObject:
        """Return the metadata that mark an answer beginning with a file, which would look like an artifact."""
        first = next((part for part in (shown_part(part)[0] for part in self.parts.begun) if part is not None), None)
        is_foreign = bool(artifact_extra(self.started.extra))
        return {"babelgate": {"kind": "answer"}} if isinstance(first, FilePart) and not is_foreign else {}


def artifact_extra(extra: Extra) -> JsonObject:
    """Return the members of another A2A server's artifact that an event was read from; empty for other events."""
    members: JsonObject = extra.get(PROTOCOL) or {}
    return members if "artifactId" in members else {}


def is_plain_text(event: PartDelta, part: Part) -> bool:
    """Return True if the event only adds text to a part without metadata."""
    is_plain = type(part) is TextPart and part.media_type is None and not part.metadata
    return is_plain and not event.extra and bool(event.text)


def chunk_mark(event: PartAdded | PartDelta | MessageEnded | ArtifactAdded) -> JsonObject | None:
    """Return the mark of another server's piece that an event was read from; None for other events.

    The mark is empty for all but the last event of a piece.
    """
    mark = event.extra.get(CHUNK) if event.extra else None
    return cast("JsonObject", mark) if isinstance(mark, dict) else None
