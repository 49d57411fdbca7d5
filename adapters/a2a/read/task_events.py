"""Conversion of the replies of an A2A server to canonical events.

A server sends the same content in several ways: in pieces, and as a whole in a task, which it sends first, on request,
or instead of a stream. So the reader tracks the content that it has read, and adds events only for new content. The
state can be restored from the recorded events: the next run of the task does so.

`codec.marks` reads the additions of frameworks to the protocol.
"""

from collections.abc import Iterable
from typing import Final

from babelgate.adapters.a2a.read.activity import Activity
from babelgate.adapters.a2a.read.artifact_reader import ArtifactReader
from babelgate.adapters.a2a.read.artifacts import ArtifactPiece, ArtifactTracker
from babelgate.adapters.a2a.read.messages import MessageReader
from babelgate.adapters.a2a.read.mirror import Mirror, update_members
from babelgate.adapters.a2a.read.parts import decode_reply, decode_state, gateway_members, is_from_caller
from babelgate.adapters.a2a.read.questions import QuestionTracker
from babelgate.adapters.a2a.read.run_state import Habits, RunState
from babelgate.adapters.a2a.read.speech import Speech
from babelgate.adapters.a2a.read.status import StatusReader
from babelgate.adapters.a2a.read.token import TokenReader
from babelgate.adapters.a2a.read.usage import UsageCounter
from babelgate.adapters.a2a.wire import replies as w
from babelgate.adapters.a2a.wire.task import PROTOCOL
from babelgate.adapters.kit.extension import URI, RecordReader
from babelgate.canonical import Event, Record, TaskState
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
from babelgate.canonical.state import TERMINAL
from babelgate.canonical.value import Json

_UNKNOWN_EVENT: Final = "an event of an unknown type"


class EventReader:
    """Reader of all replies of one run. Messages, artifacts, questions and states have separate readers."""

    def __init__(self, run_id: str, habits: Habits | None = None) -> None:
        self.task_id: str | None = None
        self.context_id: str | None = None
        self.begun = False
        """True if the server has sent a reply."""
        self.replied = False
        """True if the server has answered with a message instead of a task."""
        self.records = RecordReader()
        self._bound: dict[str, str] = {}
        self._run = RunState(run_id, habits or Habits())
        self._questions = QuestionTracker()
        self._activity = Activity(self._run)
        self._speech = Speech(self._run)
        usage = UsageCounter()
        self._artifacts = ArtifactReader(self._run, self._speech, self._questions, self._activity, usage)
        self._messages = MessageReader(self._run, self._speech, self._artifacts, self._activity, usage)
        self._status = StatusReader(
            self._run, self._speech, self._artifacts, self._messages, self._questions, self._activity, usage
        )
        self._mirror = Mirror()
        self._tokens = TokenReader()

    @property
    def habits(self) -> Habits:
        """Form in which the server sends data and answers."""
        return self._run.habits

    @habits.setter
    def habits(self, habits: Habits) -> None:
        self._run.habits = habits

    @property
    def state(self) -> TaskState | None:
        """State of the task in the last reply that has one; None before it."""
        return self._run.task_state

    @property
    def is_stopped(self) -> bool:
        """True if the task waits for an answer or has ended, or if the server has answered without a task."""
        return self._run.is_stopped

    # Records of the task

    def recall(self, past: Iterable[Record]) -> None:
        """Restore the state of all readers from the recorded events of the task, so that content that was read before
        is not read again."""
        run_ids = set[str]()
        trackers: dict[str | None, ArtifactTracker] = {}
        for record in past:
            is_own, event = record.run_id == self._run.run_id, record.event
            self._speech.draft.recall(event, is_own=is_own)
            match event:
                case MessageStarted():
                    tracker = self._recall_message(event, is_own=is_own)
                    if tracker is not None:
                        trackers[event.message_id] = tracker
                case PartAdded() | PartDelta() | PartEnded() | MessageEnded():
                    self._messages.recall(event.extra)
                    if isinstance(event, PartAdded):
                        self._run.recall_part(event)
                    if event.message_id in trackers:
                        trackers[event.message_id].recall(event)
                case ArtifactAdded():
                    self._artifacts.recall(event, is_own=is_own)
                case UpstreamBound() if is_own:
                    self._bound |= event.ids
                case UpstreamBound() if "run" in event.ids:
                    run_ids.add(event.ids["run"])
                case _:
                    self._recall_activity(record, is_own=is_own)
        self.records = RecordReader(past_runs=run_ids)

    def _recall_message(self, event: MessageStarted, *, is_own: bool) -> ArtifactTracker | None:
        """Return the tracker that later replies use to continue a recorded message. Return None if no reply can
        continue it. `is_own` is True for a message of this run."""
        tracker = self._artifacts.recall_message(event, is_own=is_own)
        if tracker is None and event.role == "agent":
            self._messages.recall(event.extra)
        if not is_own:
            return tracker
        self._run.recall_message(event)
        return self._speech.recall_message(event) or tracker

    def _recall_activity(self, record: Record, *, is_own: bool) -> None:
        match record.event:
            case ToolStarted() | ToolEnded() as event:
                self._messages.recall(event.extra)
                self._activity.recall(event, is_own=is_own)
            case StepStarted() | StepEnded() as event if is_own:
                self._activity.recall_step(event)
            case InterruptRaised() as event:
                self._questions.recall(event)
                self._run.is_stopped = self._run.is_stopped or is_own
            case Custom() as event:
                self._activity.recall_state(event)
            case Native() if is_own:
                self._mirror.recall(record)
            case LossNoted() as event if is_own:
                self._run.recall_loss(event)
            case _:
                pass

    # Replies

    def bind(self, task_id: str | None, context_id: str | None) -> list[Event]:
        """Return the event with the server's ids of the task and its context. Return no event if the ids are None or
        already known."""
        self._run.events = []
        self._bind(task_id, context_id)
        return self._run.events

    def _bind(self, task_id: str | None, context_id: str | None) -> None:
        ids = {name: value for name, value in (("task", task_id), ("context", context_id)) if value}
        self.task_id, self.context_id = task_id or self.task_id, context_id or self.context_id
        self._artifacts.task_id = self.task_id
        if not ids.items() <= self._bound.items():
            self._bound |= ids
            self._run.events.append(UpstreamBound(protocol=PROTOCOL, ids=dict(self._bound)))

    def close(self) -> list[Event]:
        """Return the events that were held until the end of the stream, such as an answer in several messages."""
        self._run.events = []
        if self._messages.has_replies:
            message = self._messages.end_replies()
            if self._messages.usage:
                self._run.events.append(RunEnded(usage=self._messages.usage))
            self._run.events = self._mirror.reflect(message, self._run.events, self.habits.rule)
            self._run.is_stopped = True
        self._status.close()
        return self._run.events

    def note(self, feature: str, how: str) -> list[Event]:
        """Return the event of a loss. Return no event if this run has already reported the same loss."""
        self._run.events = []
        self._run.lose(feature, how)
        return self._run.events

    def read(self, value: Json) -> list[Event]:
        """Return the events for the new content of one reply. Raises invalid if the reply breaks the protocol."""
        token = self._tokens.read(value)
        if token is not None:
            return [token]
        self._run.events, self._speech.has_grown = [], False
        reply = decode_reply(value)
        if self._read_records(reply):
            self.begun = True
            return self._run.events
        citations = self._messages.settle_held(reply)
        match reply:
            case w.Task():
                self._read_task(reply)
            case w.TaskStatusUpdateEvent():
                self._bind(self.task_id or reply.taskId, self.context_id or reply.contextId)
                self._status.read(reply.status, reply.metadata)
            case w.TaskArtifactUpdateEvent():
                self._bind(self.task_id or reply.taskId, self.context_id or reply.contextId)
                self._status.read_author({**(reply.metadata or {}), **(reply.artifact.metadata or {})})
                piece = ArtifactPiece(reply.lastChunk is True, members=update_members(reply))
                self._artifacts.read(
                    reply.artifact,
                    append=reply.append is True,
                    last=reply.lastChunk,
                    piece=piece,
                    citations=citations,
                )
            case w.Message():
                self._read_message(reply)
            case None:
                self._read_unknown(value)
        self.begun = True
        # Callers of A2A see an answer that repeats itself, or comes without a task, in another form.
        if not self._speech.has_grown and not self._messages.has_replies:
            self._run.events = self._mirror.reflect(reply, self._run.events, self.habits.rule)
        self._tokens.learn(value, self._run.events, self._artifacts.trackers)
        return self._run.events

    def _read_records(self, reply: w.Reply | None) -> bool:
        """Read the records that another gateway has attached to a reply by the Babelgate extension. Return True if the
        run is read from such records, so that the rest of the reply is skipped."""
        metadata = None if reply is None or isinstance(reply, w.Message) else reply.metadata
        records = (metadata or {}).get(URI)
        if records is None or reply is None:
            return self.records.active
        run_id = self.records.run_id
        events = self.records.read(records)
        if self.records.active and not isinstance(reply, w.Message):
            task_id = reply.id if isinstance(reply, w.Task) else reply.taskId
            self._bind(self.task_id or task_id, self.context_id or reply.contextId)
            if self.records.run_id is not None and self.records.run_id != run_id:
                self._bound["run"] = self.records.run_id
                self._run.events.append(UpstreamBound(protocol=PROTOCOL, ids=dict(self._bound)))
        for event in events:
            if isinstance(event, InterruptRaised):  # the id by which the other gateway accepts the answer
                event = event.replace(extra={**event.extra, PROTOCOL: {"id": event.interrupt_id}})
            self._run.events.append(event)
        self._run.task_state = self.records.state or self._run.task_state
        self._run.is_stopped = self._run.is_stopped or self.records.stopped
        return True

    def _read_unknown(self, value: Json) -> None:
        if value in (None, {}):
            return
        self._run.lose("custom", _UNKNOWN_EVENT)
        kind = value.get("kind") if isinstance(value, dict) else None
        self._run.events.append(Native(protocol=PROTOCOL, event=kind if isinstance(kind, str) else "", data=value))

    def _read_task(self, task: w.Task) -> None:
        if self.task_id is not None and task.id != self.task_id:
            self._artifacts.close()
            self._speech.close()
            # Another task's artifacts may have the same ids.
            self._artifacts.trackers.clear()
            self._speech.tracker = None
        self._bind(task.id, task.contextId)
        self._activity.is_relayed |= bool(gateway_members(task.metadata))
        # Artifacts have no `lastChunk`, but none of an ended task continues.
        is_ended = task.status is not None and decode_state(task.status.state) in TERMINAL
        for artifact in task.artifacts or ():
            self._artifacts.read(artifact, append=False, last=True if is_ended else None)
        self._messages.read_history(task, self._questions)
        if task.status is not None:
            self._status.read(task.status, task.metadata, task)

    def _read_message(self, message: w.Message) -> None:
        self._bind(self.task_id, self.context_id or message.contextId)
        if not is_from_caller(message) and self._messages.read_reply(message, in_task=self.task_id is not None):
            self.replied = True
