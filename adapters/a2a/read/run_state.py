"""State of one run that the readers of its messages, artifacts, questions and status share."""

from collections.abc import Sequence
from dataclasses import dataclass

from babelgate.adapters.a2a.codec.dialect import DataRule
from babelgate.adapters.a2a.codec.marks import decode_marks, has_task_after_end
from babelgate.adapters.a2a.codec.names import to_snake_case
from babelgate.adapters.a2a.frameworks.framework import DecodedContent
from babelgate.adapters.a2a.read.parts import as_extra, decode_parts, gateway_members
from babelgate.adapters.a2a.wire import replies as w
from babelgate.adapters.a2a.wire.task import PROGRESS_ONLY, REPLY, SHOWN_IN_METADATA, derived_id
from babelgate.canonical import Event, Part, ReasoningPart, TaskState, TextPart
from babelgate.canonical.event import LossNoted, MessageEnded, MessageStarted, PartAdded
from babelgate.canonical.json import as_object
from babelgate.canonical.message import Phase, text_of
from babelgate.canonical.value import JsonObject

_UNKNOWN_PART = "a part of an unknown type"


@dataclass(frozen=True, slots=True)
class Habits:
    """Form in which one server sends data and answers, as its card and its version show."""

    rule: DataRule = "any"
    """Form of the data in a data part."""
    answers_in_status: bool = False
    """True if the server sends answers as the messages of the status, and not as artifacts."""
    repeats_answer: bool = False
    """True if each message of the status repeats the whole answer so far."""


class RunState:
    """Events of the reply that is being read, and facts about the run so far."""

    def __init__(self, run_id: str, habits: Habits) -> None:
        self.run_id = run_id
        self.habits = habits
        self.events: list[Event] = []
        """Events of the current reply. Readers append to them."""
        self.task_state: TaskState | None = None
        """State of the task in the newest reply that contains one. None before that."""
        self.is_stopped = False
        """True if the task waits for an answer or has ended, or if the server has answered without a task."""
        self.has_answer = False
        self.answers: set[str] = set()
        """Texts of the answers that came in messages, and not in artifacts."""
        self.progress: dict[str | None, str] = {}
        """Texts of progress reports, by message id. They may become the answer of a task that has none, so those that
        the server declares to be only progress are left out."""
        self.has_late_task = False
        """True if the server sends the whole task after its final status, so that the run ends only then."""
        self._message_count = 0
        self._losses: set[tuple[str, str]] = set()
        self._recalled: dict[str | None, tuple[Phase, bool]] = {}
        """Phases of the run's recorded messages by message id, each with True if the server declared the message to be
        only progress."""

    def recall_loss(self, event: LossNoted) -> None:
        """Restore a recorded loss of this run, so that it is not reported again."""
        self._losses.add((event.feature, event.how))

    def recall_message(self, event: MessageStarted) -> None:
        """Restore the phase of a recorded message of this run."""
        self._message_count += 1
        if event.role == "agent":
            self._recalled[event.message_id] = (event.phase, PROGRESS_ONLY in event.extra)

    def recall_part(self, event: PartAdded) -> None:
        """Restore a part of a recorded message. Parts of messages that `recall_message` does not know are ignored."""
        phase, is_aside = self._recalled.get(event.message_id, (None, False))
        if isinstance(event.part, ReasoningPart):
            return
        self.has_answer = self.has_answer or phase == "answer"
        if phase == "progress" and not is_aside and isinstance(event.part, TextPart):
            self.progress[event.message_id] = self.progress.get(event.message_id, "") + event.part.text

    def lose(self, feature: str, how: str) -> None:
        """Add the event of a loss, unless this run has already reported the same loss."""
        if (feature, how) not in self._losses:
            self._losses.add((feature, how))
            self.events.append(LossNoted(feature=feature, how=how))

    def read_about(self, metadata: JsonObject | None) -> JsonObject:
        """Add the losses that another gateway reports in the metadata, and return the token usage that it reports. The
        usage is empty if it reports none."""
        members = gateway_members(metadata)
        for feature, how in as_object(members.get("loss")).items():
            # What the metadata carry is read from them.
            if isinstance(how, str) and how != SHOWN_IN_METADATA:
                self.lose(feature, how)
        return to_snake_case(as_object(members.get("usage")))

    def read_parts(self, source: w.Message | w.Artifact | None) -> Sequence[Part]:
        """Return the canonical parts of a message or artifact; none for None. Parts of an unknown type become a
        loss."""
        decoded = decode_parts(source.parts if source else None, self.habits.rule)
        if decoded.unknown:
            self.lose("custom", _UNKNOWN_PART)
        return decoded.parts

    def decode(self, message: w.Message | None, *metadata: JsonObject | None) -> DecodedContent:
        """Return the content of a message, sorted by kind. `metadata` are those of the update that contains the
        message. If `message` is None, the content is that of the metadata."""
        message = message or w.Message()
        self.has_late_task |= any(map(has_task_after_end, (message.metadata, *metadata)))
        return decode_marks(self.read_parts(message), message.messageId or "", message.metadata, *metadata)

    def start_message(
        self, phase: Phase, metadata: JsonObject | None, extra: JsonObject, *, is_thought: bool = False
    ) -> str:
        """Add the event that starts a message, and return the new id of the message. With `is_thought`, the message
        contains only thoughts, and does not count as the run's answer."""
        self._message_count += 1
        self.has_answer = self.has_answer or (phase == "answer" and not is_thought)
        message_id = derived_id(self.run_id, "said", str(self._message_count))
        self.events.append(MessageStarted(message_id=message_id, phase=phase, metadata=metadata or {}, extra=extra))
        return message_id

    def add_message(
        self,
        parts: Sequence[Part],
        phase: Phase,
        message: w.Message | None = None,
        *,
        is_reply: bool = False,
        is_aside: bool = False,
    ) -> None:
        """Add the events of a whole message with these parts.

        `message` is the server's message from which the parts were read. `is_reply` is True if it answers without a
        task, and `is_aside` if the server declares it to be only progress.
        """
        message = message or w.Message()
        members = as_extra(message, messageId=message.messageId)
        is_thought = bool(parts) and all(isinstance(part, ReasoningPart) for part in parts)
        extra: JsonObject = {
            **members,
            **({REPLY: {}} if is_reply else {}),
            **({PROGRESS_ONLY: {}} if is_aside else {}),
        }
        message_id = self.start_message(phase, message.metadata, extra, is_thought=is_thought)
        self.events += [PartAdded(message_id=message_id, part=part) for part in parts]
        self.events.append(MessageEnded(message_id=message_id))
        if phase == "answer":
            self.answers.add(text_of(tuple(parts)))
        elif not is_aside:
            self.progress[message_id] = "".join(part.text for part in parts if isinstance(part, TextPart))
