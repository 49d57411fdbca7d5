"""Records → chunks of one message of the assistant.

A task has one such message, until a message of the user precedes one of its runs: then another one begins. The runs in
between are the steps of the message.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from babelgate.adapters.vercel_ui import wire as w
from babelgate.adapters.vercel_ui.codec import can_ask, is_new_reply
from babelgate.adapters.vercel_ui.write.contents import Contents
from babelgate.adapters.vercel_ui.write.questions import Questions
from babelgate.adapters.vercel_ui.write.usage import encode_usage
from babelgate.adapters.vercel_ui.write.view import ReplyView
from babelgate.canonical import Fault, FaultCode, Feature, Record, RunStatus, TaskState
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptAnswered,
    InterruptRaised,
    LossNoted,
    MessageEnded,
    MessageStarted,
    PartAdded,
    PartDelta,
    PartEnded,
    RunCreated,
    RunEnded,
    RunStarted,
    StepEnded,
    StepStarted,
    TaskChanged,
    ToolEnded,
    ToolStarted,
)
from babelgate.canonical.state import TERMINAL
from babelgate.canonical.thread import Loss, losses_by_feature
from babelgate.canonical.value import JsonObject

_ENDS: Final = TERMINAL - {TaskState.COMPLETED}
_NO_STEPS: Final = "only for callers that request them"
_RESTARTED: Final = Fault(
    code=FaultCode.AGENT_FAILED,
    message="The agent was started again, and what it had sent is void. Reload the chat.",
)
_FAILED: Final = Fault(code=FaultCode.AGENT_FAILED, message="The agent failed.")


class ReplyWriter:
    """Writer of one message. Feed it the records of the task, from the first one on or from the run that begins the
    message."""

    def __init__(self, view: ReplyView) -> None:
        self.view = view
        self.has_stopped = False
        """True if the last record ended a run of the message, or made the message void. Its last chunk is then the end
        of a stream."""
        self.run_id: str | None = None
        """Newest run of the message."""
        self.run_ids: list[str] = []
        """All runs of the message, oldest first."""
        self._has_begun = False
        """True if the writer has read a run of the task."""
        self.open_questions: dict[str, None] = {}
        """Ids of the open questions of the task, oldest first."""
        self._has_asked = False
        """True if the metadata of the message name open questions."""
        self._is_current = False
        """True if the newest run of the task belongs to the message."""
        self._losses: dict[Loss, None] = {}
        self._contents = Contents(view)
        self._questions = Questions(view)
        self._is_step_open = False
        self.is_broken = False
        """True if the last chunk reported that the message is void. No chunk follows."""

    def start(self, run_id: str) -> w.Chunk:
        """Return the first chunk of a stream whose first run is `run_id`."""
        view = self.view
        ids = {"thread": view.thread_id, "task": view.task_id, "run": run_id}
        return {"type": "start", "messageId": view.message_id, "messageMetadata": {w.OWN: ids}}

    def write(self, record: Record) -> list[w.Chunk]:
        """Add a record and return its chunks."""
        event = record.event
        self.has_stopped = False
        if isinstance(event, RunCreated):
            self._create_run(event)
            return []
        if isinstance(event, InterruptRaised):
            self.open_questions[event.interrupt_id or ""] = None
        elif isinstance(event, InterruptAnswered):
            self.open_questions.pop(event.interrupt_id, None)
            return [*self._questions.answer(event), *self._open_questions_after(record)]
        if isinstance(event, TaskChanged):
            return self._change_task(event)
        if record.run_id not in self.run_ids or self.is_broken or self._is_void(record):
            return []
        write = self._WRITES.get(type(event))
        if write is None:
            return []
        chunks: list[w.Chunk] = []
        write(self, chunks, event)
        return chunks

    def add_texts(self, record: Record, texts: Sequence[str]) -> tuple[str, str] | None:
        """Add a passage. Return the type and the id of its chunks, which differ in their `delta` only. Return None, and
        add nothing, if its records must be written one by one."""
        event = record.event
        if type(event) is not PartDelta or record.run_id not in self.run_ids:
            return None
        if self.is_broken or self._is_void(record):
            return None
        return self._contents.add_texts(event, texts)

    def _is_void(self, record: Record) -> bool:
        return any(restart.has_voided(record) for restart in self.view.restarts)

    def _create_run(self, event: RunCreated) -> None:
        """Add a run to the message if it belongs there."""
        if not self._has_begun:
            self._is_current = self.view.message_id in (self.view.task_id, event.run_id)
        elif is_new_reply(event):
            self._is_current = self.view.message_id == event.run_id
        self._has_begun = True
        if not self._is_current:
            return
        self.run_id = event.run_id
        self.run_ids.append(event.run_id)
        self._questions.can_ask = can_ask(event)
        self._contents.begin(event.run_id)

    def _open_questions_after(self, record: Record) -> list[w.Chunk]:
        """Return the open questions in the metadata if another message follows this one, because a message of the user
        answers the question."""
        if record.run_id in self.run_ids or not self._has_asked:
            return []
        metadata = {w.OWN: {"questions": list(self.open_questions)}}
        return [{"type": "message-metadata", "messageMetadata": metadata}]

    def _change_task(self, event: TaskChanged) -> list[w.Chunk]:
        """Return the end of a task without success, in the metadata: a page cannot see it in the message, and a task
        that waits for an answer ends without a run."""
        if event.state not in _ENDS or not self._is_current:
            return []
        members: JsonObject = {"status": event.state.value}
        if event.fault is not None:
            members["fault"] = {"code": str(event.fault.code), "message": event.fault.message}
        return [{"type": "message-metadata", "messageMetadata": {w.OWN: members}}]

    def _begin_step(self, chunks: list[w.Chunk]) -> None:
        if not self._is_step_open:
            self._is_step_open = True
            chunks.append({"type": "start-step"})

    def _run_started(self, chunks: list[w.Chunk], event: RunStarted) -> None:
        """Remove the voided output of a run that starts again."""
        if not event.is_restart or not self._is_step_open or not self._contents.has_void(event):
            return
        if self.view.sdk >= 7 and event.void is None:
            chunks.append({"type": "reset-step"})
            self._contents.begin(self.run_id or "")
            return
        self.is_broken = self.has_stopped = True
        chunks += self._contents.close()
        chunks += self._fail(_RESTARTED)

    def _content(self, chunks: list[w.Chunk], event: Any) -> None:
        """Add chunks of the content, after the beginning of the step if they are the first."""
        more = self._contents.write(event)
        if more:
            self._begin_step(chunks)
            chunks += more

    def _ask(self, chunks: list[w.Chunk], event: InterruptRaised) -> None:
        self._begin_step(chunks)
        chunks += self._contents.close()
        chunks += self._contents.add_attachments(event)
        chunks += self._questions.ask(event)

    def _step(self, chunks: list[w.Chunk], event: StepStarted | StepEnded) -> None:
        if self.view.steps:
            self._content(chunks, event)
        else:
            self._losses[Loss(feature=Feature.STEP.value, how=_NO_STEPS)] = None

    def _note_loss(self, chunks: list[w.Chunk], event: LossNoted) -> None:
        self._losses[Loss(feature=event.feature, how=event.how)] = None

    def _run_ended(self, chunks: list[w.Chunk], event: RunEnded) -> None:
        self.has_stopped = True
        ended = self._contents.end(event)
        # A step without content would end the loop of a page that has answered only some of the questions.
        if ended or event.status is not RunStatus.PAUSED:
            self._begin_step(chunks)
        chunks += ended
        if self._is_step_open:
            chunks.append({"type": "finish-step"})
        self._is_step_open = False
        match event.status:
            case RunStatus.SUCCESS:
                chunks.append(self._finish(self._contents.finish_reason, event))
            case RunStatus.PAUSED:
                chunks.append(self._finish("tool-calls" if self._questions.has_open_tool else "stop", event))
            case RunStatus.CANCELLED:
                chunks += ({"type": "abort"}, self._finish("other", event))
            case _:
                metadata = self._metadata(event)
                chunks += self._fail(event.fault or _FAILED, metadata)

    def _finish(self, reason: str, event: RunEnded) -> w.Chunk:
        metadata = self._metadata(event)
        chunk: w.Chunk = {"type": "finish", "finishReason": reason}
        return {**chunk, "messageMetadata": metadata} if metadata else chunk

    def _metadata(self, event: RunEnded) -> JsonObject:
        """Return the metadata of a message at the end of a run."""
        metadata: JsonObject = {}
        members: JsonObject = {}
        if usage := event.usage or self._contents.usage:
            # assistant-ui reads `metadata.usage`.
            metadata["usage"] = encode_usage(usage)
            members["usage"] = usage
        if self.open_questions or self._has_asked:
            # Questions that are shown as text have no state in the message.
            self._has_asked = True
            members["questions"] = list(self.open_questions)
        if self._losses:
            members["loss"] = losses_by_feature(self._losses)
        return {**metadata, w.OWN: members} if members else metadata

    @staticmethod
    def _fail(fault: Fault, metadata: JsonObject | None = None) -> list[w.Chunk]:
        """Return the chunks of a failure: the code in the metadata, which a page keeps, and the text."""
        metadata = dict(metadata or {})
        metadata[w.OWN] = {**metadata.get(w.OWN, {}), "fault": {"code": str(fault.code)}}
        return [
            {"type": "message-metadata", "messageMetadata": metadata},
            {"type": "error", "errorText": fault.message or _FAILED.message},
        ]

    _WRITES: ClassVar[Mapping[type, Any]] = {
        RunStarted: _run_started,
        RunEnded: _run_ended,
        InterruptRaised: _ask,
        LossNoted: _note_loss,
        StepStarted: _step,
        StepEnded: _step,
        **dict.fromkeys(
            (
                MessageStarted,
                PartAdded,
                PartDelta,
                PartEnded,
                MessageEnded,
                ToolStarted,
                ToolEnded,
                ArtifactAdded,
                Custom,
            ),
            _content,
        ),
    }
