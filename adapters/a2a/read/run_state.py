"""State of one run that all its readers share."""

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
    """Form in which one server sends data and answers."""

    rule: DataRule = "any"
    """Wrapping of data in parts."""
    answers_in_status: bool = False
    """Answers are the messages of the status, and not artifacts."""
    repeats_answer: bool = False
    """Each message of the status contains the whole answer so far."""


class RunState:
    """Events of the reply that is being read, and a summary of the run so far."""

    def __init__(self, run_id: str, habits: Habits) -> None:
        self.run_id = run_id
        self.habits = habits
        self.events: list[Event] = []
        """Events of the current reply. Readers append to them."""
        self.task_state: TaskState | None = None
        """State of the task in the last reply that has one."""
        self.is_stopped = False
        """True if the task asks or has ended, or if the server has answered without a task."""
        self.has_answer = False
        self.answers: set[str] = set()
        """Texts of the answers that are not artifacts."""
        self.progress: dict[str | None, str] = {}
        """Texts of the progress reports by message id, without those that the server declares to be progress only."""
        self.has_late_task = False
        """True if the whole task follows its final status."""
        self._message_count = 0
        self._losses: set[tuple[str, str]] = set()
        self._recalled: dict[str | None, tuple[Phase, bool]] = {}
        """Phases of the run's recorded messages, and True for declared progress, by message id."""

    def recall_loss(self, event: LossNoted) -> None:
        """Remember a recorded loss of this run."""
        self._losses.add((event.feature, event.how))

    def recall_message(self, event: MessageStarted) -> None:
        """Remember a recorded message of this run."""
        self._message_count += 1
        if event.role == "agent":
            self._recalled[event.message_id] = (event.phase, PROGRESS_ONLY in event.extra)

    def recall_part(self, event: PartAdded) -> None:
        """Remember a part of a recorded message, if the message is of this run."""
        phase, is_aside = self._recalled.get(event.message_id, (None, False))
        if isinstance(event.part, ReasoningPart):
            return
        self.has_answer = self.has_answer or phase == "answer"
        if phase == "progress" and not is_aside and isinstance(event.part, TextPart):
            self.progress[event.message_id] = self.progress.get(event.message_id, "") + event.part.text

    def lose(self, feature: str, how: str) -> None:
        """Add a loss to the events, once a run."""
        if (feature, how) not in self._losses:
            self._losses.add((feature, how))
            self.events.append(LossNoted(feature=feature, how=how))

    def read_about(self, metadata: JsonObject | None) -> JsonObject:
        """Add the losses that another gateway reports in the metadata, and return the usage that it reports; empty if
        it reports none."""
        members = gateway_members(metadata)
        for feature, how in as_object(members.get("loss")).items():
            # What the metadata carry is read from them.
            if isinstance(how, str) and how != SHOWN_IN_METADATA:
                self.lose(feature, how)
        return to_snake_case(as_object(members.get("usage")))

    def read_parts(self, source: w.Message | w.Artifact | None) -> Sequence[Part]:
        """Return the parts of a message or artifact; none for None. Unknown parts are a loss."""
        decoded = decode_parts(source.parts if source else None, self.habits.rule)
        if decoded.unknown:
            self.lose("custom", _UNKNOWN_PART)
        return decoded.parts

    def decode(self, message: w.Message | None, *metadata: JsonObject | None) -> DecodedContent:
        """Return the content of a message. `metadata` are those of the update that brought it. Without a message, the
        content comes from the metadata alone."""
        message = message or w.Message()
        self.has_late_task |= any(map(has_task_after_end, (message.metadata, *metadata)))
        return decode_marks(self.read_parts(message), message.messageId or "", message.metadata, *metadata)

    def start_message(
        self, phase: Phase, metadata: JsonObject | None, extra: JsonObject, *, is_thought: bool = False
    ) -> str:
        """Add the start of a message with these metadata, and return its id. A message with `is_thought` does not count
        as the run's answer."""
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
        """Add a whole message.

        `message` is the server's one. `is_reply`: it answers without a task. `is_aside`: the server declares it to be
        progress only.
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
