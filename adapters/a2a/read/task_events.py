"""The replies of an A2A server → canonical events.

Servers say the same thing in several ways: piece by piece, and whole in the task that they show at the beginning, when
asked, or instead of a stream. So the reader keeps account of what it has told of each artifact, and tells what is new.
The account is made of the events themselves: read from the log, they make the same one for the task's next run.

What frameworks say beside the protocol is read by `codec.marks`, and told as what it is.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from babelgate.adapters.a2a.codec.dialect import DataRule
from babelgate.adapters.a2a.codec.marks import (
    author_of,
    decode_artifact,
    decode_marks,
    event_id_of,
    has_task_after_end,
)
from babelgate.adapters.a2a.codec.names import to_snake_case
from babelgate.adapters.a2a.frameworks.agentstack import is_trajectory
from babelgate.adapters.a2a.frameworks.framework import DecodedContent
from babelgate.adapters.a2a.frameworks.langgraph_api import last_versions
from babelgate.adapters.a2a.frameworks.opencode import SHARED
from babelgate.adapters.a2a.read.activity import Activity
from babelgate.adapters.a2a.read.artifacts import ArtifactTracker, Piece, is_file, kind_of, metadata_of, rest
from babelgate.adapters.a2a.read.draft import Draft
from babelgate.adapters.a2a.read.fault import decode_fault
from babelgate.adapters.a2a.read.mirror import TOO_LARGE, Mirror, beside_of
from babelgate.adapters.a2a.read.parts import (
    DecodedParts,
    about_of,
    artifacts_of,
    as_extra,
    decode_parts,
    decode_reply,
    decode_state,
    has_content,
    is_callers,
    merge_replies,
    own_of,
    since_caller,
)
from babelgate.adapters.a2a.read.questions import QuestionTracker, decode_interrupts, in_words, questions
from babelgate.adapters.a2a.read.token import TokenReader
from babelgate.adapters.a2a.read.usage import UsageCounter, usage_of_task
from babelgate.adapters.a2a.wire import replies as w
from babelgate.adapters.a2a.wire.task import AGAIN, ASIDE, BESIDE, GROWING, IN_STATUS, PROTOCOL, REPLY, derived_id
from babelgate.adapters.kit.extension import URI, RecordReader, decode_said
from babelgate.canonical import (
    AnnotationPart,
    Event,
    Part,
    ReasoningPart,
    Record,
    RunReason,
    RunStatus,
    TaskState,
    TextPart,
)
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptRaised,
    LossNoted,
    MessageEnded,
    MessageStarted,
    Native,
    PartAdded,
    PartDelta,
    PartEnded,
    RunEnded,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
    UpstreamBound,
)
from babelgate.canonical.json import as_object
from babelgate.canonical.message import Phase, text_of
from babelgate.canonical.state import TERMINAL, WAITING
from babelgate.canonical.value import Json, JsonObject

_UNKNOWN_EVENT: Final = "an event of a form that A2A does not have"
_UNKNOWN_PART: Final = "a part of a form that A2A does not have"
_CITED_LATE: Final = "a citation that came after the end of what it is of"
_SAID_ANEW: Final = "an answer that was replaced stays said, and is said again"


class EventReader:
    """Of one run. `rule` = how data is wrapped in what is read; `speaks_in_status` = the agent answers in the messages
    of its status, and not in artifacts."""

    def __init__(self, run_id: str, *, rule: DataRule = "any", speaks_in_status: bool = False) -> None:
        self.task_id: str | None = None
        self.context_id: str | None = None
        self.state: TaskState | None = None
        """Of the task, as it was last read."""
        self.begun = False
        """Anything was read."""
        self.stopped = False
        """The task asks or has ended, or there is none and the server has answered."""
        self.replied = False
        """The server answered with a message instead of a task."""
        self.records = RecordReader()
        self._run_id = run_id
        self.rule: DataRule = rule
        self.speaks_in_status = speaks_in_status
        self.says_all_again = False
        """Each message of its status is all of the answer so far."""
        self._has_grown = False
        """By the reply that is read: callers of A2A are shown the pieces, of an artifact."""
        self._events: list[Event] = []
        self._bound: dict[str, str] = {}
        self._trackers: dict[str, ArtifactTracker] = {}
        self._messages = 0
        """Begun in this run."""
        self._answered = False
        """It gave an answer."""
        self._answers: set[str] = set()
        """Texts of answers that were no artifacts."""
        self._remarks: set[str] = set()
        """Ids of the status messages that were told."""
        self._questions = QuestionTracker()
        self._losses: set[tuple[str, str]] = set()
        self._spoken: ArtifactTracker | None = None
        """Of the answer that comes in pieces in the messages of the status."""
        self._draft = Draft()
        self._progress: dict[str | None, str] = {}
        """What this run said on the way, by the id of the message; without what is marked to be that and no more."""
        self._citations: list[AnnotationPart] = []
        """Of what was said so."""
        self._pending: tuple[w.Message, DecodedContent] | None = None
        """What an artifact may repeat: then it is the answer."""
        self._activity = Activity(run_id)
        self._usage = UsageCounter()
        self._tokens = TokenReader()
        self._output: Json = None
        self._mirror = Mirror()
        self._ends_with_task = False
        self._replies: list[w.Message] = []  # of an answer without a task, which may be several until the stream ends
        self._held_end: JsonObject | None = None
        """The metadata of the status after which the whole task comes."""

    # What was told before

    def recall(self, past: Iterable[Record]) -> None:
        """Take up the account from the records of the task."""
        told = set[str]()
        said: dict[str, ArtifactTracker] = {}
        phases: dict[str | None, Phase] = {}
        asides = set[str | None]()
        for record in past:
            mine, event = record.run_id == self._run_id, record.event
            self._draft.recall(event, mine=mine)
            match event:
                case MessageStarted():
                    self._messages += mine
                    self._recall_message(event, said, mine=mine)
                    if mine and event.role == "agent":
                        phases[event.message_id] = event.phase
                        if ASIDE in event.extra:
                            asides.add(event.message_id)
                case PartAdded() | PartDelta() | PartEnded() | MessageEnded():
                    self._recall_words(event, phases.get(event.message_id), aside=event.message_id in asides)
                    tracker = said.get(event.message_id or "")
                    if tracker is not None:
                        tracker.recall(event)
                case ToolStarted() | ToolEnded():
                    self._remarks |= {own["messageId"] for own in (own_of(event.extra),) if "messageId" in own}
                    self._activity.recall(event, mine=mine)
                case StepStarted() | StepEnded() if mine:
                    self._activity.recall_step(event)
                case ArtifactAdded():
                    self._recall_artifact(event, mine=mine)
                case InterruptRaised():
                    self._questions.recall(event)
                    self.stopped = self.stopped or mine
                case Custom():
                    self._activity.recall_state(event)
                case Native() if mine:
                    self._mirror.recall(record)
                case UpstreamBound() if mine:
                    self._bound |= event.ids
                case UpstreamBound() if "run" in event.ids:
                    told.add(event.ids["run"])
                case LossNoted() if mine:
                    self._losses.add((event.feature, event.how))
                case _:
                    pass
        self.records = RecordReader(told=told)

    def _recall_message(self, event: MessageStarted, said: dict[str, ArtifactTracker], *, mine: bool) -> None:
        own = own_of(event.extra)
        if "artifactId" in own:
            tracker = self._trackers.setdefault(own["artifactId"], ArtifactTracker(own["artifactId"], file=False))
            tracker.message_id, tracker.open = (event.message_id if mine else None), False
            said[event.message_id or ""] = tracker
        elif event.role == "agent" and "messageId" in own:
            self._remarks.add(own["messageId"])
        if mine and (IN_STATUS in event.extra or GROWING in event.extra):
            tracker = self._spoken = ArtifactTracker("", file=False, message_id=event.message_id)
            said[event.message_id or ""] = tracker

    def _recall_words(
        self, event: PartAdded | PartDelta | PartEnded | MessageEnded, phase: Phase | None, *, aside: bool
    ) -> None:
        """Of a message of this run, which has a `phase`."""
        self._remarks |= {own["messageId"] for own in (own_of(event.extra),) if "messageId" in own}
        if isinstance(event, PartAdded) and not isinstance(event.part, ReasoningPart):
            self._answered = self._answered or phase == "answer"
            if phase == "progress" and not aside and isinstance(event.part, TextPart):
                self._progress[event.message_id] = self._progress.get(event.message_id, "") + event.part.text

    def _recall_artifact(self, event: ArtifactAdded, *, mine: bool) -> None:
        own = own_of(event.extra)
        if "artifactId" in own:
            tracker = self._trackers.setdefault(own["artifactId"], ArtifactTracker(own["artifactId"], file=True))
            if not event.append:
                tracker.merged_parts.clear()
            tracker.added = tracker.added or mine
            tracker.add(event.part)

    # What is told now

    def bind(self, task_id: str | None, context_id: str | None) -> list[Event]:
        """Tell the server's ids as soon as they are known, and again only when there are more of them."""
        self._events = []
        self._bind(task_id, context_id)
        return self._events

    def _bind(self, task_id: str | None, context_id: str | None) -> None:
        ids = {name: value for name, value in (("task", task_id), ("context", context_id)) if value}
        self.task_id, self.context_id = task_id or self.task_id, context_id or self.context_id
        if not ids.items() <= self._bound.items():
            self._bound |= ids
            self._events.append(UpstreamBound(protocol=PROTOCOL, ids=dict(self._bound)))

    def close(self) -> list[Event]:
        """Nothing more comes of the stream: tell what waited for that."""
        self._events = []
        if self._replies:
            self._tell_reply()
        if self._held_end is not None:
            self._end_run(None, DecodedContent(), self._held_end)
        return self._events

    def note(self, feature: str, how: str) -> list[Event]:
        """Tell of a loss, once."""
        self._events = []
        self._lose(feature, how)
        return self._events

    def _lose(self, feature: str, how: str) -> None:
        if (feature, how) not in self._losses:
            self._losses.add((feature, how))
            self._events.append(LossNoted(feature=feature, how=how))

    def read(self, value: Json) -> list[Event]:
        """Raises invalid where the reply breaks the protocol."""
        token = self._tokens.read(value)
        if token is not None:
            return [token]
        self._events, self._has_grown = [], False
        reply = decode_reply(value)
        if self._read_records(reply):
            self.begun = True
            return self._events
        repeated = self._settle_pending(reply)
        match reply:
            case w.Task():
                self._task(reply)
            case w.TaskStatusUpdateEvent():
                self._bind(self.task_id or reply.taskId, self.context_id or reply.contextId)
                self._status(reply.status, reply.metadata)
            case w.TaskArtifactUpdateEvent():
                self._bind(self.task_id or reply.taskId, self.context_id or reply.contextId)
                self._tell_author({**(reply.metadata or {}), **(reply.artifact.metadata or {})})
                piece = Piece(reply.lastChunk is True, beside=beside_of(reply))
                self._artifact(
                    reply.artifact, append=reply.append is True, last=reply.lastChunk, piece=piece, citations=repeated
                )
            case w.Message():
                self._message(reply)
            case None:
                self._unknown(value)
        self.begun = True
        if not self._has_grown and not self._replies:
            self._events = self._mirror.reflect(reply, self._events, self.rule)
        self._tokens.learn(value, self._events, self._trackers)
        return self._events

    def _read_records(self, reply: w.Reply | None) -> bool:
        """Whether the records of the extension tell of the run: then what is said beside them is not looked at."""
        metadata = None if reply is None or isinstance(reply, w.Message) else reply.metadata
        told = (metadata or {}).get(URI)
        if told is None or reply is None:
            return self.records.active
        told_before = self.records.run_id
        news = self.records.read(told)
        if self.records.active and not isinstance(reply, w.Message):
            task_id = reply.id if isinstance(reply, w.Task) else reply.taskId
            self._bind(self.task_id or task_id, self.context_id or reply.contextId)
            if self.records.run_id is not None and self.records.run_id != told_before:
                self._bound["run"] = self.records.run_id
                self._events.append(UpstreamBound(protocol=PROTOCOL, ids=dict(self._bound)))
        for event in news:
            if isinstance(event, InterruptRaised):  # by which it is answered there
                event = event.replace(extra={**event.extra, PROTOCOL: {"id": event.interrupt_id}})
            self._events.append(event)
        self.state = self.records.state or self.state
        self.stopped = self.stopped or self.records.stopped
        return True

    def _unknown(self, value: Json) -> None:
        if value in (None, {}):
            return
        self._lose("custom", _UNKNOWN_EVENT)
        kind = value.get("kind") if isinstance(value, dict) else None
        self._events.append(Native(protocol=PROTOCOL, event=kind if isinstance(kind, str) else "", data=value))

    def _task(self, task: w.Task) -> None:
        if self.task_id is not None and task.id != self.task_id:
            self._finish()
            self._spoken = None
            self._trackers.clear()  # another task's artifacts may have the same names
        self._bind(task.id, task.contextId)
        self._activity.is_relayed |= bool(about_of(task.metadata))
        # `lastChunk` is said of updates and not of artifacts: in a task its end says that nothing follows.
        ended = task.status is not None and decode_state(task.status.state) in TERMINAL
        for artifact in task.artifacts or ():
            self._artifact(artifact, append=False, last=True if ended else None)
        self._from_history(task)
        if task.status is not None:
            self._status(task.status, task.metadata, task)

    # Messages

    def _start(self, phase: Phase, metadata: JsonObject | None, extra: JsonObject, *, is_thought: bool = False) -> str:
        self._messages += 1
        self._answered = self._answered or (phase == "answer" and not is_thought)
        message_id = derived_id(self._run_id, "said", str(self._messages))
        self._events.append(MessageStarted(message_id=message_id, phase=phase, metadata=metadata or {}, extra=extra))
        return message_id

    def _whole(
        self,
        parts: Sequence[Part],
        phase: Phase,
        message: w.Message | None = None,
        *,
        reply: bool = False,
        aside: bool = False,
    ) -> None:
        """`aside`: the server says itself that it is progress."""
        message = message or w.Message()
        own = as_extra(message, messageId=message.messageId)
        is_thought = all(isinstance(part, ReasoningPart) for part in parts)
        extra: JsonObject = {**own, **({REPLY: {}} if reply else {}), **({ASIDE: {}} if aside else {})}
        message_id = self._start(phase, message.metadata, extra, is_thought=is_thought and bool(parts))
        self._events += [PartAdded(message_id=message_id, part=part) for part in parts]
        self._events.append(MessageEnded(message_id=message_id))
        if phase == "answer":
            self._answers.add(text_of(tuple(parts)))
        elif not aside:
            self._progress[message_id] = "".join(part.text for part in parts if isinstance(part, TextPart))

    def _read_parts(self, message: w.Message | w.Artifact | None) -> DecodedParts:
        decoded = decode_parts(message.parts if message else None, self.rule)
        if decoded.unknown:
            self._lose("custom", _UNKNOWN_PART)
        return decoded

    def _message(self, message: w.Message) -> None:
        """The server's answer, where it makes no task of it (specification 1.0, 3.1.2)."""
        self._bind(self.task_id, self.context_id or message.contextId)
        if is_callers(message):
            return
        decoded = self._decode_marks(message)
        if decoded.says is not None or decoded.is_thought:
            # agno 3.1.10 streams its answer so, in messages of one id.
            self._tell(message, decoded)
            return
        self.replied = True
        if self.task_id is None:
            self._replies.append(message)
        else:
            self._answer(message, decoded)

    def _answer(self, message: w.Message, decoded: DecodedContent) -> None:
        self._tell_states(decoded, message.messageId, is_shown=True)
        self._activity.use(self._events, decoded.tools, message)
        self._whole([*decoded.parts, *decoded.citations], "answer", message, reply=self.task_id is None)
        self._usage.count(message.metadata, message.messageId)

    def _tell_reply(self) -> None:
        message, self._replies = merge_replies(self._replies), []
        self._answer(message, self._decode_marks(message))
        if self._usage.total:
            self._events.append(RunEnded(usage=self._usage.total))
        self._events, self.stopped = self._mirror.reflect(message, self._events, self.rule), True

    def _decode_marks(self, said: w.Message | None, *metadata: JsonObject | None) -> DecodedContent:
        """A message, with the metadata of what brought it."""
        said = said or w.Message()
        self._ends_with_task |= any(map(has_task_after_end, (said.metadata, *metadata)))
        return decode_marks(self._read_parts(said).parts, said.messageId or "", said.metadata, *metadata)

    def _remark(self, message: w.Message, decoded: DecodedContent) -> None:
        # a2a-sdk 0.3.26 and 1.3.0 move the message of a status into the history when the next status comes.
        if message.messageId in self._remarks:
            return
        self._tell(message, decoded)

    def _tell(self, message: w.Message, decoded: DecodedContent) -> None:
        """What an agent says at work, each as what it is."""
        self._tell_states(decoded, message.messageId, is_shown=True)
        if message.messageId and (decoded.parts or decoded.tools or decoded.progress):
            self._remarks.add(message.messageId)
        thoughts = [part for part in decoded.parts if isinstance(part, ReasoningPart)]
        words = [part for part in decoded.parts if not isinstance(part, ReasoningPart)]
        if thoughts:
            # What was read of its metadata is told by that; callers of A2A see the message as it came.
            beside = {key: value for key, value in (message.metadata or {}).items() if not is_trajectory(key)}
            self._whole(thoughts, "answer", message.model_copy(update={"metadata": beside}))
        self._activity.use(self._events, decoded.tools, message)
        self._activity.tell_steps(self._events, decoded.steps)
        self._activity.tell_groups(self._events, decoded.groups)
        if decoded.progress:
            self._whole(decoded.progress, "progress", message, aside=True)
        if self.says_all_again and words and all(isinstance(part, TextPart) for part in words):
            self._grow(text_of(tuple(words)))
        elif words and (decoded.says == "answer" or (decoded.says is None and self.speaks_in_status)):
            self._speak(words, message)
        elif words:
            self._whole(words, "progress", message, aside=decoded.says == "progress")
        if self._spoken is not None:
            self._spoken.cite(decoded.citations, self._events)
        else:
            self._citations += decoded.citations

    def _tell_states(self, decoded: DecodedContent, of: str | None, *, is_shown: bool) -> None:
        if not self._activity.tell_states(self._events, decoded.states, of, is_shown=is_shown):
            self._lose("custom", TOO_LARGE)

    def _tell_author(self, metadata: JsonObject | None) -> None:
        """Of an update: what is told again in a task, is not told in the order in which it was done."""
        author = author_of(metadata)
        if author is not None:
            self._activity.tell_author(self._events, *author)

    def _grow(self, text: str) -> None:
        """langgraph-api 0.16.7 says all of its answer with each token, and all of the next one, when that has begun."""
        self._has_grown = True
        tracker = self._spoken
        if tracker is not None and tracker.message_id is not None and not text.startswith(tracker.text):
            if tracker.text.startswith(text):  # it is behind
                return
            tracker.close(self._events)
        if tracker is None or tracker.message_id is None:
            tracker = self._spoken = ArtifactTracker("", file=False)
            tracker.message_id = self._start("answer", None, {GROWING: {}})
        tracker.say([TextPart(text=text[len(tracker.text) :])], self._events, begun=not tracker.merged_parts)

    def _tell_draft(self, message: w.Message) -> None:
        start, decoded = len(self._events), self._decode_marks(message)
        self._remarks.add(message.messageId or "")
        if not self._draft.take_news(decoded, self._spoken, self._events):
            self._lose("text", _SAID_ANEW)
        self._tell(w.Message(), decoded)
        self._draft.mark(self._events, start)

    def _speak(self, parts: Sequence[Part], message: w.Message) -> None:
        """A piece of the answer, which is no artifact."""
        tracker = self._spoken
        own: JsonObject = {PROTOCOL: {"messageId": message.messageId}} if message.messageId else {}
        begun = tracker is None or tracker.message_id is None
        if tracker is None or tracker.message_id is None:
            tracker = self._spoken = ArtifactTracker("", file=False)
            tracker.message_id = self._start("answer", None, {IN_STATUS: {}})
        start = len(self._events)
        tracker.say(parts, self._events, begun=begun)
        if own and len(self._events) > start:
            self._events[-1] = self._events[-1].replace(extra=own)

    # Status

    def _status(self, status: w.TaskStatus, metadata: JsonObject | None, task: w.Task | None = None) -> None:
        """`task`: it came with the whole task, which may be older than what was said to it last."""
        self.state = decode_state(status.state)
        message = status.message
        event = (
            None if task is not None else decode_said(about_of(metadata).get("event"), StepStarted, StepEnded, Custom)
        )
        if event is not None and message is None:
            self._events.append(event)
            return
        # A task's metadata is that of all its updates.
        beside = metadata if task is None else None
        if self.state is TaskState.COMPLETED and task is None and message is None and self._ends_with_task:
            self._held_end = metadata or {}
            return
        if self.state in TERMINAL:
            self._end_run(message, self._decode_marks(message, beside), metadata)
            return
        said = message or w.Message()
        name = said.messageId
        self._usage.count(said.metadata, name)
        self._usage.count(beside, name, of_update=True)
        self._tell_author({**(beside or {}), **(said.metadata or {})} if task is None else None)
        if self.state in WAITING:
            if task is None or not self._questions.is_stale(status):
                self._tell_states(self._decode_marks(message, beside), name, is_shown=True)
                asked = self._draft.find_untold(message, self._read_parts(message).parts, self._spoken)
                self._ask(status, asked, metadata)
            return
        decoded = self._decode_marks(message, beside)
        if message is None:
            self._tell(w.Message(), decoded)
            if (draft := self._draft.read(beside)) is not None:
                self._tell_draft(draft)
        elif self._draft.is_of(message):
            self._tell_draft(message)
        elif (
            event_id_of(beside) is not None and text_of(tuple(decoded.parts)) and message.messageId not in self._remarks
        ):
            # google-adk 2.13.0 says its answer twice: as anything else, and then as an artifact.
            self._pending = (message, decoded)
        else:
            self._remark(message, decoded)

    def _settle_pending(self, reply: w.Reply | None) -> Sequence[AnnotationPart]:
        """Tell what waited, unless the reply is the answer that repeats it: then its citations are the answer's."""
        if reply is not None and not isinstance(reply, w.Message):  # then the messages before it were no answer
            replies, self._replies = self._replies, []
            for each in replies:
                self._remark(each, self._decode_marks(each))
        if self._pending is None:
            return ()
        (message, decoded), self._pending = self._pending, None
        text = text_of(tuple(decoded.parts))
        if not any(text == text_of(tuple(self._decode_artifact(each).parts)) for each in artifacts_of(reply)):
            self._remark(message, decoded)
            return ()
        if message.messageId:
            self._remarks.add(message.messageId)
        decoded.parts = [part for part in decoded.parts if isinstance(part, ReasoningPart)]
        citations, decoded.citations = decoded.citations, []
        self._tell(message, decoded)
        return citations

    def _ask(self, status: w.TaskStatus, parts: Sequence[Part], metadata: JsonObject | None) -> None:
        self._finish()
        self._tell_about(metadata)
        # opencode-a2a 1.4.0 asks in the metadata of an update that has no message.
        beside = {key: value for key, value in (metadata or {}).items() if key == SHARED}
        asked = questions(parts, {**beside, **((status.message.metadata if status.message else None) or {})})
        asked = self._questions.ask(asked)
        self._events += decode_interrupts(status, asked, auth=self.state is TaskState.AUTH_REQUIRED)
        self.stopped = True

    def _end_run(self, message: w.Message | None, decoded: DecodedContent, metadata: JsonObject | None) -> None:
        is_failed = self.state in (TaskState.FAILED, TaskState.REJECTED)
        if is_failed:
            decoded.parts = [*self._draft.find_untold(message, decoded.parts, self._spoken)]
        elif message is not None and self._draft.is_of(message):
            self._tell_draft(message)
        if self._spoken is not None:
            # Those that came before its first piece are of it, too.
            self._spoken.cite([*self._citations, *decoded.citations], self._events)
        self._finish()
        self.stopped, self._held_end = True, None
        self._tell_states(decoded, message.messageId if message is not None else None, is_shown=True)
        if left := [
            part for each in self._questions.held for part in in_words(each.value)
        ]:  # it did not stop for them after all
            self._whole(left, "answer")
        if is_failed:
            self._tell_about(metadata)
            fault = decode_fault(message, decoded, metadata, rejected=self.state is TaskState.REJECTED)
            self._events.append(RunEnded(status=RunStatus.ERROR, reason=RunReason.FAULT, fault=fault))
            return
        if message is not None:
            self._last_words(message, decoded)
            self._usage.count(message.metadata, message.messageId)
        if self.state is TaskState.COMPLETED and not self._answered and "babelgate" not in (metadata or {}):
            self._answer_by_progress()
        usage = self._tell_about(metadata) or usage_of_task(metadata) or self._usage.total
        output = about_of(metadata).get("output", self._output)
        if self.state is TaskState.CANCELLED:
            self._events.append(RunEnded(status=RunStatus.CANCELLED, reason=RunReason.CALLER, usage=usage))
        elif usage or output is not None:
            self._events.append(RunEnded(output=output, usage=usage))

    def _last_words(self, message: w.Message, decoded: DecodedContent) -> None:
        """Many servers answer in the message of the last status. Where there was an answer before, it is a remark, or
        the same again."""
        if message.messageId in self._remarks:
            return
        text = text_of(tuple(decoded.parts))
        if self.state is not TaskState.COMPLETED or self._answered or decoded.is_thought or not decoded.parts:
            if text and text in self._texts():
                decoded.parts = [part for part in decoded.parts if isinstance(part, ReasoningPart)]
            self._remark(message, decoded)
            return
        self._activity.use(self._events, decoded.tools, message)
        self._whole([*decoded.parts, *decoded.citations], "answer", message)
        self._activity.tell_groups(self._events, decoded.groups)
        if decoded.progress:
            self._whole(decoded.progress, "progress", message, aside=True)

    def _answer_by_progress(self) -> None:
        """A task that completes without any answer has given it on the way: what was said is the answer after all."""
        lines = last_versions(self._progress.values())
        if any(lines):
            # Who cites counts characters of pieces that belong together (agentstack-sdk 0.7.1).
            text = TextPart(text=("" if self._citations else "\n").join(lines))
            start = len(self._events)
            self._whole([text, *self._citations], "answer")
            self._events[start] = self._events[start].replace(extra={AGAIN: {}})

    def _texts(self) -> set[str]:
        """Of the answers so far."""
        spoken = () if self._spoken is None else (self._spoken.text,)
        return {*self._answers, *spoken, *(tracker.text for tracker in self._trackers.values())}

    def _from_history(self, task: w.Task) -> None:
        """What the server said while nobody listened, since the caller's last message. Some keep their answer nowhere
        else: then it is the last of it."""
        said = since_caller(task.history or ())
        for message in said:
            self._usage.count_history(message.metadata, message.messageId)
        status = task.status or w.TaskStatus()
        known: set[str | None] = {*self._remarks, *self._questions.marks}
        if status.message is not None:
            known.add(status.message.messageId)
        news = [(each, self._decode_marks(each)) for each in said if each.messageId not in known]
        for _, decoded in news:
            if text_of(tuple(decoded.parts)) in {"", *self._texts()}:
                decoded.parts = [part for part in decoded.parts if isinstance(part, ReasoningPart)]
        ended = decode_state(status.state) is TaskState.COMPLETED and status.message is None
        spoken = [(each, decoded) for each, decoded in news if text_of(tuple(decoded.parts))]
        answer = spoken[-1] if spoken and ended and not self._answered and not self._trackers else None
        for message, decoded in news:
            # Without an id nobody could tell that it was told.
            if (
                message.messageId
                and (answer is None or message is not answer[0])
                and (decoded.parts or decoded.tools or decoded.states)
            ):
                self._remark(message, decoded)
        if answer is not None:
            self._activity.use(self._events, answer[1].tools, answer[0])
            self._whole([*answer[1].parts, *answer[1].citations], "answer", answer[0])

    def _tell_about(self, metadata: JsonObject | None) -> JsonObject:
        """What a gateway like this one adds: what got lost before it came here, and the usage, which is returned."""
        about = about_of(metadata)
        for feature, how in as_object(about.get("loss")).items():
            if isinstance(how, str) and how != BESIDE:  # which was read
                self._lose(feature, how)
        return to_snake_case(as_object(about.get("usage")))

    # Artifacts

    def _decode_artifact(self, artifact: w.Artifact) -> DecodedContent:
        parts = self._read_parts(artifact).parts
        artifact_id = artifact.artifactId or artifact.name or ""
        decoded = decode_artifact(parts, artifact_id, artifact.metadata, self.task_id)
        if decoded.output is not None:
            self._output = decoded.output
        return decoded

    def _artifact(
        self,
        artifact: w.Artifact,
        *,
        append: bool,
        last: bool | None,
        piece: Piece | None = None,
        citations: Sequence[AnnotationPart] = (),
    ) -> None:
        """Without `append` it is all of the artifact, of which some may have been told. `piece`: it came alone, and not
        in a task. `citations`: that were told of it before."""
        decoded = self._decode_artifact(artifact)
        decoded.citations += citations
        if kind_of(artifact) is None:  # a gateway like this one says it beside its artifacts, too
            self._tell_states(decoded, artifact.artifactId or artifact.name or "", is_shown=False)
        self._usage.count(artifact.metadata, artifact.artifactId)
        # Thoughts come before calls, and calls before what is said of them.
        is_thought = bool(decoded.parts) and isinstance(decoded.parts[0], ReasoningPart)
        if not is_thought:
            self._activity.use(self._events, decoded.tools)
        self._artifact_parts(artifact, decoded, append=append, last=last, piece=piece)
        if is_thought:
            self._activity.use(self._events, decoded.tools)

    def _artifact_parts(
        self, artifact: w.Artifact, decoded: DecodedContent, *, append: bool, last: bool | None, piece: Piece | None
    ) -> None:
        if kind_of(artifact) == "output":  # which nobody said: the task's metadata tell it
            return
        # Nothing to show, although an artifact must have a part (specification 1.0, 4.1.7).
        if not decoded.parts or self._questions.hold(artifact.name, decoded.parts):
            return
        if any(isinstance(part, ReasoningPart) for part in decoded.parts):
            piece = None  # a piece that is thought is no piece of what A2A's callers see
        artifact_id = artifact.artifactId or artifact.name or ""
        tracker = self._trackers.get(artifact_id) or self._find_growing(artifact_id, decoded)
        if tracker is None:
            tracker = self._trackers[artifact_id] = ArtifactTracker(artifact_id, file=is_file(artifact, decoded.parts))
            # fasta2a 2.1.1 appends its first piece to nothing, which the client of a2a-sdk 1.3.0 refuses to read.
            piece = None if piece is None else Piece(piece.last, append=False, beside=piece.beside)
            self._tell_artifact(
                tracker, artifact, decoded.parts, last=last, fresh=True, piece=piece, citations=decoded.citations
            )
            return
        if not append and tracker.merged_parts and not any(map(has_content, decoded.parts)):
            self._take_back(tracker)
            return
        parts = decoded.parts if append else rest(tracker.merged_parts, decoded.parts)
        if parts is not None:
            self._tell_artifact(
                tracker, artifact, parts, last=last, fresh=False, piece=piece, citations=decoded.citations
            )
            return
        tracker.merged_parts.clear()
        tracker.close(self._events)
        if not tracker.file:
            self._lose("artifact", _SAID_ANEW)
        self._tell_artifact(
            tracker, artifact, decoded.parts, last=last, fresh=True, piece=piece, citations=decoded.citations
        )

    def _find_growing(self, artifact_id: str, decoded: DecodedContent) -> ArtifactTracker | None:
        """The answer that is an artifact in the end: most of it, or all, has been told."""
        tracker = self._spoken
        text = text_of(tuple(decoded.parts))
        if (
            not self.says_all_again
            or tracker is None
            or tracker.message_id is None
            or not text.startswith(tracker.text)
        ):
            return None
        self._spoken, tracker.artifact_id = None, artifact_id
        self._trackers[artifact_id] = tracker
        return tracker

    def _take_back(self, tracker: ArtifactTracker) -> None:
        """It was replaced by nothing: a gateway like this one does so when its agent starts over."""
        tracker.merged_parts.clear()
        tracker.close(self._events)
        tracker.added = False  # a file is replaced by what comes
        self._lose("artifact", _SAID_ANEW)

    def _tell_artifact(
        self,
        tracker: ArtifactTracker,
        artifact: w.Artifact,
        parts: Sequence[Part],
        *,
        last: bool | None,
        fresh: bool,
        piece: Piece | None,
        citations: Sequence[AnnotationPart],
    ) -> None:
        start = len(self._events)
        if tracker.file:
            appends = tracker.added and not fresh
            # An id of the run's: the server's own names are unique within its task only.
            artifact_id = derived_id(self._run_id, "artifact", tracker.artifact_id)
            tracker.give(artifact, parts, self._events, artifact_id=artifact_id, last=last, fresh=fresh)
            if piece is not None:
                piece.mark(self._events, start, append=appends)
            return
        begun = tracker.message_id is None and (fresh or any(has_content(part) for part in parts))
        if begun:
            name, description = artifact.name, artifact.description
            own = as_extra(artifact, artifactId=tracker.artifact_id, name=name, description=description)
            is_thought = bool(parts) and all(isinstance(part, ReasoningPart) for part in parts)
            tracker.message_id = self._start("answer", metadata_of(artifact), own, is_thought=is_thought)
        if tracker.message_id is not None:
            tracker.say(parts, self._events, begun=begun)
            told = piece is not None and piece.mark(self._events, start, append=not begun)
            tracker.cut = told or (piece is not None and not last and tracker.cut)
            self._answered = self._answered or any(not isinstance(part, ReasoningPart) for part in parts)
        if not tracker.cite(citations, self._events):
            self._lose("citation", _CITED_LATE)
        if last:
            tracker.close(self._events)

    def _finish(self) -> None:
        for tracker in self._trackers.values():
            tracker.close(self._events)
        if self._spoken is not None:
            self._spoken.close(self._events)
