"""The records of a task → what A2A shows of it, in no version's spelling.

One writer serves all dialects, live streams, replays, webhooks and `GetTask` alike: whatever it gives out it also
applies to its own snapshot, so a task that is fetched is the fold of the stream that led to it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, cast

import msgspec

from babelgate.adapters.a2a.codec.names import to_camel_case
from babelgate.adapters.a2a.frameworks.langgraph_api import write_question
from babelgate.adapters.a2a.wire.task import (
    AGAIN,
    BESIDE,
    CHUNK,
    DRAFT,
    IN_STATUS,
    NO_FORM,
    PROTOCOL,
    SHOWN,
    STATUS,
    TASK,
    Artifact,
    ArtifactUpdate,
    Status,
    StatusUpdate,
    TaskSnapshot,
    Update,
    derived_id,
    is_activity,
    is_reply,
    shown_part,
)
from babelgate.adapters.a2a.write import activity
from babelgate.adapters.kit.extension import encode_said
from babelgate.canonical import (
    AnnotationPart,
    DataPart,
    Event,
    Fault,
    Feature,
    FilePart,
    Message,
    Part,
    ReasoningPart,
    Record,
    RefusalPart,
    Task,
    TaskState,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptAnswered,
    InterruptRaised,
    LossNoted,
    MessageEnded,
    MessageStarted,
    Native,
    PartAdded,
    PartDelta,
    PartEnded,
    RunCreated,
    RunEnded,
    RunStarted,
    StepEnded,
    StepStarted,
    TaskChanged,
    TaskCreated,
    ToolEnded,
    ToolStarted,
)
from babelgate.canonical.fold import extend_part
from babelgate.canonical.growing import GrowingText, grow
from babelgate.canonical.state import TERMINAL, WAITING
from babelgate.canonical.thread import Loss, losses_by_feature
from babelgate.canonical.value import Extra, Json, JsonObject

_EMPTY: Final = TextPart(text="")
"""An artifact and a message must have a part (specification 1.0, 4.1.4 and 4.1.7)."""


class _Origin(msgspec.Struct, frozen=True):
    """Who said something, and in which message."""

    run_id: str | None = None
    message_id: str | None = None

    def is_void(self, record: Record, start: RunStarted) -> bool:
        """Once a run starts over."""
        return self.run_id == record.run_id and start.is_void(self.message_id)


@dataclass(slots=True)
class _OpenArtifact:
    """An artifact while its pieces arrive. Text is gathered in lists and joined when somebody looks."""

    artifact: Artifact
    origin: _Origin
    void: bool = False
    parts: list[Part] = field(default_factory=list[Part])
    deltas: dict[int, GrowingText] = field(default_factory=dict[int, GrowingText])
    gathered: list[Part] = field(default_factory=list[Part])
    """Parts of a piece that is not complete."""

    def value(self) -> Artifact:
        for index, said in self.deltas.items():
            self.parts[index] = extend_part(self.parts[index], said.join())
        self.deltas.clear()
        return self.piece(*self.parts or (_EMPTY,))

    def piece(self, *parts: Part) -> Artifact:
        whole = self.artifact
        return Artifact(whole.artifact_id, parts, whole.name, whole.description, whole.metadata, whole.own)


@dataclass(slots=True)
class _OpenMessage:
    """A message of the agent while it is open."""

    started: MessageStarted
    origin: _Origin
    parts: list[Part] = field(default_factory=list[Part])
    deltas: dict[int, GrowingText] = field(default_factory=dict[int, GrowingText])
    artifact: _OpenArtifact | None = None
    """Where it shows, from its first piece on; None for what is no answer."""
    places: dict[int, int] = field(default_factory=dict[int, int])
    """Index of a part in the message → in the artifact."""
    gathered: list[tuple[int, Part]] = field(default_factory=list[tuple[int, Part]])
    """Parts of a piece that is not complete, each with its index in the message."""
    activity: int | None = None
    """Index of a thought or a call that is not complete."""
    citations: list[AnnotationPart] = field(default_factory=list[AnnotationPart])
    held: tuple[int, Part] | None = None
    """A whole part that is no text, kept until it is known whether it is the last: then it can say so itself."""

    def message(self) -> Message:
        for index, said in self.deltas.items():
            self.parts[index] = extend_part(self.parts[index], said.join())
        self.deltas.clear()
        said = self.started
        shown = [part for part in (shown_part(part)[0] for part in self.parts) if part is not None]
        return Message(
            message_id=said.message_id,
            role=said.role,
            name=said.name,
            phase=said.phase,
            parts=tuple(shown) or (_EMPTY,),
            metadata=said.metadata,
            extra=said.extra,
        )


def _own(extra: Extra) -> JsonObject:
    """What another A2A server said of an artifact; nothing of what came otherwise."""
    own: JsonObject = extra.get(PROTOCOL) or {}
    return own if "artifactId" in own else {}


def _is_more_text(event: PartDelta, part: Part) -> bool:
    """Whether it does nothing but add some plain text."""
    plain = type(part) is TextPart and part.media_type is None and not part.metadata
    return plain and not event.extra and bool(event.text)


def _mark(event: PartAdded | PartDelta | MessageEnded | ArtifactAdded) -> JsonObject | None:
    """How an event that came as a piece of an artifact is shown (`CHUNK`); None if as any other."""
    mark = event.extra.get(CHUNK) if event.extra else None
    return cast("JsonObject", mark) if isinstance(mark, dict) else None


class EventWriter:
    """Feed it the records of one task, in order, from the task's first on."""

    def __init__(self, task: Task, context_id: str, *, in_pieces: bool = True) -> None:
        """`in_pieces`: show a growing answer. Otherwise it is one update, once it is complete."""
        # Only what never changes is taken of the task: the rest is said by its records.
        self.task_id = task.task_id
        self.thread_id = task.thread_id
        self.context_id = context_id
        self.run_id: str | None = None
        self.status = Status(TaskState.SUBMITTED, task.created_at)
        self.losses: dict[Loss, None] = {}
        self._in_pieces = in_pieces
        self._metadata = task.metadata
        self._usage: JsonObject = {}
        self._fault: Fault | None = None
        self._references: tuple[str, ...] = ()
        self._history: list[tuple[Message, _Origin]] = []
        self._status_origin = _Origin()
        """Of its message."""
        self._status_place = 0
        """Where in the history the status's message belongs once another status follows."""
        self._artifacts: dict[str, _OpenArtifact] = {}
        self._files: dict[str, _OpenArtifact] = {}
        """Of them, those that are no messages, by our own ids."""
        self._answers = 0
        self._outputs = 0
        self._output: Json = None
        self._data: list[Json] = []
        """Data that the current run said in messages: an output that only repeats it is not shown again."""
        self._saying: dict[str, _OpenMessage] = {}
        self._open: dict[str, InterruptRaised] = {}
        self._own: JsonObject = {}
        self._calls: dict[str, str] = {}
        """Tools that were begun, by id: their names. Some agents tell of a call in a message, and then again."""
        self._returned: set[str] = set()
        """Ids of those whose end was told."""
        self._untold: JsonObject = {}
        """Metadata of the server's task that streams have not shown: the task that they begin with is older."""
        self._is_relayed = False
        """Another A2A server tells of the task: it has said there what it says of usage."""
        self._mirrored: set[str] = set()
        """The server's ids of messages that are shown as it said them, and not as they were read."""
        self._stopped: JsonObject = {}
        """How the server said that its task stops, until it does."""

    def snapshot(self) -> TaskSnapshot:
        return TaskSnapshot(
            task_id=self.task_id,
            context_id=self.context_id,
            status=self.status,
            artifacts=tuple(artifact.value() for artifact in self._artifacts.values()),
            history=tuple(message for message, _ in self._history),
            metadata={**self._metadata, "babelgate": self._about()},
            own=self._own,
        )

    @property
    def reply(self) -> Message | None:
        """All that the agent said, where it answered with a message and no task."""
        said = [message for message, _ in self._history if message.role == "agent"]
        alone = len(said) == 1 and len(self._artifacts) == 1 and is_reply(said[0].extra)
        return said[0] if alone and self.status.state is TaskState.COMPLETED else None

    def write(self, record: Record) -> Sequence[Update]:
        """What a stream shows of this record; a stream's first event, the snapshot, is the caller's to take."""
        handle = self._handlers.get(record.event.kind)
        return () if handle is None else handle(self, record.event, record)

    def _note(self, event: Event, record: Record) -> Sequence[Update]:
        """Records that change what is known, and show nothing by themselves."""
        match event:
            case MessageStarted(extra=extra) if self._is_shown(extra):
                pass
            case MessageStarted():
                self._saying[event.message_id or ""] = _OpenMessage(event, _Origin(record.run_id, event.message_id))
            case TaskCreated():
                self.status = Status(TaskState.SUBMITTED, record.at)
                self._metadata = event.metadata
                before = () if event.continues is None else (event.continues,)
                self._references = tuple(dict.fromkeys((*before, *event.references)))
            case RunCreated():
                self.run_id = event.run_id
                self._output = None
                self._data.clear()
                self._calls.clear()
                self._returned.clear()
                self._history += [(self._add_references(message), _Origin()) for message in event.messages]
                self._references = ()
            case InterruptRaised():
                self._open[event.interrupt_id or ""] = event
            case InterruptAnswered():
                self._open.pop(event.interrupt_id, None)
            case LossNoted():
                self.losses[Loss(feature=event.feature, how=event.how)] = None
            case _:
                pass
        return ()

    def _event_update(self, event: StepStarted | StepEnded | Custom, record: Record) -> Sequence[Update]:
        """What A2A has no form for goes with a status that changes nothing: others look past it."""
        if SHOWN in event.extra:
            return ()
        feature = Feature.CUSTOM if isinstance(event, Custom) else Feature.STEP
        self.losses[Loss(feature=feature, how=BESIDE)] = None
        told: JsonObject = {"metadata": {"babelgate": {"event": encode_said(event)}}}
        shown = Status(self.status.state, record.at, own=self.status.own)
        return (self._new_status(shown, _Origin(), told),)

    def _is_shown(self, extra: Extra) -> bool:
        """Whether it was read of what is shown as the server said it."""
        if not extra:
            return False
        own: JsonObject = extra.get(PROTOCOL) or {}
        if AGAIN in extra or DRAFT in extra:
            return True
        return (IN_STATUS in extra and bool(self._mirrored)) or own.get("messageId") in self._mirrored

    def _add_references(self, message: Message) -> Message:
        """The first input of a task that goes on from others names them (specification 1.0, 3.4.3)."""
        own: JsonObject = message.extra.get(PROTOCOL) or {}
        if not self._references or own.get("referenceTaskIds"):
            return message
        extra = {**message.extra, PROTOCOL: {**own, "referenceTaskIds": list(self._references)}}
        return message.replace(extra=extra)

    # A run that starts over

    def _write_run_start(self, event: RunStarted, record: Record) -> Sequence[Update]:
        """What it had said is void: the task works anew, and each of its artifacts is replaced, by nothing as yet."""
        if not event.is_restart:
            return ()
        void = [each for each in self._artifacts.values() if not each.void and each.origin.is_void(record, event)]
        remarked = self.status.message is not None and self._status_origin.is_void(record, event)
        before, after = self._history[: self._status_place], self._history[self._status_place :]
        before, after = ([each for each in part if not each[1].is_void(record, event)] for part in (before, after))
        self._history, self._status_place = [*before, *after], len(before)
        if event.is_void(None):
            self._data.clear()
            self._calls.clear()
            self._returned.clear()
        if not void and not remarked:
            return ()
        if remarked:
            self.status = Status(self.status.state, self.status.at)
        updates: list[Update] = [self._new_status(Status(self.status.state, record.at), _Origin())]
        for growing in void:
            # An artifact cannot be taken back, only replaced: an update without `append` (specification 1.0, 4.2.2).
            growing.parts, growing.deltas, growing.void = [_EMPTY], {}, True
            updates.append(self._artifact_update(growing.value(), append=False, last=True))
        self._answers = 0  # what is said anew takes the places of what is void
        return updates

    # Status

    def _write_task_change(self, event: TaskChanged, record: Record) -> Sequence[Update]:
        message: Message | None = None
        theirs, self._stopped = self._stopped, {}
        if theirs.get("state") != event.state:
            theirs = {}
        if "message" in theirs:
            message = self._as_said(theirs, event.fault or self._fault)
        elif event.state in WAITING:
            # Specification 1.0, 3.7: the message of a status is for what the caller has to know now; results belong in
            # artifacts.
            message = self._question(record)
        elif event.state in TERMINAL and event.state != TaskState.COMPLETED:
            fault = event.fault or self._fault
            if fault is not None and event.state != TaskState.CANCELLED:
                message = self._status_message(
                    record, (TextPart(text=fault.message),), {"babelgate": {"fault": fault.code.value}}
                )
        status = Status(event.state, record.at, message, theirs.get("status") or {})
        if event.state in TERMINAL and not self._is_relayed:
            theirs = {"metadata": activity.encode_usage(self._usage)}
        return (self._new_status(status, _Origin(), theirs),)

    def _native(self, event: Native, record: Record) -> Sequence[Update]:
        """What another A2A server says of its task beside all that is read of it."""
        theirs: JsonObject = event.extra.get(PROTOCOL) or {}
        if event.protocol != PROTOCOL or event.event not in (STATUS, TASK) or not theirs:
            return ()
        self._is_relayed = True
        if event.event == TASK:
            self._own = {**self._own, **(theirs.get("own") or {})}
            self._untold = {**self._untold, **(theirs.get("metadata") or {})}
            self._metadata = {**self._metadata, **self._untold}
            return ()
        if "message" in theirs:
            self._mirrored.add(theirs["message"]["extra"][PROTOCOL]["messageId"])
        state = TaskState(theirs["state"])
        if state in TERMINAL or state in WAITING:
            self._stopped = theirs
            return ()
        message = self._as_said(theirs) if "message" in theirs else None
        status = Status(self.status.state, record.at, message, theirs.get("status") or {})
        return (self._new_status(status, _Origin(record.run_id), theirs),)

    @staticmethod
    def _as_said(theirs: JsonObject, fault: Fault | None = None) -> Message:
        said = msgspec.convert(theirs["message"], Message)
        if fault is not None:
            said = said.replace(metadata={**said.metadata, "babelgate": {"fault": fault.code.value}})
        return said if said.parts else said.replace(parts=(_EMPTY,))

    def _new_status(self, status: Status, origin: _Origin, theirs: JsonObject | None = None) -> StatusUpdate:
        beside = theirs or {}
        metadata: JsonObject = {**self._untold, **(beside.get("metadata") or {})}
        self._untold = {}
        # The SDKs' servers (a2a-sdk 0.3.26, 1.3.0) merge it into the task's.
        self._metadata = {**self._metadata, **metadata}
        if self.status.message is not None:
            self._history.insert(self._status_place, (self.status.message, self._status_origin))
        self._status_place = len(self._history)
        self.status, self._status_origin = status, origin
        return StatusUpdate(
            task_id=self.task_id,
            context_id=self.context_id,
            status=status,
            # Once, with the end: each event would repeat it.
            metadata={**metadata, "babelgate": self._about()} if status.is_stop else metadata,
            own=beside.get("own") or {},
        )

    def _question(self, record: Record) -> Message:
        """All open questions in one message. Each brings a data part with its id, by which it can be answered alone. A
        single one has its schema in the metadata, and no data part if its words say all there is: Microsoft's Agent
        Framework shows data to its user."""
        parts: list[Part] = []
        metadata: JsonObject = {}
        for interrupt_id, asked in self._open.items():
            for part in asked.message.parts:
                shown, loss = shown_part(part)
                if loss is not None:
                    self.losses[loss] = None
                if shown is not None:
                    parts.append(shown)
            said, schema = asked.message.text, asked.answer_schema
            if len(self._open) == 1:
                metadata = {"babelgate": {"question": interrupt_id, **({} if schema is None else {"schema": schema})}}
                if said and asked.value in (None, said):
                    continue
                schema = None
            parts.append(write_question(interrupt_id, asked.value, schema))
        return self._status_message(record, tuple(parts) or (_EMPTY,), metadata)

    def _status_message(self, record: Record, parts: tuple[Part, ...], metadata: JsonObject) -> Message:
        message_id = derived_id(self.task_id, "status", str(record.seq))
        return Message(message_id=message_id, role="agent", parts=parts, metadata=metadata)

    def _about(self) -> JsonObject:
        about: JsonObject = {"threadId": self.thread_id, "taskId": self.task_id, "runId": self.run_id}
        if self._usage:
            about["usage"] = to_camel_case(self._usage)
        if self._output is not None:
            about["output"] = self._output
        if self.losses:
            about["loss"] = losses_by_feature(self.losses)
        return about

    # What the agent does

    def _tool_started(self, event: ToolStarted, record: Record) -> Sequence[Update]:
        call_id = event.call_id or ""
        if self._is_shown(event.extra):
            self._returned.add(call_id)  # as its server says it, or not at all
            return ()
        if call_id and call_id in self._calls:
            return ()
        self._calls[call_id] = event.name
        part, metadata = activity.encode_call(event)
        return (self._doing(record, part, metadata),)

    def _tool_ended(self, event: ToolEnded, record: Record) -> Sequence[Update]:
        call_id = event.call_id or ""
        if self._is_shown(event.extra) or (call_id and call_id in self._returned):
            return ()
        self._returned.add(call_id)
        part, metadata = activity.encode_result(event)
        return (self._doing(record, part, metadata),)

    def _doing(self, record: Record, part: Part, metadata: JsonObject, message_id: str | None = None) -> StatusUpdate:
        """The message of a status: what an agent does, and its answer, are told apart so (specification 1.0, 3.7)."""
        message = self._status_message(record, (part,), metadata)
        return self._new_status(Status(self.status.state, record.at, message), _Origin(record.run_id, message_id))

    def _end_activity(self, saying: _OpenMessage, record: Record) -> Sequence[Update]:
        """Tell of the thought or the call that is complete: whole, since each is kept in the history."""
        index, saying.activity = saying.activity, None
        if index is None:
            return ()
        part = extend_part(saying.parts[index], saying.deltas.pop(index, GrowingText()).join())
        saying.parts[index] = part
        match part:
            case ReasoningPart(text="") | ToolCallPart(name=""):
                return ()
            case ReasoningPart():
                return (self._doing(record, *activity.encode_thought(part), saying.started.message_id),)
            case ToolCallPart():
                return self._tool_started(activity.as_call(part), record)
            case ToolResultPart():
                return self._tool_ended(activity.as_result(part, self._calls.get(part.call_id, "tool")), record)
            case _:
                return ()

    def _part_ended(self, event: PartEnded, record: Record) -> Sequence[Update]:
        saying = self._saying.get(event.message_id or "")
        return () if saying is None else self._end_activity(saying, record)

    # Messages

    def _part(self, event: PartAdded, record: Record) -> Sequence[Update]:
        saying = self._saying.get(event.message_id or "")
        if saying is None:
            return ()
        before = self._end_activity(saying, record)
        index = len(saying.parts)
        saying.parts.append(event.part)
        if is_activity(event.part):
            saying.activity = index
            return (*before, *(() if event.open else self._end_activity(saying, record)))
        if isinstance(event.part, AnnotationPart):
            saying.citations.append(event.part)
            return before
        return (*before, *self._show_part(saying, index, event))

    def _show_part(self, saying: _OpenMessage, index: int, event: PartAdded) -> Sequence[Update]:
        shown, loss = shown_part(event.part)
        if loss is not None:
            self.losses[loss] = None
        if shown is None or not self._is_answer(saying):
            return ()
        flushed = self._flush(saying)
        mark = _mark(event)
        if mark is not None:
            if isinstance(shown, DataPart):
                self._data.append(shown.data)
            return (*flushed, *self._as_it_came(saying, index, shown, mark))
        if isinstance(shown, TextPart):
            # An open part's text may come entirely in deltas: no piece is sent for nothing.
            return (*flushed, *self._write_piece(saying, index, shown)) if shown.text else flushed
        if isinstance(shown, DataPart):
            self._data.append(shown.data)
        saying.held = (index, shown)
        return flushed

    def _delta(self, event: PartDelta, record: Record) -> Sequence[Update]:
        grown = self.add_texts(record, (event.text,))
        if grown is not None:
            piece = msgspec.structs.replace(grown, parts=(TextPart(text=event.text),))
            return (self._artifact_update(piece, append=True, last=False),)
        saying = self._saying.get(event.message_id or "")
        if saying is None or not saying.parts:
            return ()
        index = len(saying.parts) - 1 if event.index is None else event.index
        grow(saying.deltas, index).append(event.text)
        part = saying.parts[index]
        if not event.text or not isinstance(part, TextPart | RefusalPart) or not self._is_answer(saying):
            return ()
        shown = shown_part(part)[0]
        assert isinstance(shown, TextPart)
        if shown.media_type is None and not shown.metadata:
            piece = TextPart(text=event.text)
        else:
            piece = shown.replace(text=event.text)
        mark = _mark(event)
        if mark is not None:
            return (*self._flush(saying), *self._as_it_came(saying, index, piece, mark))
        return (*self._flush(saying), *self._write_piece(saying, index, piece))

    def add_texts(self, record: Record, texts: Sequence[str]) -> Artifact | None:
        """What `record` and those behind it add to one part, and they nothing else
        (`babelgate.adapters.kit.server.passages`): the artifact that it is more of. None where it is not as simple, and
        each has to be written."""
        event = record.event
        saying = self._saying.get(event.message_id or "") if type(event) is PartDelta else None
        if type(event) is not PartDelta or saying is None or saying.artifact is None or saying.held is not None:
            return None
        if not self._in_pieces:
            return None
        index = len(saying.parts) - 1 if event.index is None else event.index
        place = saying.places.get(index)
        if place is None or not _is_more_text(event, saying.parts[index]):
            return None
        grow(saying.deltas, index).extend(texts)
        grow(saying.artifact.deltas, place).extend(texts)
        return saying.artifact.artifact

    def _write_message_end(self, event: MessageEnded, record: Record) -> Sequence[Update]:
        saying = self._saying.pop(event.message_id or "", None)
        if saying is None:
            return ()
        self._usage = {**self._usage, **event.usage}
        updates = self._end_activity(saying, record)
        shown = not saying.parts or any(shown_part(part)[0] is not None for part in saying.parts)
        if saying.citations and not shown:
            self.losses[Loss(feature=Feature.CITATION, how=NO_FORM)] = None
        # A2A has no events of messages: what is said on the way is the message of a status (specification 1.0, 3.7).
        if saying.started.phase == "progress":
            if not shown:
                return updates
            said = saying.message()
            if saying.citations:
                said = said.replace(metadata={**said.metadata, **activity.encode_citations(saying.citations)})
            return (*updates, self._new_status(Status(self.status.state, record.at, said), saying.origin))
        if self._is_answer(saying):
            updates = (*updates, *self._finish_artifact(saying, event))
        # Servers have in the history what is said, and not what artifacts hold.
        if shown and not _own(saying.started.extra):
            self._history.append((saying.message(), saying.origin))
        return updates

    def _finish_artifact(self, saying: _OpenMessage, event: MessageEnded) -> Sequence[Update]:
        """The last piece says that it is the last: some clients show a streamed artifact only then. If others came
        before, it is all of it (`append` false: specification 1.0, 4.2.2): google-adk 2.13.0 keeps what the last piece
        holds, and nothing else. Pieces of another server's have said it themselves, or never do."""
        if _mark(event) is not None and saying.artifact is not None and saying.held is None:
            return ()
        if (
            saying.artifact is None
            and saying.held is None
            and any(shown_part(part)[0] is None for part in saying.parts)
        ):
            return ()  # nothing of it can be shown
        if saying.artifact is None and saying.held is not None:
            growing, _ = self._open_artifact(saying)
            self._cite(saying, growing)
            self._grow(growing, saying, *saying.held)
            saying.held = None
            return (self._artifact_update(growing.value(), append=False, last=True),)
        growing, append = self._open_artifact(saying)
        self._cite(saying, growing)
        if not append:
            return (self._artifact_update(growing.piece(_EMPTY), append=False, last=True),)
        if saying.held is not None:
            self._grow(growing, saying, *saying.held)
            saying.held = None
        return (self._artifact_update(growing.value(), append=False, last=True),)

    @staticmethod
    def _cite(saying: _OpenMessage, growing: _OpenArtifact) -> None:
        """What its text cites, beside the metadata that it has: unless another server has said it there itself."""
        whole = growing.artifact
        if not saying.citations or activity.is_cited(whole.metadata):
            return
        extensions = [*(whole.own.get("extensions") or ()), activity.CITATION]
        growing.artifact = msgspec.structs.replace(
            whole,
            metadata={**whole.metadata, **activity.encode_citations(saying.citations)},
            own={**whole.own, "extensions": extensions},
        )

    @staticmethod
    def _is_answer(saying: _OpenMessage) -> bool:
        return saying.started.phase == "answer" and saying.started.role == "agent"

    def _flush(self, saying: _OpenMessage) -> Sequence[Update]:
        if saying.held is None:
            return ()
        index, part = saying.held
        saying.held = None
        return self._write_piece(saying, index, part)

    def _open_artifact(self, saying: _OpenMessage) -> tuple[_OpenArtifact, bool]:
        """The artifact of this message, and whether it was begun before."""
        if saying.artifact is not None:
            return saying.artifact, True
        # Results belong in artifacts (specification 1.0, 3.7). Numbered from the first piece on, so that a message of
        # which nothing can be shown leaves no hole.
        own = dict(_own(saying.started.extra))
        artifact_id = self._artifact_id(own.pop("artifactId", None))
        artifact = Artifact(
            artifact_id=artifact_id,
            name=own.pop("name", None),
            description=own.pop("description", None),
            metadata={**saying.started.metadata, **self._file_mark(saying)},
            own=own,
        )
        saying.artifact = self._artifacts[artifact.artifact_id] = _OpenArtifact(artifact, saying.origin)
        return saying.artifact, False

    @staticmethod
    def _file_mark(saying: _OpenMessage) -> JsonObject:
        """Of an answer that begins with a file, and that others therefore take for an artifact."""
        first = next((part for part in (shown_part(part)[0] for part in saying.parts) if part is not None), None)
        is_theirs = bool(_own(saying.started.extra))
        return {"babelgate": {"kind": "answer"}} if isinstance(first, FilePart) and not is_theirs else {}

    def _artifact_id(self, theirs: str | None) -> str:
        """The server's own, unless another artifact of the task has it."""
        if theirs and ((known := self._artifacts.get(theirs)) is None or known.void):
            return theirs
        self._answers += 1
        while (known := self._artifacts.get(f"answer-{self._answers}")) is not None and not known.void:
            self._answers += 1
        return f"answer-{self._answers}"

    def _write_piece(self, saying: _OpenMessage, index: int, part: Part) -> Sequence[Update]:
        growing, append = self._open_artifact(saying)
        self._grow(growing, saying, index, part)
        return (self._artifact_update(growing.piece(part), append=append, last=False),) if self._in_pieces else ()

    @staticmethod
    def _grow(growing: _OpenArtifact, saying: _OpenMessage, index: int, part: Part) -> None:
        place = saying.places.get(index)
        if place is None:
            saying.places[index] = len(growing.parts)
            growing.parts.append(part)
        elif isinstance(part, TextPart):
            grow(growing.deltas, place).append(part.text)

    def _as_it_came(self, saying: _OpenMessage, index: int, part: Part, mark: JsonObject) -> Sequence[ArtifactUpdate]:
        """A piece of another server's artifact: all its parts, once they are there."""
        saying.gathered.append((index, part))
        if not mark:
            return ()
        growing, _ = self._open_artifact(saying)
        gathered, saying.gathered = saying.gathered, []
        for place, each in gathered:
            self._grow(growing, saying, place, each)
        return (self._marked_update(growing.piece(*(each for _, each in gathered)), mark),)

    def _marked_update(self, artifact: Artifact, mark: JsonObject) -> ArtifactUpdate:
        update = self._artifact_update(artifact, append=mark.get("append") is True, last=mark.get("lastChunk") is True)
        return msgspec.structs.replace(update, metadata=mark.get("metadata") or {}, own=mark.get("own") or {})

    def _artifact_update(self, artifact: Artifact, *, append: bool, last: bool) -> ArtifactUpdate:
        return ArtifactUpdate(
            task_id=self.task_id, context_id=self.context_id, artifact=artifact, append=append, last=last
        )

    # Artifacts and ends

    def _artifact(self, event: ArtifactAdded, record: Record) -> Sequence[Update]:
        if event.origin == "caller":  # an upload: A2A callers send files in messages, and it is no output of the task
            return ()
        shown, loss = shown_part(event.part)
        if loss is not None:
            self.losses[loss] = None
        part = shown or _EMPTY
        artifact_id = event.artifact_id or ""
        growing = self._files.get(artifact_id)
        append = event.append and growing is not None
        if growing is None or not append:
            own = dict(_own(event.extra))
            theirs = own.pop("artifactId", None)
            shown_id = growing.artifact.artifact_id if growing is not None else self._file_id(artifact_id, theirs)
            artifact = Artifact(
                artifact_id=shown_id,
                name=event.name,
                description=event.description,
                metadata=event.metadata,
                own=own,
            )
            growing = self._artifacts[shown_id] = self._files[artifact_id] = _OpenArtifact(
                artifact, _Origin(record.run_id)
            )
        mark = _mark(event)
        if mark is None:
            growing.parts.append(part)
            return (self._artifact_update(growing.piece(part), append=append, last=event.last),)
        growing.gathered.append(part)
        if not mark:
            return ()
        gathered, growing.gathered = growing.gathered, []
        growing.parts += gathered
        return (self._marked_update(growing.piece(*gathered), mark),)

    def _file_id(self, ours: str, theirs: str | None) -> str:
        return theirs if theirs and theirs not in self._artifacts else ours

    def _run_ended(self, event: RunEnded, record: Record) -> Sequence[Update]:
        self._fault = event.fault
        self._usage = {**self._usage, **event.usage}
        self._output = event.output
        if event.output is None or event.output in self._data:
            return ()
        self._outputs += 1
        artifact_id = f"output-{self._outputs}"
        growing = self._artifacts[artifact_id] = _OpenArtifact(
            # A2A has no structured output: an artifact with a data part.
            Artifact(artifact_id=artifact_id, name="output", metadata={"babelgate": {"kind": "output"}}),
            _Origin(record.run_id),
        )
        growing.parts.append(DataPart(data=event.output))
        return (self._artifact_update(growing.value(), append=False, last=True),)

    # By kind and not by isinstance: every token passes here.
    _handlers: ClassVar[Mapping[str, Callable[..., Sequence[Update]]]] = {
        "task_created": _note,
        "run_created": _note,
        "interrupt_raised": _note,
        "interrupt_answered": _note,
        "loss_noted": _note,
        "tool_started": _tool_started,
        "tool_ended": _tool_ended,
        "step_started": _event_update,
        "step_ended": _event_update,
        "custom": _event_update,
        "message_started": _note,
        "native": _native,
        "part_added": _part,
        "part_delta": _delta,
        "part_ended": _part_ended,
        "message_ended": _write_message_end,
        "run_started": _write_run_start,
        "artifact_added": _artifact,
        "run_ended": _run_ended,
        "task_changed": _write_task_change,
    }
