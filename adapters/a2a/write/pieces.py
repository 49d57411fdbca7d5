"""State of an agent's messages and artifacts while their pieces arrive."""

from dataclasses import dataclass, field
from typing import Final, cast

import msgspec

from babelgate.adapters.a2a.wire.task import CHUNK, PROTOCOL, Artifact, shown_part
from babelgate.canonical import AnnotationPart, FilePart, Message, Part, Record, TextPart
from babelgate.canonical.event import ArtifactAdded, MessageEnded, MessageStarted, PartAdded, PartDelta, RunStarted
from babelgate.canonical.growing import GrowingParts
from babelgate.canonical.value import Extra, JsonObject

EMPTY: Final = TextPart(text="")
"""Part of an artifact or message that has no content: A2A requires at least one part (specification 1.0, 4.1.4 and
4.1.7)."""


class PieceSource(msgspec.Struct, frozen=True):
    """The run and the message from which a piece of a task was written. Its fields are None if the piece belongs to no
    run or no message."""

    run_id: str | None = None
    message_id: str | None = None

    def is_void(self, record: Record, start: RunStarted) -> bool:
        """Return True if a restart of a run voids everything that was written from this source. `record` is that of the
        event `start`."""
        return self.run_id == record.run_id and start.is_void(self.message_id)


@dataclass(slots=True)
class OpenArtifact:
    """An artifact of a task, with the parts that have arrived so far."""

    artifact: Artifact
    """Id, name and metadata of the artifact. Its `parts` are empty: they are in the field `parts` below."""
    source: PieceSource
    is_void: bool = False
    """True if a restart has emptied the artifact, so that a new answer may take its id."""
    parts: GrowingParts = field(default_factory=GrowingParts)
    gathered: list[Part] = field(default_factory=list[Part])
    """Parts of another server's piece that has not arrived completely."""

    def value(self) -> Artifact:
        """Return the artifact with all its parts so far."""
        return self.piece(*self.parts.join_all() or (EMPTY,))

    def piece(self, *parts: Part) -> Artifact:
        """Return a piece of the artifact, which has only these parts."""
        whole = self.artifact
        return Artifact(whole.artifact_id, parts, whole.name, whole.description, whole.metadata, whole.members)


@dataclass(slots=True)
class OpenMessage:
    """A message of the agent that has started and not ended, with its parts so far."""

    started: MessageStarted
    source: PieceSource
    parts: GrowingParts = field(default_factory=GrowingParts)
    artifact: OpenArtifact | None = None
    """Artifact in which the message is shown, if it is an answer. None before its first piece."""
    places: dict[int, int] = field(default_factory=dict[int, int])
    """Indexes of the parts in the artifact, by their indexes in the message."""
    gathered: list[tuple[int, Part]] = field(default_factory=list[tuple[int, Part]])
    """Parts of another server's piece that has not arrived completely, each with its index in the message."""
    activity: int | None = None
    """Index of the thought or tool call to which text is being added. It is shown when it is complete. None if there is
    none."""
    citations: list[AnnotationPart] = field(default_factory=list[AnnotationPart])
    held: tuple[int, Part] | None = None
    """Complete data or file part with its index, to be shown after the next event. Only that event shows whether the
    part is the last one, which belongs into the message's last update."""

    @property
    def is_answer(self) -> bool:
        """True if the message is an answer of the agent, which A2A shows as an artifact."""
        return self.started.phase == "answer" and self.started.role == "agent"

    def message(self) -> Message:
        """Return the message so far, with the parts for which A2A has a form."""
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
        """Add a part of the message to its artifact. If the artifact already has the part with this `index` in the
        message, add the text to it."""
        place = self.places.get(index)
        if place is None:
            self.places[index] = len(artifact.parts.begun)
            artifact.parts.append(part)
        elif isinstance(part, TextPart):
            artifact.parts.extend(place, (part.text,))

    def file_mark(self) -> JsonObject:
        """Return the metadata that mark the artifact of an answer which begins with a file, so that other gateways do
        not read it as a canonical artifact. Return an empty object for other answers."""
        first = next((part for part in (shown_part(part)[0] for part in self.parts.begun) if part is not None), None)
        is_foreign = bool(artifact_extra(self.started.extra))
        return {"babelgate": {"kind": "answer"}} if isinstance(first, FilePart) and not is_foreign else {}


def artifact_extra(extra: Extra) -> JsonObject:
    """Return the members of another A2A server's artifact in the `extra` of an event that was read from the artifact.
    Return an empty object for other events."""
    members: JsonObject = extra.get(PROTOCOL) or {}
    return members if "artifactId" in members else {}


def is_plain_text(event: PartDelta, part: Part) -> bool:
    """Return True if the event only adds text, and `part` is a text without media type and metadata."""
    is_plain = type(part) is TextPart and part.media_type is None and not part.metadata
    return is_plain and not event.extra and bool(event.text)


def chunk_mark(event: PartAdded | PartDelta | MessageEnded | ArtifactAdded) -> JsonObject | None:
    """Return the mark (`CHUNK`) of an event that was read from a piece of another server's artifact. Return None for
    other events.

    The mark is an empty object for all but the last event of a piece.
    """
    mark = event.extra.get(CHUNK) if event.extra else None
    return cast("JsonObject", mark) if isinstance(mark, dict) else None
