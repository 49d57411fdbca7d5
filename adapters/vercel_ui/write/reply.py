"""Records → chunks of one assistant message.

The first run of a task begins an assistant message, and so does each later run that a user message precedes. Every
other run is a further step of the message before it.
"""

from collections.abc import Mapping
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
    """Writer of one assistant message. Feed it the records of the task, from the first one on or from the run that
    begins the message."""

    def __init__(self, view: ReplyView) -> None:
        self.view = view
        self.has_stopped = False
        """True if the last record ended a run of the message, or made the message void. The last chunk of that record
        can then end a stream."""
        self.run_id: str | None = None
        """Id of the newest run of the message."""
        self.run_ids: list[str] = []
        """Ids of all runs of the message, oldest first."""
        self._has_begun = False
        """True if the writer has read the creation of any run of the task."""
        self.open_questions: dict[str, None] = {}
        """Ids of the open questions of the task, oldest first."""
        self._has_asked = False
        """True if the message's metadata has contained a list of open questions."""
        self._is_current = False
        """True if the newest run of the task belongs to the message."""
        self._losses: dict[Loss, None] = {}
        self._contents = Contents(view)
        self._questions = Questions(view)
        self._is_step_open = False
        self.is_broken = False
        """True if an error chunk has reported that the message is void. No content follows it."""

    def start(self, run_id: str) -> w.Chunk:
        """Return the `start` chunk of a stream, with the ids of the thread, the task, and the stream's first run
        `run_id`."""
        view = self.view
        ids = {"thread": view.thread_id, "task": view.task_id, "run": run_id}
        return {"type": "start", "messageId": view.message_id, "messageMetadata": {w.OWN: ids}}

    def write(self, record: Record) -> list[w.Chunk]:
        """Return the chunks for the next record of the task."""
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

    def find_text(self, record: Record) -> tuple[str, str] | None:
        """Return the chunk type and the part id for deltas of one part, whose chunks differ in their `delta` only.
        `record` is the first delta. Return None if the records must be written one by one."""
        event = record.event
        if type(event) is not PartDelta or record.run_id not in self.run_ids:
            return None
        if self.is_broken or self._is_void(record):
            return None
        return self._contents.find_text(event)

    def _is_void(self, record: Record) -> bool:
        return any(restart.has_voided(record) for restart in self.view.restarts)

    def _create_run(self, event: RunCreated) -> None:
        """Add a new run to the message, unless it belongs to another message of the task."""
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
        """Return a metadata chunk with the questions that are still open, after an answer that begins another message.
        Empty if the answer continues this message, or its metadata never listed questions."""
        if record.run_id in self.run_ids or not self._has_asked:
            return []
        metadata = {w.OWN: {"questions": list(self.open_questions)}}
        return [{"type": "message-metadata", "messageMetadata": metadata}]

    def _change_task(self, event: TaskChanged) -> list[w.Chunk]:
        """Return a metadata chunk if the task has ended without success, and nothing otherwise. A page cannot see that
        in the message, and a task that waits for an answer ends without a run."""
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
        """Handle a restart that makes sent content void. If all content of the run is void, reset the step for SDK 7.
        Otherwise, end the message with an error."""
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
        """Append the chunks of a content event to `chunks`, after `start-step` if no step is open."""
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
        """Return the message metadata at the end of a run: usage, open questions and losses, as far as there are
        any."""
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
        """Return the chunks that report a fault: its code in the message metadata, which a page stores, and an `error`
        chunk with its text."""
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
