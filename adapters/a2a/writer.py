"""The records of a task → what A2A shows of it, in no version's spelling.

One writer serves all dialects, live streams, replays, webhooks and `GetTask` alike: whatever it gives out it also
applies to its own snapshot, so a task that is fetched is the fold of the stream that led to it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from canonical import (
    DataPart,
    Event,
    Fault,
    Feature,
    Message,
    Part,
    Record,
    RefusalPart,
    Task,
    TaskState,
    TextPart,
)
from canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptAnswered,
    InterruptRaised,
    LossNoted,
    MessageEnded,
    MessageStarted,
    PartAdded,
    PartDelta,
    RunCreated,
    RunEnded,
    StepStarted,
    TaskChanged,
    TaskCreated,
    ToolStarted,
)
from canonical.fold import extend_part
from canonical.state import TERMINAL, WAITING
from canonical.thread import Loss
from canonical.value import Json, JsonObject

from .view import (
    NO_FORM,
    PROTOCOL,
    Artifact,
    ArtifactUpdate,
    Snapshot,
    Status,
    StatusUpdate,
    Update,
    derived_id,
    shown_part,
)

__all__ = ("EventWriter",)

_EMPTY: Final = TextPart(text="")
"""An artifact and a message must have a part (specification 1.0, 4.1.4 and 4.1.7)."""


@dataclass(slots=True)
class _Growing:
    """An artifact while its pieces arrive. Text is gathered in lists and joined when somebody looks."""

    artifact: Artifact
    parts: list[Part] = field(default_factory=list[Part])
    deltas: dict[int, list[str]] = field(default_factory=dict[int, list[str]])

    def value(self) -> Artifact:
        for index, pieces in self.deltas.items():
            self.parts[index] = extend_part(self.parts[index], "".join(pieces))
        self.deltas.clear()
        return self.piece(*self.parts or (_EMPTY,))

    def piece(self, *parts: Part) -> Artifact:
        whole = self.artifact
        return Artifact(whole.artifact_id, parts, whole.name, whole.description, whole.metadata)


@dataclass(slots=True)
class _Saying:
    """A message of the agent while it is open."""

    started: MessageStarted
    parts: list[Part] = field(default_factory=list[Part])
    deltas: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    artifact: _Growing | None = None
    """Where it shows, from its first piece on; None for what is no answer."""
    places: dict[int, int] = field(default_factory=dict[int, int])
    """Index of a part in the message → in the artifact."""
    held: tuple[int, Part] | None = None
    """A whole part that is no text, kept until it is known whether it is the last: then it can say so itself."""

    def message(self) -> Message:
        for index, pieces in self.deltas.items():
            self.parts[index] = extend_part(self.parts[index], "".join(pieces))
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


class EventWriter:
    """Feed it the records of one task, in order, from the task's first on."""

    def __init__(self, task: Task, context_id: str) -> None:
        # Only what never changes is taken of the task: the rest is said by its records.
        self.task_id = task.task_id
        self.thread_id = task.thread_id
        self.context_id = context_id
        self.run_id: str | None = None
        self.status = Status(TaskState.SUBMITTED, task.created_at)
        self.losses: dict[Loss, None] = {}
        self._metadata = task.metadata
        self._usage: JsonObject = {}
        self._fault: Fault | None = None
        self._references: tuple[str, ...] = ()
        self._history: list[Message] = []
        self._status_place = 0
        """Where in the history the status's message belongs once another status follows."""
        self._artifacts: dict[str, _Growing] = {}
        self._answers = 0
        self._outputs = 0
        self._data: list[Json] = []
        """Data that the current run said in messages: an output that only repeats it is not shown again."""
        self._saying: dict[str, _Saying] = {}
        self._open: dict[str, InterruptRaised] = {}

    def snapshot(self) -> Snapshot:
        return Snapshot(
            task_id=self.task_id,
            context_id=self.context_id,
            status=self.status,
            artifacts=tuple(artifact.value() for artifact in self._artifacts.values()),
            history=tuple(self._history),
            metadata={**self._metadata, "babelgate": self._about()},
        )

    def write(self, record: Record) -> Sequence[Update]:
        """What a stream shows of this record; a stream's first event, the snapshot, is the caller's to take."""
        handle = self._handlers.get(record.event.kind)
        return () if handle is None else handle(self, record.event, record)

    def _note(self, event: Event, record: Record) -> Sequence[Update]:
        """Records that change what is known, and show nothing by themselves."""
        match event:
            case MessageStarted():
                self._saying[event.message_id or ""] = _Saying(event)
            case TaskCreated():
                self.status = Status(TaskState.SUBMITTED, record.at)
                self._metadata = event.metadata
                before = () if event.continues is None else (event.continues,)
                self._references = tuple(dict.fromkeys((*before, *event.references)))
            case RunCreated():
                self.run_id = event.run_id
                self._data.clear()
                self._history += [self._referring(message) for message in event.messages]
                self._references = ()
            case InterruptRaised():
                self._open[event.interrupt_id or ""] = event
            case InterruptAnswered():
                self._open.pop(event.interrupt_id, None)
            case LossNoted():
                self.losses[Loss(feature=event.feature, how=event.how)] = None
            case ToolStarted():
                self.losses[Loss(feature=Feature.TOOL_ACTIVITY, how=NO_FORM)] = None
            case StepStarted():
                self.losses[Loss(feature=Feature.STEP, how=NO_FORM)] = None
            case Custom():
                self.losses[Loss(feature=Feature.CUSTOM, how=NO_FORM)] = None
            case _:
                pass
        return ()

    def _referring(self, message: Message) -> Message:
        """The first input of a task that goes on from others names them (specification 1.0, 3.4.3)."""
        own: JsonObject = message.extra.get(PROTOCOL, {})
        if not self._references or own.get("referenceTaskIds"):
            return message
        extra = {**message.extra, PROTOCOL: {**own, "referenceTaskIds": list(self._references)}}
        return message.model_copy(update={"extra": extra})

    # Status

    def _changed(self, event: TaskChanged, record: Record) -> Sequence[Update]:
        message: Message | None = None
        if event.state in WAITING:
            message = self._question(record)
        elif event.state in TERMINAL and event.state != TaskState.COMPLETED:
            fault = event.fault or self._fault
            if fault is not None and event.state != TaskState.CANCELLED:
                message = self._said(
                    record, (TextPart(text=fault.message),), {"babelgate": {"fault": fault.code.value}}
                )
        return (self._new_status(Status(event.state, record.at, message)),)

    def _new_status(self, status: Status) -> StatusUpdate:
        if self.status.message is not None:
            self._history.insert(self._status_place, self.status.message)
        self._status_place = len(self._history)
        self.status = status
        return StatusUpdate(
            task_id=self.task_id,
            context_id=self.context_id,
            status=status,
            metadata={"babelgate": self._about()} if status.stops else {},
        )

    def _question(self, record: Record) -> Message:
        """All open questions in one message. Each brings a data part with its id, by which it can be answered alone."""
        parts: list[Part] = []
        for interrupt_id, asked in self._open.items():
            for part in asked.message.parts:
                shown, loss = shown_part(part)
                if loss is not None:
                    self.losses[loss] = None
                if shown is not None:
                    parts.append(shown)
            data: JsonObject = {"id": interrupt_id, "value": asked.value}
            if asked.answer_schema is not None:
                data["schema"] = asked.answer_schema
            parts.append(DataPart(data=data))
        return self._said(record, tuple(parts) or (_EMPTY,), {})

    def _said(self, record: Record, parts: tuple[Part, ...], metadata: JsonObject) -> Message:
        message_id = derived_id(self.task_id, "status", str(record.seq))
        return Message(message_id=message_id, role="agent", parts=parts, metadata=metadata)

    def _about(self) -> JsonObject:
        about: JsonObject = {"thread_id": self.thread_id, "task_id": self.task_id, "run_id": self.run_id}
        if self._usage:
            about["usage"] = self._usage
        if self.losses:
            about["loss"] = {loss.feature: loss.how for loss in self.losses}
        return about

    # Messages

    def _part(self, event: PartAdded, _: Record) -> Sequence[Update]:
        saying = self._saying.get(event.message_id or "")
        if saying is None:
            return ()
        index = len(saying.parts)
        saying.parts.append(event.part)
        shown, loss = shown_part(event.part)
        if loss is not None:
            self.losses[loss] = None
        if shown is None or not self._is_answer(saying):
            return ()
        flushed = self._flush(saying)
        if isinstance(shown, TextPart):
            # An open part's text may come entirely in deltas: no piece is sent for nothing.
            return (*flushed, self._piece(saying, index, shown)) if shown.text else flushed
        if isinstance(shown, DataPart):
            self._data.append(shown.data)
        saying.held = (index, shown)
        return flushed

    def _delta(self, event: PartDelta, _: Record) -> Sequence[Update]:
        saying = self._saying.get(event.message_id or "")
        if saying is None or not saying.parts:
            return ()
        index = len(saying.parts) - 1 if event.index is None else event.index
        saying.deltas.setdefault(index, []).append(event.text)
        part = saying.parts[index]
        if not event.text or not isinstance(part, TextPart | RefusalPart) or not self._is_answer(saying):
            return ()
        shown = shown_part(part)[0]
        assert isinstance(shown, TextPart)
        if shown.media_type is None and not shown.metadata:
            piece = TextPart(text=event.text)
        else:
            piece = shown.model_copy(update={"text": event.text})
        return (*self._flush(saying), self._piece(saying, index, piece))

    def _ended(self, event: MessageEnded, record: Record) -> Sequence[Update]:
        saying = self._saying.pop(event.message_id or "", None)
        if saying is None:
            return ()
        self._usage = {**self._usage, **event.usage}
        if saying.started.phase == "progress":
            return (self._new_status(Status(self.status.state, record.at, saying.message())),)
        updates = self._finished(saying) if self._is_answer(saying) else ()
        if not saying.parts or any(shown_part(part)[0] is not None for part in saying.parts):
            self._history.append(saying.message())
        return updates

    def _finished(self, saying: _Saying) -> Sequence[Update]:
        """The last piece says that it is the last: some clients show a streamed artifact only then. Text has been sent
        by then, so its last piece is empty: an artifact must have a part (specification 1.0, 4.1.7)."""
        if saying.held is not None:
            return self._flush(saying, last=True)
        if saying.artifact is None and any(shown_part(part)[0] is None for part in saying.parts):
            return ()  # nothing of it can be shown
        growing, append = self._growing(saying)
        return (self._artifact_update(growing.piece(_EMPTY), append=append, last=True),)

    @staticmethod
    def _is_answer(saying: _Saying) -> bool:
        return saying.started.phase == "answer" and saying.started.role == "agent"

    def _flush(self, saying: _Saying, *, last: bool = False) -> Sequence[Update]:
        if saying.held is None:
            return ()
        index, part = saying.held
        saying.held = None
        return (self._piece(saying, index, part, last=last),)

    def _growing(self, saying: _Saying) -> tuple[_Growing, bool]:
        """The artifact of this message, and whether it was begun before."""
        if saying.artifact is not None:
            return saying.artifact, True
        # Results belong in artifacts (specification 1.0, 3.7). Numbered from the first piece on, so that a message of
        # which nothing can be shown leaves no hole.
        self._answers += 1
        artifact = Artifact(artifact_id=f"answer-{self._answers}", metadata=saying.started.metadata)
        saying.artifact = self._artifacts[artifact.artifact_id] = _Growing(artifact)
        return saying.artifact, False

    def _piece(self, saying: _Saying, index: int, part: Part, *, last: bool = False) -> ArtifactUpdate:
        growing, append = self._growing(saying)
        place = saying.places.get(index)
        if place is None:
            saying.places[index] = len(growing.parts)
            growing.parts.append(part)
        elif isinstance(part, TextPart):
            growing.deltas.setdefault(place, []).append(part.text)
        return self._artifact_update(growing.piece(part), append=append, last=last)

    def _artifact_update(self, artifact: Artifact, *, append: bool, last: bool) -> ArtifactUpdate:
        return ArtifactUpdate(
            task_id=self.task_id, context_id=self.context_id, artifact=artifact, append=append, last=last
        )

    # Artifacts and ends

    def _artifact(self, event: ArtifactAdded, _: Record) -> Sequence[Update]:
        if event.origin == "caller":  # an upload: A2A callers send files in messages, and it is no output of the task
            return ()
        shown, loss = shown_part(event.part)
        if loss is not None:
            self.losses[loss] = None
        part = shown or _EMPTY
        artifact_id = event.artifact_id or ""
        growing = self._artifacts.get(artifact_id)
        append = event.append and growing is not None
        if growing is None or not append:
            artifact = Artifact(
                artifact_id=artifact_id,
                name=event.name,
                description=event.description,
                metadata=event.metadata,
            )
            growing = self._artifacts[artifact_id] = _Growing(artifact)
        growing.parts.append(part)
        return (self._artifact_update(growing.piece(part), append=append, last=event.last),)

    def _run_ended(self, event: RunEnded, _: Record) -> Sequence[Update]:
        self._fault = event.fault
        self._usage = {**self._usage, **event.usage}
        if event.output is None or event.output in self._data:
            return ()
        self._outputs += 1
        artifact_id = f"output-{self._outputs}"
        growing = self._artifacts[artifact_id] = _Growing(Artifact(artifact_id=artifact_id, name="output"))
        growing.parts.append(DataPart(data=event.output))
        return (self._artifact_update(growing.value(), append=False, last=True),)

    # By kind and not by isinstance: every token passes here.
    _handlers: ClassVar[Mapping[str, Callable[..., Sequence[Update]]]] = {
        "task_created": _note,
        "run_created": _note,
        "interrupt_raised": _note,
        "interrupt_answered": _note,
        "loss_noted": _note,
        "tool_started": _note,
        "step_started": _note,
        "custom": _note,
        "message_started": _note,
        "part_added": _part,
        "part_delta": _delta,
        "message_ended": _ended,
        "artifact_added": _artifact,
        "run_ended": _run_ended,
        "task_changed": _changed,
    }
