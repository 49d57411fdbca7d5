"""Conversion of a task's records to A2A tasks and updates, in a form that is the same for all versions.

One writer serves all dialects, live streams, replays, webhooks and `GetTask`. It applies every update to its own
snapshot, so a task that a caller gets equals the result of all updates of a stream.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from babelgate.adapters.a2a.frameworks.langgraph_api import write_question
from babelgate.adapters.a2a.wire.task import (
    NO_FORM,
    PROTOCOL,
    SHOWN_IN_METADATA,
    SHOWN_IN_STATUS,
    Artifact,
    Status,
    TaskSnapshot,
    Update,
    is_activity,
    is_reply,
    shown_part,
)
from babelgate.adapters.a2a.write import activity
from babelgate.adapters.a2a.write.artifacts import ArtifactWriter
from babelgate.adapters.a2a.write.mirrored import Mirrored, message_of
from babelgate.adapters.a2a.write.pieces import EMPTY, OpenMessage, PieceSource, artifact_extra
from babelgate.adapters.a2a.write.status import StatusWriter
from babelgate.adapters.a2a.write.summary import TaskSummary
from babelgate.adapters.a2a.write.tools import ToolWriter
from babelgate.adapters.kit.extension import encode_without_extra
from babelgate.canonical import (
    AnnotationPart,
    Event,
    Fault,
    Feature,
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
from babelgate.canonical.state import TERMINAL, WAITING
from babelgate.canonical.thread import Loss
from babelgate.canonical.value import JsonObject


class EventWriter:
    """Writer that converts the records of one task to updates. The records must be written in order, from the first one
    on."""

    def __init__(self, task: Task, context_id: str, *, in_pieces: bool = True) -> None:
        """Create a writer for a task that was just submitted. With `in_pieces`, a growing answer is shown in several
        updates, and otherwise in one update at its end."""
        self._summary = TaskSummary(task, context_id)
        self._status = StatusWriter(self._summary, Status(TaskState.SUBMITTED, task.created_at))
        self._artifacts = ArtifactWriter(self._summary, in_pieces=in_pieces)
        self._mirrored = Mirrored(self._summary, self._status)
        self._tools = ToolWriter(self._status, self._mirrored)
        self._messages: dict[str, OpenMessage] = {}
        """Open messages of the agent, by id."""
        self._questions: dict[str, InterruptRaised] = {}
        """Open questions, by id."""
        self._fault: Fault | None = None
        self._references: tuple[str, ...] = ()
        """Ids of the tasks that this task continues. Empty after the first message of the task, which names them."""

    @property
    def task_id(self) -> str:
        """Id of the task."""
        return self._summary.task_id

    @property
    def context_id(self) -> str:
        """Id of the task's thread, as A2A callers know it."""
        return self._summary.context_id

    @property
    def run_id(self) -> str | None:
        """Id of the newest run; None before the first one."""
        return self._summary.run_id

    @property
    def status(self) -> Status:
        """Current status of the task."""
        return self._status.status

    @property
    def losses(self) -> dict[Loss, None]:
        """Losses of the task in the order of their occurrence, as the keys of a dictionary."""
        return self._summary.losses

    @property
    def reply(self) -> Message | None:
        """The agent's message, if the task has completed and the agent has answered with this message alone, without a
        task on its server. None otherwise."""
        messages = [message for message in self._status.history if message.role == "agent"]
        is_alone = len(messages) == 1 and len(self._artifacts) == 1 and is_reply(messages[0].extra)
        return messages[0] if is_alone and self.status.state is TaskState.COMPLETED else None

    def snapshot(self) -> TaskSnapshot:
        """Return the whole task as of the last record that was written."""
        return TaskSnapshot(
            task_id=self._summary.task_id,
            context_id=self._summary.context_id,
            status=self._status.status,
            artifacts=self._artifacts.values,
            history=self._status.history,
            metadata=self._summary.metadata,
            members=self._summary.members,
        )

    def write(self, record: Record) -> Sequence[Update]:
        """Apply a record, and return the updates for a stream. The first event of a stream is not among them: the
        caller sends a snapshot."""
        handler = self._handlers.get(record.event.kind)
        return () if handler is None else handler(self, record.event, record)

    def _note(self, event: Event, record: Record) -> Sequence[Update]:
        """Apply a record that changes the task, but adds nothing to a stream. Return no updates."""
        match event:
            case MessageStarted(extra=extra) if self._mirrored.has_shown(extra):
                pass
            case MessageStarted():
                self._messages[event.message_id or ""] = OpenMessage(
                    event, PieceSource(record.run_id, event.message_id)
                )
            case TaskCreated():
                self._status.status = Status(TaskState.SUBMITTED, record.at)
                self._summary.begin(event.metadata)
                before = () if event.continues is None else (event.continues,)
                self._references = tuple(dict.fromkeys((*before, *event.references)))
            case RunCreated():
                self._summary.run_id = event.run_id
                self._summary.output = None
                self._artifacts.begin_run()
                self._tools.clear()
                for message in event.messages:
                    self._status.add(self._add_references(message), PieceSource())
                self._references = ()
            case InterruptRaised():
                self._questions[event.interrupt_id or ""] = event
            case InterruptAnswered():
                self._questions.pop(event.interrupt_id, None)
            case LossNoted():
                self.losses[Loss(feature=event.feature, how=event.how)] = None
            case _:
                pass
        return ()

    def _add_references(self, message: Message) -> Message:
        """Return a message with the ids of the tasks that its task continues as `referenceTaskIds` (specification 1.0,
        3.4.3)."""
        members: JsonObject = message.extra.get(PROTOCOL) or {}
        if not self._references or members.get("referenceTaskIds"):
            return message
        extra = {**message.extra, PROTOCOL: {**members, "referenceTaskIds": list(self._references)}}
        return message.replace(extra=extra)

    # Status

    def _restart(self, event: RunStarted, record: Record) -> Sequence[Update]:
        """Return the updates for a restart of the run. They remove its output so far: each of its artifacts becomes
        empty."""
        if not event.is_restart:
            return ()
        artifacts = self._artifacts.void(record, event)
        is_status_void = self._status.remove_void(record, event)
        if event.is_void(None):
            self._tools.clear()
        if not artifacts and not is_status_void:
            return ()
        update = self._status.write(Status(self.status.state, record.at), PieceSource())
        return [update, *self._artifacts.write_void(artifacts)]

    def _change_state(self, event: TaskChanged, record: Record) -> Sequence[Update]:
        message: Message | None = None
        foreign = self._mirrored.take_stop(event.state)
        fault = event.fault or self._fault
        if "message" in foreign:
            message = message_of(foreign, fault)
        elif event.state in WAITING:
            # Specification 1.0, 3.7: the message of a status is for immediate information. Results are artifacts.
            message = self._ask(record)
        elif fault is not None and event.state in (TaskState.FAILED, TaskState.REJECTED):
            metadata: JsonObject = {"babelgate": {"fault": fault.code.value}}
            message = self._status.message(record, (TextPart(text=fault.message),), metadata)
        status = Status(event.state, record.at, message, foreign.get("status") or {})
        if event.state in TERMINAL and not self._mirrored.is_relayed:
            foreign = {"metadata": activity.encode_usage(self._summary.usage)}
        return (self._status.write(status, PieceSource(), foreign),)

    def _ask(self, record: Record) -> Message:
        """Return the status message with all open questions of the task.

        Each has a data part with its id, by which it can be answered alone. A single question has its schema in the
        metadata, and no data part if its text is complete: Microsoft's Agent Framework shows data to its user.
        """
        parts: list[Part] = []
        metadata: JsonObject = {}
        for interrupt_id, question in self._questions.items():
            parts += [part for part in map(self._summary.show, question.message.parts) if part is not None]
            text, schema = question.message.text, question.answer_schema
            if len(self._questions) == 1:
                metadata = {"babelgate": {"question": interrupt_id, **({} if schema is None else {"schema": schema})}}
                if text and question.value in (None, text):
                    continue
                schema = None
            parts.append(write_question(interrupt_id, question.value, schema))
        return self._status.message(record, tuple(parts) or (EMPTY,), metadata)

    def _native(self, event: Native, record: Record) -> Sequence[Update]:
        return self._mirrored.write(event, record)

    def _write_in_metadata(self, event: StepStarted | StepEnded | Custom, record: Record) -> Sequence[Update]:
        """Return a status update with the current state and with an event in its metadata, because A2A has no form for
        the event. Return none if the server's own status shows it."""
        if SHOWN_IN_STATUS in event.extra:
            return ()
        feature = Feature.CUSTOM if isinstance(event, Custom) else Feature.STEP
        self.losses[Loss(feature=feature, how=SHOWN_IN_METADATA)] = None
        foreign: JsonObject = {"metadata": {"babelgate": {"event": encode_without_extra(event)}}}
        status = Status(self.status.state, record.at, members=self.status.members)
        return (self._status.write(status, PieceSource(), foreign),)

    # Tools and thoughts

    def _start_tool(self, event: ToolStarted, record: Record) -> Sequence[Update]:
        return self._tools.start(event, record)

    def _end_tool(self, event: ToolEnded, record: Record) -> Sequence[Update]:
        return self._tools.end(event, record)

    def _end_part(self, event: PartEnded, record: Record) -> Sequence[Update]:
        message = self._messages.get(event.message_id or "")
        return () if message is None else self._end_activity(message, record)

    def _end_activity(self, message: OpenMessage, record: Record) -> Sequence[Update]:
        """Return the update for a thought or tool call that is now complete. It is shown only as a whole, because the
        message of each status stays in the history."""
        index, message.activity = message.activity, None
        if index is None:
            return ()
        part = message.parts.join(index)
        match part:
            case ReasoningPart(text="") | ToolCallPart(name=""):
                return ()
            case ReasoningPart():
                text_part, metadata = activity.encode_thought(part)
                return (self._status.write_activity(record, text_part, metadata, message.started.message_id),)
            case ToolCallPart():
                return self._tools.start(activity.as_call(part), record)
            case ToolResultPart():
                return self._tools.end(activity.as_result(part, self._tools.name_of(part.call_id)), record)
            case _:
                return ()

    # Messages

    def _add_part(self, event: PartAdded, record: Record) -> Sequence[Update]:
        message = self._messages.get(event.message_id or "")
        if message is None:
            return ()
        before = self._end_activity(message, record)
        index = len(message.parts.begun)
        message.parts.append(event.part)
        if is_activity(event.part):
            message.activity = index
            return (*before, *(() if event.open else self._end_activity(message, record)))
        if isinstance(event.part, AnnotationPart):
            message.citations.append(event.part)
            return before
        return (*before, *self._artifacts.write_part(message, index, event))

    def _add_text(self, event: PartDelta, record: Record) -> Sequence[Update]:
        artifact = self.add_texts(record, (event.text,))
        if artifact is not None:
            return (self._artifacts.write_grown(artifact, event.text),)
        message = self._messages.get(event.message_id or "")
        if message is None:
            return ()
        index = len(message.parts.begun) - 1 if event.index is None else event.index
        if not 0 <= index < len(message.parts.begun):
            return ()
        message.parts.extend(index, (event.text,))
        can_show = isinstance(message.parts.begun[index], TextPart | RefusalPart)
        if not event.text or not can_show or not message.is_answer:
            return ()
        return self._artifacts.write_delta(message, index, event)

    def add_texts(self, record: Record, texts: Sequence[str]) -> Artifact | None:
        """Add the texts of consecutive records to one part of an answer, and return the answer's artifact without
        parts.

        `record` is the first of the records, which are a passage (`babelgate.adapters.kit.server.passages`). Return
        None, and change nothing, if each record must be written separately.
        """
        event = record.event
        if type(event) is not PartDelta:
            return None
        message = self._messages.get(event.message_id or "")
        return None if message is None else self._artifacts.add_texts(message, event, texts)

    def _end_message(self, event: MessageEnded, record: Record) -> Sequence[Update]:
        message = self._messages.pop(event.message_id or "", None)
        if message is None:
            return ()
        self._summary.usage = {**self._summary.usage, **event.usage}
        updates = self._end_activity(message, record)
        begun = message.parts.begun
        is_shown = not begun or any(shown_part(part)[0] is not None for part in begun)
        if message.citations and not is_shown:
            self.losses[Loss(feature=Feature.CITATION, how=NO_FORM)] = None
        # A2A has no events of messages: progress is the message of a status (specification 1.0, 3.7).
        if message.started.phase == "progress":
            return (*updates, self._write_progress(message, record)) if is_shown else updates
        if message.is_answer:
            updates = (*updates, *self._artifacts.write_end(message, event))
        # The history of servers has the messages, and not the contents of artifacts.
        if is_shown and not artifact_extra(message.started.extra):
            self._status.add(message.message(), message.source)
        return updates

    def _write_progress(self, message: OpenMessage, record: Record) -> Update:
        progress = message.message()
        if message.citations:
            citations = activity.encode_citations(message.citations)
            progress = progress.replace(metadata={**progress.metadata, **citations})
        return self._status.write(Status(self.status.state, record.at, progress), message.source)

    # Artifacts and ends

    def _add_artifact(self, event: ArtifactAdded, record: Record) -> Sequence[Update]:
        return self._artifacts.write_file(event, record)

    def _end_run(self, event: RunEnded, record: Record) -> Sequence[Update]:
        self._fault = event.fault
        self._summary.end_run(event)
        return self._artifacts.write_output(event, record)

    # By kind and not by isinstance, because every token passes here.
    _handlers: ClassVar[Mapping[str, Callable[..., Sequence[Update]]]] = {
        "task_created": _note,
        "run_created": _note,
        "interrupt_raised": _note,
        "interrupt_answered": _note,
        "loss_noted": _note,
        "message_started": _note,
        "tool_started": _start_tool,
        "tool_ended": _end_tool,
        "step_started": _write_in_metadata,
        "step_ended": _write_in_metadata,
        "custom": _write_in_metadata,
        "native": _native,
        "part_added": _add_part,
        "part_delta": _add_text,
        "part_ended": _end_part,
        "message_ended": _end_message,
        "run_started": _restart,
        "artifact_added": _add_artifact,
        "run_ended": _end_run,
        "task_changed": _change_state,
    }
