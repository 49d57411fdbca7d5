"""Reading of a task's status: progress messages, questions, and the end of the run."""

from collections.abc import Sequence

from babelgate.adapters.a2a.codec.marks import author_of
from babelgate.adapters.a2a.frameworks.framework import DecodedContent
from babelgate.adapters.a2a.frameworks.langgraph_api import last_versions
from babelgate.adapters.a2a.frameworks.opencode import SHARED
from babelgate.adapters.a2a.read.activity import Activity
from babelgate.adapters.a2a.read.artifact_reader import ArtifactReader
from babelgate.adapters.a2a.read.fault import decode_fault
from babelgate.adapters.a2a.read.messages import MessageReader
from babelgate.adapters.a2a.read.parts import decode_state, gateway_members
from babelgate.adapters.a2a.read.questions import QuestionTracker, as_parts, decode_interrupts, questions
from babelgate.adapters.a2a.read.run_state import RunState
from babelgate.adapters.a2a.read.speech import Speech
from babelgate.adapters.a2a.read.usage import UsageCounter, usage_of_task
from babelgate.adapters.a2a.wire import replies as w
from babelgate.adapters.a2a.wire.task import REPEATED
from babelgate.adapters.kit.extension import decode_said
from babelgate.canonical import Part, ReasoningPart, RunReason, RunStatus, TaskState, TextPart
from babelgate.canonical.event import Custom, RunEnded, StepEnded, StepStarted
from babelgate.canonical.message import text_of
from babelgate.canonical.state import TERMINAL, WAITING
from babelgate.canonical.value import JsonObject


class StatusReader:
    """Reader of the statuses of one run's task. It adds their events to the run."""

    def __init__(
        self,
        run: RunState,
        speech: Speech,
        artifacts: ArtifactReader,
        messages: MessageReader,
        questions: QuestionTracker,
        activity: Activity,
        usage: UsageCounter,
    ) -> None:
        self._run = run
        self._speech = speech
        self._artifacts = artifacts
        self._messages = messages
        self._questions = questions
        self._activity = activity
        self._usage = usage
        self._held_end: JsonObject | None = None
        """Metadata of a final status after which the server still sends the whole task. None if there is no such
        status."""

    def read(self, status: w.TaskStatus, metadata: JsonObject | None, task: w.Task | None = None) -> None:
        """Read a status. It came either in an update with this `metadata`, or in the `task` with this `metadata`. The
        status of a task may be older than that of the last update."""
        run = self._run
        run.task_state = decode_state(status.state)
        message = status.message
        event = (
            None
            if task is not None
            else decode_said(gateway_members(metadata).get("event"), StepStarted, StepEnded, Custom)
        )
        if event is not None and message is None:
            run.events.append(event)
            return
        # A task's metadata are those of all its updates.
        of_update = metadata if task is None else None
        if run.task_state is TaskState.COMPLETED and task is None and message is None and run.has_late_task:
            self._held_end = metadata or {}
            return
        if run.task_state in TERMINAL:
            self._end_run(message, run.decode(message, of_update), metadata)
            return
        of_message, message_id = (message.metadata, message.messageId) if message is not None else (None, None)
        self._usage.count(of_message, message_id)
        self._usage.count(of_update, message_id, of_update=True)
        if task is None:
            self.read_author({**(of_update or {}), **(of_message or {})})
        if run.task_state in WAITING:
            if task is None or not self._questions.is_stale(status):
                self._activity.add_states(run.decode(message, of_update).states, message_id, is_shown=True)
                self._ask(status, metadata)
            return
        decoded = run.decode(message, of_update)
        if message is not None:
            self._messages.read(message, decoded, of_update)
            return
        self._messages.add(w.Message(), decoded)
        if (draft := self._speech.draft.read(of_update)) is not None:
            self._messages.read_draft(draft)

    def read_author(self, metadata: JsonObject) -> None:
        """Begin the step of the inner agent that wrote an update, if the metadata of the update name one. Not called
        for a task, which repeats updates in another order."""
        author = author_of(metadata)
        if author is not None:
            self._activity.set_author(*author)

    def close(self) -> None:
        """End the run if its stream has broken after the final status and before the whole task."""
        if self._held_end is not None:
            self._end_run(None, DecodedContent(), self._held_end)

    def _ask(self, status: w.TaskStatus, metadata: JsonObject | None) -> None:
        message = status.message
        parts = self._speech.draft.unread_parts(message, self._run.read_parts(message), self._speech.tracker)
        self._close_messages()
        self._run.read_about(metadata)
        # opencode-a2a 1.4.0 asks in the metadata of an update without a message.
        shared = {key: value for key, value in (metadata or {}).items() if key == SHARED}
        in_status = questions(parts, {**shared, **((message.metadata if message else None) or {})})
        is_auth = self._run.task_state is TaskState.AUTH_REQUIRED
        self._run.events += decode_interrupts(status, self._questions.ask(in_status), auth=is_auth)
        self._run.is_stopped = True

    def _end_run(self, message: w.Message | None, decoded: DecodedContent, metadata: JsonObject | None) -> None:
        run = self._run
        is_failed = run.task_state in (TaskState.FAILED, TaskState.REJECTED)
        if is_failed:
            decoded.parts = [*self._speech.draft.unread_parts(message, decoded.parts, self._speech.tracker)]
        elif message is not None and self._speech.draft.is_of(message):
            self._messages.read_draft(message)
        self._speech.end(decoded.citations)
        self._close_messages()
        run.is_stopped, self._held_end = True, None
        self._activity.add_states(decoded.states, message.messageId if message is not None else None, is_shown=True)
        # The task has ended without stopping for the questions in its artifacts: they are its answer.
        if unasked := [part for question in self._questions.held for part in as_parts(question.value)]:
            run.add_message(unasked, "answer")
        if is_failed:
            run.read_about(metadata)
            fault = decode_fault(message, decoded, metadata, rejected=run.task_state is TaskState.REJECTED)
            run.events.append(RunEnded(status=RunStatus.ERROR, reason=RunReason.FAULT, fault=fault))
            return
        if message is not None:
            self._read_last_message(message, decoded)
            self._usage.count(message.metadata, message.messageId)
        if run.task_state is TaskState.COMPLETED and not run.has_answer and "babelgate" not in (metadata or {}):
            self._answer_by_progress()
        usage = run.read_about(metadata) or usage_of_task(metadata) or self._usage.total
        output = gateway_members(metadata).get("output", self._artifacts.output)
        if run.task_state is TaskState.CANCELLED:
            run.events.append(RunEnded(status=RunStatus.CANCELLED, reason=RunReason.CALLER, usage=usage))
        elif usage or output is not None:
            run.events.append(RunEnded(output=output, usage=usage))

    def _read_last_message(self, message: w.Message, decoded: DecodedContent) -> None:
        """Read the message of the final status.

        Many servers send the answer there. If there was an answer before, the message is progress, or repeats the
        answer.
        """
        if message.messageId in self._messages.read_ids:
            return
        run, text = self._run, text_of(tuple(decoded.parts))
        is_completed = run.task_state is TaskState.COMPLETED
        if not is_completed or run.has_answer or decoded.is_thought or not decoded.parts:
            if text and text in self._messages.answer_texts:
                decoded.parts = [part for part in decoded.parts if isinstance(part, ReasoningPart)]
            self._messages.add_once(message, decoded)
            return
        self._activity.use(decoded.tools, message)
        run.add_message([*decoded.parts, *decoded.citations], "answer", message)
        self._activity.add_groups(decoded.groups)
        if decoded.progress:
            run.add_message(decoded.progress, "progress", message, is_aside=True)

    def _answer_by_progress(self) -> None:
        """Add the texts of the progress reports as the answer of a task that has completed without an answer."""
        lines, citations = last_versions(self._run.progress.values()), self._speech.citations
        if any(lines):
            # Citations count characters of pieces that belong together (agentstack-sdk 0.7.1).
            text: Sequence[Part] = [TextPart(text=("" if citations else "\n").join(lines))]
            start = len(self._run.events)
            self._run.add_message([*text, *citations], "answer")
            self._run.events[start] = self._run.events[start].replace(extra={REPEATED: {}})

    def _close_messages(self) -> None:
        self._artifacts.close()
        self._speech.close()
