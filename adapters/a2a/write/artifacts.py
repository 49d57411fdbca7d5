"""Writer of a task's artifacts: answers in pieces, files, and the structured output."""

from collections.abc import Sequence

import msgspec

from babelgate.adapters.a2a.wire.task import Artifact, ArtifactUpdate, Update, shown_part
from babelgate.adapters.a2a.write import activity
from babelgate.adapters.a2a.write.pieces import (
    EMPTY,
    OpenArtifact,
    OpenMessage,
    PieceSource,
    artifact_extra,
    chunk_mark,
    is_plain_text,
)
from babelgate.adapters.a2a.write.summary import TaskSummary
from babelgate.canonical import DataPart, Part, Record, TextPart
from babelgate.canonical.event import ArtifactAdded, MessageEnded, PartAdded, PartDelta, RunEnded, RunStarted
from babelgate.canonical.growing import GrowingParts
from babelgate.canonical.value import Json, JsonObject


class ArtifactWriter:
    """State of all artifacts of one task. It returns the updates of a stream that change them."""

    def __init__(self, summary: TaskSummary, *, in_pieces: bool) -> None:
        self.in_pieces = in_pieces
        """True if an answer is shown in pieces while it grows. False if it is shown in one update at its end."""
        self._summary = summary
        self._artifacts: dict[str, OpenArtifact] = {}
        self._files: dict[str, OpenArtifact] = {}
        """Artifacts that show canonical artifacts, and not answers, by canonical id."""
        self._answer_count = 0
        self._output_count = 0
        self._data: list[Json] = []
        """Values of the data parts in answers of the current run. A structured output that equals one of them is not
        shown again."""

    def __len__(self) -> int:
        return len(self._artifacts)

    @property
    def values(self) -> tuple[Artifact, ...]:
        """All artifacts of the task, with all their parts so far."""
        return tuple(artifact.value() for artifact in self._artifacts.values())

    # Runs

    def begin_run(self) -> None:
        """Begin a new run: forget the data parts of the previous one."""
        self._data.clear()

    def void(self, record: Record, start: RunStarted) -> list[OpenArtifact]:
        """Return the artifacts whose content a restart of the run voids, for `write_void`."""
        if start.is_void(None):
            self._data.clear()
        return [each for each in self._artifacts.values() if not each.is_void and each.source.is_void(record, start)]

    def write_void(self, artifacts: Sequence[OpenArtifact]) -> list[Update]:
        """Empty voided artifacts, and return the updates that do so for callers. New answers get the same ids.

        An artifact cannot be removed, only replaced: by an update without `append` (specification 1.0, 4.2.2).
        """
        updates: list[Update] = []
        for artifact in artifacts:
            artifact.parts, artifact.is_void = GrowingParts((EMPTY,)), True
            updates.append(self._update(artifact.value(), append=False, last=True))
        self._answer_count = 0
        return updates

    def write_output(self, event: RunEnded, record: Record) -> Sequence[Update]:
        """Return the update for the structured output of a run, which A2A can only show as an artifact with a data
        part. Return no update if there is none, or if an answer has already shown it."""
        if event.output is None or event.output in self._data:
            return ()
        self._output_count += 1
        artifact_id = f"output-{self._output_count}"
        artifact = Artifact(artifact_id=artifact_id, name="output", metadata={"babelgate": {"kind": "output"}})
        opened = self._artifacts[artifact_id] = OpenArtifact(artifact, PieceSource(record.run_id))
        opened.parts.append(DataPart(data=event.output))
        return (self._update(opened.value(), append=False, last=True),)

    # Answers

    def write_part(self, message: OpenMessage, index: int, event: PartAdded) -> Sequence[Update]:
        """Return the updates for a part that was added to a message. Return none if the message is no answer, or if A2A
        has no form for the part. `index` is the place of the part in the message."""
        part = self._summary.show(event.part)
        if part is None or not message.is_answer:
            return ()
        before = self._write_held(message)
        mark = chunk_mark(event)
        if isinstance(part, DataPart):
            self._data.append(part.data)
        if mark is not None:
            return (*before, *self._write_chunk(message, index, part, mark))
        if isinstance(part, TextPart):
            # The text of an open part may come in deltas only: an empty piece would be useless.
            return (*before, *self._write_piece(message, index, part)) if part.text else before
        message.held = (index, part)
        return before

    def write_delta(self, message: OpenMessage, index: int, event: PartDelta) -> Sequence[Update]:
        """Return the updates for text that was added to the part `index` of an answer."""
        part = shown_part(message.parts.begun[index])[0]
        assert isinstance(part, TextPart)
        if part.media_type is None and not part.metadata:
            piece = TextPart(text=event.text)
        else:
            piece = part.replace(text=event.text)
        mark = chunk_mark(event)
        before = self._write_held(message)
        if mark is not None:
            return (*before, *self._write_chunk(message, index, piece, mark))
        return (*before, *self._write_piece(message, index, piece))

    def add_texts(self, message: OpenMessage, event: PartDelta, texts: Sequence[str]) -> Artifact | None:
        """Add texts to the part of an answer that the first event continues. Return the answer's artifact without
        parts, from which the caller builds the updates.

        Return None, and change nothing, if this is not possible. Then each event must be written separately.
        """
        artifact = message.artifact
        if artifact is None or message.held is not None or not self.in_pieces:
            return None
        index = len(message.parts.begun) - 1 if event.index is None else event.index
        place = message.places.get(index)
        if place is None or not is_plain_text(event, message.parts.begun[index]):
            return None
        message.parts.extend(index, texts)
        artifact.parts.extend(place, texts)
        return artifact.artifact

    def write_grown(self, artifact: Artifact, text: str) -> Update:
        """Return the update that appends plain text to an artifact."""
        return self._update(msgspec.structs.replace(artifact, parts=(TextPart(text=text),)), append=True, last=False)

    def write_end(self, message: OpenMessage, event: MessageEnded) -> Sequence[Update]:
        """Return the last update of an answer. Return none if there is nothing to show, or if another server's piece
        was already the last.

        It has `lastChunk`, because some clients show a streamed artifact only then. After other pieces it contains the
        whole artifact (`append` false: specification 1.0, 4.2.2), because google-adk 2.13.0 keeps only the last piece.
        """
        if chunk_mark(event) is not None and message.artifact is not None and message.held is None:
            return ()
        cannot_show = any(shown_part(part)[0] is None for part in message.parts.begun)
        if message.artifact is None and message.held is None and cannot_show:
            return ()
        artifact, append = self._open(message)
        _cite(message, artifact)
        held = message.take_held()
        if held is not None:
            message.add_to_artifact(artifact, *held)
        whole = artifact.value() if append or held is not None else artifact.piece(EMPTY)
        return (self._update(whole, append=False, last=True),)

    def _write_held(self, message: OpenMessage) -> Sequence[Update]:
        held = message.take_held()
        return () if held is None else self._write_piece(message, *held)

    def _write_piece(self, message: OpenMessage, index: int, part: Part) -> Sequence[Update]:
        artifact, append = self._open(message)
        message.add_to_artifact(artifact, index, part)
        return (self._update(artifact.piece(part), append=append, last=False),) if self.in_pieces else ()

    def _write_chunk(self, message: OpenMessage, index: int, part: Part, mark: JsonObject) -> Sequence[Update]:
        """Collect a part that was read from a piece of another server's artifact. Return the update for the piece once
        all its parts have arrived: only the last part has a `mark` with members. Return no update before."""
        message.gathered.append((index, part))
        if not mark:
            return ()
        artifact, _ = self._open(message)
        gathered, message.gathered = message.gathered, []
        for part_index, gathered_part in gathered:
            message.add_to_artifact(artifact, part_index, gathered_part)
        return (self._marked_update(artifact.piece(*(part for _, part in gathered)), mark),)

    def _open(self, message: OpenMessage) -> tuple[OpenArtifact, bool]:
        """Return the artifact that shows an answer, and True if it already existed. Create it for the first piece
        (specification 1.0, 3.7)."""
        if message.artifact is not None:
            return message.artifact, True
        # An answer gets its number with its first piece, so that a message without one leaves no gap.
        members = dict(artifact_extra(message.started.extra))
        artifact_id = self._answer_id(members.pop("artifactId", None))
        artifact = Artifact(
            artifact_id=artifact_id,
            name=members.pop("name", None),
            description=members.pop("description", None),
            metadata={**message.started.metadata, **message.file_mark()},
            members=members,
        )
        message.artifact = self._artifacts[artifact_id] = OpenArtifact(artifact, message.source)
        return message.artifact, False

    def _answer_id(self, foreign_id: str | None) -> str:
        """Return the artifact id for an answer. It is `foreign_id`, the id on another server, or `answer-<number>` if
        there is no such id or another artifact of the task has it."""
        if foreign_id and self._is_free(foreign_id):
            return foreign_id
        self._answer_count += 1
        while not self._is_free(f"answer-{self._answer_count}"):
            self._answer_count += 1
        return f"answer-{self._answer_count}"

    def _is_free(self, artifact_id: str) -> bool:
        artifact = self._artifacts.get(artifact_id)
        return artifact is None or artifact.is_void

    # Files

    def write_file(self, event: ArtifactAdded, record: Record) -> Sequence[Update]:
        """Return the updates for a part of a canonical artifact."""
        # Callers of A2A upload files in messages: an upload is no output of the task.
        if event.origin == "caller":
            return ()
        part = self._summary.show(event.part) or EMPTY
        artifact_id = event.artifact_id or ""
        opened = self._files.get(artifact_id)
        append = event.append and opened is not None
        if opened is None or not append:
            members = dict(artifact_extra(event.extra))
            foreign_id = members.pop("artifactId", None)
            if opened is not None:
                shown_id = opened.artifact.artifact_id
            else:
                shown_id = foreign_id if foreign_id and foreign_id not in self._artifacts else artifact_id
            artifact = Artifact(
                artifact_id=shown_id,
                name=event.name,
                description=event.description,
                metadata=event.metadata,
                members=members,
            )
            opened = self._artifacts[shown_id] = self._files[artifact_id] = OpenArtifact(
                artifact, PieceSource(record.run_id)
            )
        mark = chunk_mark(event)
        if mark is None:
            opened.parts.append(part)
            return (self._update(opened.piece(part), append=append, last=event.last),)
        opened.gathered.append(part)
        if not mark:
            return ()
        gathered, opened.gathered = opened.gathered, []
        for each in gathered:
            opened.parts.append(each)
        return (self._marked_update(opened.piece(*gathered), mark),)

    # Updates

    def _marked_update(self, artifact: Artifact, mark: JsonObject) -> ArtifactUpdate:
        update = self._update(artifact, append=mark.get("append") is True, last=mark.get("lastChunk") is True)
        return msgspec.structs.replace(update, metadata=mark.get("metadata") or {}, members=mark.get("own") or {})

    def _update(self, artifact: Artifact, *, append: bool, last: bool) -> ArtifactUpdate:
        return ArtifactUpdate(
            task_id=self._summary.task_id,
            context_id=self._summary.context_id,
            artifact=artifact,
            append=append,
            last=last,
        )


def _cite(message: OpenMessage, opened: OpenArtifact) -> None:
    """Add the citations of an answer to the metadata of its artifact, unless they already contain citations from
    another server."""
    artifact = opened.artifact
    if not message.citations or activity.is_cited(artifact.metadata):
        return
    extensions = [*(artifact.members.get("extensions") or ()), activity.CITATION]
    opened.artifact = msgspec.structs.replace(
        artifact,
        metadata={**artifact.metadata, **activity.encode_citations(message.citations)},
        members={**artifact.members, "extensions": extensions},
    )
