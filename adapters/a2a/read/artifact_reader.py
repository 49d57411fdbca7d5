"""Conversion of a task's artifacts to answers and files of the run. Each piece is read once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from babelgate.adapters.a2a.codec.marks import decode_artifact
from babelgate.adapters.a2a.frameworks.framework import DecodedContent
from babelgate.adapters.a2a.read.activity import Activity
from babelgate.adapters.a2a.read.artifacts import ArtifactPiece, ArtifactTracker, is_file, kind_of, metadata_of, rest
from babelgate.adapters.a2a.read.parts import a2a_members, as_extra, has_content
from babelgate.adapters.a2a.read.questions import QuestionTracker
from babelgate.adapters.a2a.read.run_state import RunState
from babelgate.adapters.a2a.read.speech import SAID_AGAIN, Speech
from babelgate.adapters.a2a.read.usage import UsageCounter
from babelgate.adapters.a2a.wire import replies as w
from babelgate.adapters.a2a.wire.task import derived_id
from babelgate.canonical import AnnotationPart, Part, ReasoningPart
from babelgate.canonical.event import ArtifactAdded, MessageStarted
from babelgate.canonical.value import Json

_CITED_LATE: Final = "a citation that arrived after the end of its artifact"


@dataclass(frozen=True, slots=True)
class _Delivery:
    """Circumstances in which parts of an artifact arrived: how they relate to the parts that were read before, and to
    those to come."""

    append: bool
    """True if the parts continue the artifact. False if they are the whole artifact, of which a part may have been read
    before."""
    last: bool | None
    """True if no further part of the artifact follows; None if the server does not state it."""
    piece: ArtifactPiece | None
    """Form of the update that contained the parts, to show it unchanged to callers of A2A. None if the parts came in a
    whole task, or must not be shown in pieces."""
    citations: Sequence[AnnotationPart]
    """Citations of the artifact's text."""


class ArtifactReader:
    """Reader of all artifacts of one run. It adds their events to the run."""

    def __init__(
        self, run: RunState, speech: Speech, questions: QuestionTracker, activity: Activity, usage: UsageCounter
    ) -> None:
        self.task_id: str | None = None
        self.output: Json = None
        """Structured output of the run. None until an artifact declares it."""
        self.trackers: dict[str, ArtifactTracker] = {}
        """State of each artifact that was read (`ArtifactTracker`), by artifact id."""
        self._run = run
        self._speech = speech
        self._questions = questions
        self._activity = activity
        self._usage = usage

    @property
    def texts(self) -> set[str]:
        """Texts of the artifacts that were read, one for each artifact."""
        return {tracker.text for tracker in self.trackers.values()}

    def recall_message(self, event: MessageStarted, *, is_own: bool) -> ArtifactTracker | None:
        """Return the tracker of the artifact from which a recorded message was read. Return None for any other message.
        `is_own` is True for a message of this run: more text can be added only to such a message."""
        artifact_id = a2a_members(event.extra).get("artifactId")
        if artifact_id is None:
            return None
        tracker = self.trackers.setdefault(artifact_id, ArtifactTracker(artifact_id, file=False))
        tracker.message_id, tracker.open = (event.message_id if is_own else None), False
        return tracker

    def recall(self, event: ArtifactAdded, *, is_own: bool) -> None:
        """Restore an artifact from a recorded event. `is_own` is True if the event belongs to this run, and not to an
        earlier one."""
        artifact_id = a2a_members(event.extra).get("artifactId")
        if artifact_id is None:
            return
        tracker = self.trackers.setdefault(artifact_id, ArtifactTracker(artifact_id, file=True))
        if not event.append:
            tracker.merged_parts.clear()
        tracker.added = tracker.added or is_own
        tracker.add(event.part)

    def decode(self, artifact: w.Artifact) -> DecodedContent:
        """Return the content of an artifact, sorted by kind."""
        artifact_id = artifact.artifactId or artifact.name or ""
        decoded = decode_artifact(self._run.read_parts(artifact), artifact_id, artifact.metadata, self.task_id)
        if decoded.output is not None:
            self.output = decoded.output
        return decoded

    def read(
        self,
        artifact: w.Artifact,
        *,
        append: bool,
        last: bool | None,
        piece: ArtifactPiece | None = None,
        citations: Sequence[AnnotationPart] = (),
    ) -> None:
        """Add the events for the new content of an artifact.

        - `append` is True if the parts continue the artifact. Otherwise they are the whole artifact, and parts that
          were read before are skipped.
        - `last` is True if this is the final piece, and None if the server does not say.
        - `piece` is the form of the update that contains the artifact, or None if a task contains it.
        - `citations` are citations of the artifact that arrived before it.
        """
        decoded = self.decode(artifact)
        decoded.citations += citations
        # Another gateway repeats the states of its artifacts elsewhere.
        if kind_of(artifact) is None:
            self._activity.add_states(decoded.states, artifact.artifactId or artifact.name or "", is_shown=False)
        self._usage.count(artifact.metadata, artifact.artifactId)
        # Thoughts come before calls, and calls before text about them.
        is_thought = bool(decoded.parts) and isinstance(decoded.parts[0], ReasoningPart)
        if not is_thought:
            self._activity.use(decoded.tools)
        self._read_parts(artifact, decoded, _Delivery(append, last, piece, decoded.citations))
        if is_thought:
            self._activity.use(decoded.tools)

    def _read_parts(self, artifact: w.Artifact, decoded: DecodedContent, delivery: _Delivery) -> None:
        # Another gateway repeats the output in the task's metadata.
        if kind_of(artifact) == "output":
            return
        # An artifact must have a part (specification 1.0, 4.1.7), even if it has only calls to show.
        if not decoded.parts or self._questions.hold(artifact.name, decoded.parts):
            return
        # Callers of A2A do not see thoughts in artifacts, so they are no pieces of one.
        if any(isinstance(part, ReasoningPart) for part in decoded.parts):
            delivery = replace(delivery, piece=None)
        artifact_id = artifact.artifactId or artifact.name or ""
        tracker = self.trackers.get(artifact_id) or self._speech.become_artifact(artifact_id, decoded)
        if tracker is None:
            tracker = ArtifactTracker(artifact_id, file=is_file(artifact, decoded.parts))
            self.trackers[artifact_id] = tracker
            if delivery.piece is not None:
                # fasta2a 2.1.1 appends its first piece to nothing, which the client of a2a-sdk 1.3.0 refuses to read.
                delivery = replace(delivery, piece=replace(delivery.piece, append=False))
            self._add(tracker, artifact, decoded.parts, delivery, is_fresh=True)
            return
        self.trackers[artifact_id] = tracker
        if not delivery.append and tracker.merged_parts and not any(map(has_content, decoded.parts)):
            self._take_back(tracker)
            return
        news = decoded.parts if delivery.append else rest(tracker.merged_parts, decoded.parts)
        if news is not None:
            self._add(tracker, artifact, news, delivery, is_fresh=False)
            return
        tracker.merged_parts.clear()
        tracker.close(self._run.events)
        if not tracker.file:
            self._run.lose("artifact", SAID_AGAIN)
        self._add(tracker, artifact, decoded.parts, delivery, is_fresh=True)

    def _take_back(self, tracker: ArtifactTracker) -> None:
        """Clear an artifact that the server has replaced by an empty one. Another gateway does so when its agent starts
        again."""
        tracker.merged_parts.clear()
        tracker.close(self._run.events)
        tracker.added = False  # so that what comes replaces a file
        self._run.lose("artifact", SAID_AGAIN)

    def _add(
        self,
        tracker: ArtifactTracker,
        artifact: w.Artifact,
        parts: Sequence[Part],
        delivery: _Delivery,
        *,
        is_fresh: bool,
    ) -> None:
        """Add new parts of an artifact to its tracker, and their events to the run. `is_fresh` is True if the parts are
        the whole artifact so far, and False if they continue it."""
        if tracker.file:
            self._add_file(tracker, artifact, parts, delivery, is_fresh=is_fresh)
            return
        piece = delivery.piece
        run, start = self._run, len(self._run.events)
        begun = tracker.message_id is None and (is_fresh or any(has_content(part) for part in parts))
        if begun:
            name, description = artifact.name, artifact.description
            extra = as_extra(artifact, artifactId=tracker.artifact_id, name=name, description=description)
            is_thought = bool(parts) and all(isinstance(part, ReasoningPart) for part in parts)
            tracker.message_id = run.start_message("answer", metadata_of(artifact), extra, is_thought=is_thought)
        if tracker.message_id is not None:
            tracker.say(parts, run.events, begun=begun)
            is_marked = piece is not None and piece.mark(run.events, start, append=not begun)
            tracker.cut = is_marked or (piece is not None and not delivery.last and tracker.cut)
            run.has_answer = run.has_answer or any(not isinstance(part, ReasoningPart) for part in parts)
        if not tracker.cite(delivery.citations, run.events):
            run.lose("citation", _CITED_LATE)
        if delivery.last:
            tracker.close(run.events)

    def _add_file(
        self,
        tracker: ArtifactTracker,
        artifact: w.Artifact,
        parts: Sequence[Part],
        delivery: _Delivery,
        *,
        is_fresh: bool,
    ) -> None:
        """Add new parts of an artifact that is a file to its tracker, and their events to the run. `is_fresh` is True
        if the parts are the whole artifact so far, and False if they continue it."""
        events, start = self._run.events, len(self._run.events)
        appends = tracker.added and not is_fresh
        # The server's ids are unique within its task only.
        artifact_id = derived_id(self._run.run_id, "artifact", tracker.artifact_id)
        tracker.give(artifact, parts, events, artifact_id=artifact_id, last=delivery.last, fresh=is_fresh)
        if delivery.piece is not None:
            delivery.piece.mark(events, start, append=appends)

    def close(self) -> None:
        """End the open messages of all artifacts."""
        for tracker in self.trackers.values():
            tracker.close(self._run.events)
