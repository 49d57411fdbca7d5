"""Reading of an answer that an agent sends in the messages of its status: in pieces, repeated as a whole, or as a
draft."""

from collections.abc import Sequence

from babelgate.adapters.a2a.frameworks.framework import DecodedContent
from babelgate.adapters.a2a.read.artifacts import ArtifactTracker
from babelgate.adapters.a2a.read.draft import Draft
from babelgate.adapters.a2a.read.run_state import RunState
from babelgate.adapters.a2a.wire import replies as w
from babelgate.adapters.a2a.wire.task import GROWING, IN_STATUS, PROTOCOL
from babelgate.canonical import AnnotationPart, Part, TextPart
from babelgate.canonical.event import MessageStarted
from babelgate.canonical.message import text_of
from babelgate.canonical.value import JsonObject

SAID_AGAIN = "a replaced answer remains, and the new one follows it"


class Speech:
    """Reader of the answer that one run sends in the messages of its status. It adds the answer's events to the run."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self.draft = Draft()
        self.tracker: ArtifactTracker | None = None
        """Parts of the answer that were read so far, and the message that they became. None before the first piece of
        the answer, and after an artifact has taken over the answer (`become_artifact`)."""
        self.citations: list[AnnotationPart] = []
        """Citations that arrived before the first piece of the answer."""
        self.has_grown = False
        """True if the reply that is being read repeats the whole answer so far."""

    @property
    def text(self) -> str | None:
        """Text of the answer so far; None if it has not begun, or if an artifact has taken it over."""
        return None if self.tracker is None else self.tracker.text

    def recall_message(self, event: MessageStarted) -> ArtifactTracker | None:
        """Restore the answer from a recorded message of this run that was read as the answer in a status. Return the
        answer's tracker, or None for any other message."""
        if IN_STATUS not in event.extra and GROWING not in event.extra:
            return None
        self.tracker = ArtifactTracker("", file=False, message_id=event.message_id)
        return self.tracker

    def say(self, parts: Sequence[Part], message: w.Message) -> None:
        """Add the events for a piece of the answer. `message` is the status message that contains the piece."""
        tracker = self.tracker
        begun = tracker is None or tracker.message_id is None
        if tracker is None or tracker.message_id is None:
            tracker = self._begin({IN_STATUS: {}})
        start = len(self._run.events)
        tracker.say(parts, self._run.events, begun=begun)
        if message.messageId and len(self._run.events) > start:
            extra: JsonObject = {PROTOCOL: {"messageId": message.messageId}}
            self._run.events[-1] = self._run.events[-1].replace(extra=extra)

    def repeat(self, text: str) -> None:
        """Add the events for the new end of an answer that the server repeats as a whole. A text that does not continue
        the answer begins another one."""
        self.has_grown = True
        tracker = self.tracker
        if tracker is not None and tracker.message_id is not None and not text.startswith(tracker.text):
            # The reply is older than what was read before.
            if tracker.text.startswith(text):
                return
            tracker.close(self._run.events)
        if tracker is None or tracker.message_id is None:
            tracker = self._begin({GROWING: {}})
        news = [TextPart(text=text[len(tracker.text) :])]
        tracker.say(news, self._run.events, begun=not tracker.merged_parts)

    def _begin(self, extra: JsonObject) -> ArtifactTracker:
        message_id = self._run.start_message("answer", None, extra)
        self.tracker = ArtifactTracker("", file=False, message_id=message_id)
        return self.tracker

    def take_draft(self, decoded: DecodedContent) -> None:
        """Remove the content that was read before from the content of a draft. If the draft has changed such content,
        the answer begins again, which is a loss."""
        if not self.draft.keep_news(decoded, self.tracker, self._run.events):
            self._run.lose("text", SAID_AGAIN)

    def become_artifact(self, artifact_id: str, decoded: DecodedContent) -> ArtifactTracker | None:
        """Let an artifact take over the answer if the text of its content `decoded` begins with the whole answer so
        far.

        Return the answer's tracker, with which the artifact's parts continue the answer's message. Return None if the
        artifact is something else, or if the server's framework does not repeat answers (`Habits.repeats_answer`).
        """
        tracker = self.tracker
        text = text_of(tuple(decoded.parts))
        if (
            not self._run.habits.repeats_answer
            or tracker is None
            or tracker.message_id is None
            or not text.startswith(tracker.text)
        ):
            return None
        self.tracker, tracker.artifact_id = None, artifact_id
        return tracker

    def cite(self, citations: Sequence[AnnotationPart]) -> None:
        """Add citations to the open message of the answer. If the answer has not begun, store them in the attribute
        `citations`; `end` adds them."""
        if self.tracker is not None:
            self.tracker.cite(citations, self._run.events)
        else:
            self.citations += citations

    def end(self, citations: Sequence[AnnotationPart]) -> None:
        """Add the citations of the final status to the answer, and those that arrived before it began."""
        if self.tracker is not None:
            self.tracker.cite([*self.citations, *citations], self._run.events)

    def close(self) -> None:
        """End the open message of the answer."""
        if self.tracker is not None:
            self.tracker.close(self._run.events)
