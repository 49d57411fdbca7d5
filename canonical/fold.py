"""Event sourcing, folds (projections): `Fold` turns records into the snapshots that every protocol's view is built
from.

`task_after`, `run_after` and `interrupt_after` apply one record to one snapshot. The journal applies the same functions
to its rows, in the transaction that appends the record, so rows and log cannot disagree.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from babelgate.canonical.event import (
    ArtifactAdded,
    InterruptAnswered,
    InterruptRaised,
    LossNoted,
    MessageEnded,
    MessageStarted,
    PartAdded,
    PartDelta,
    PartEnded,
    Record,
    RunChanged,
    RunCreated,
    RunEnded,
    RunRemoved,
    RunStarted,
    StateSaved,
    TaskChanged,
    TaskCreated,
    ThreadChanged,
    UpstreamBound,
    encode_event,
)
from babelgate.canonical.growing import GrowingParts
from babelgate.canonical.message import FilePart, Message, TextPart, first_words
from babelgate.canonical.state import RunStatus, TaskState
from babelgate.canonical.thread import Artifact, Interrupt, Loss, Run, Task, Thread
from babelgate.canonical.value import Extra

_ENTRY_OVERHEAD: Final = 500
"""Estimated memory of a message, run, question or artifact in bytes, not counting its content. Chosen."""


def thread_created(thread_id: str, owner: str, record: Record) -> Thread:
    return Thread(thread_id=thread_id, owner=owner, created_at=record.at, changed_at=record.at)


def thread_after(thread: Thread, record: Record) -> Thread:
    event = record.event
    match event:
        case ArtifactAdded(origin="caller") if record.run_id is None and isinstance(event.part, FilePart):
            return thread.replace(uploads=(*thread.uploads, event.part))
        case MessageStarted() if record.run_id is None:
            return thread.replace(last_edit_seq=record.seq)
        case StateSaved(removed_ids=removed_ids, parent_id=parent) if record.run_id is None:
            last_edit = record.seq if removed_ids or parent is not None else thread.last_edit_seq
            return thread.replace(last_edit_seq=last_edit, changed_values=record.seq)
        case RunCreated() if thread.uploads:  # its messages include the uploads
            return thread.replace(uploads=())
        case ThreadChanged():
            return _apply_thread_change(thread, record, event)
        case _:
            return thread


def _apply_thread_change(thread: Thread, record: Record, event: ThreadChanged) -> Thread:
    return thread.replace(
        changed_at=record.at,
        metadata={**thread.metadata, **event.metadata},
        config={**thread.config, **event.config},
        ttl=thread.ttl if event.ttl is None else event.ttl,
        keeps_latest=thread.keeps_latest if event.keeps_latest is None else event.keeps_latest,
        ephemeral=thread.ephemeral if event.ephemeral is None else event.ephemeral,
        extra={**thread.extra, **event.extra},
    )


def task_created(thread_id: str, record: Record, event: TaskCreated) -> Task:
    return Task(
        task_id=event.task_id,
        thread_id=thread_id,
        agent=event.agent,
        state=TaskState.SUBMITTED,
        created_at=record.at,
        changed_at=record.at,
        first_seq=record.seq,
        last_seq=record.seq,
        continues=event.continues,
        references=event.references,
        metadata=event.metadata,
        protocol=event.protocol,
        version=event.version,
    )


def task_after(task: Task, record: Record) -> Task:
    event = record.event
    if isinstance(event, TaskChanged):
        return task.replace(
            state=event.state,
            changed_at=record.at,
            fault=event.fault or task.fault,
            last_seq=record.seq,
            rollback=event.rollback or task.rollback,
        )
    return task


def run_created(record: Record, event: RunCreated, task_id: str, thread_id: str = "", agent: str = "") -> Run:
    return Run(
        run_id=event.run_id,
        task_id=task_id,
        thread_id=thread_id,
        agent=agent,
        assistant=event.assistant,
        metadata=event.metadata,
        status=RunStatus.PENDING,
        cause=event.cause,
        strategy=event.strategy,
        start_after=event.start_after,
        key_id=event.key_id,
        subject=event.subject,
        created_at=record.at,
        first_seq=record.seq,
        last_seq=record.seq,
        first_words=first_words(event.messages),
    )


def run_after(run: Run, record: Record) -> Run:
    event = record.event
    match event:
        case RunStarted():
            return run.replace(
                status=RunStatus.RUNNING,
                attempt=event.attempt,
                started_at=record.at,
                last_seq=record.seq,
                loss=() if event.is_void(None) else run.loss,
            )
        case RunEnded():
            return run.replace(
                status=event.status,
                reason=event.reason,
                fault=event.fault,
                output=event.output,
                usage=event.usage,
                ended_at=record.at,
                last_seq=record.seq,
            )
        case RunRemoved() if event.run_id == run.run_id:
            return run.replace(removed=True, first_words="")
        case RunChanged() if event.run_id == run.run_id:
            return run.replace(metadata=event.metadata)
        case LossNoted():
            return run.replace(loss=(*run.loss, Loss(feature=event.feature, how=event.how)), last_seq=record.seq)
        case UpstreamBound():
            return run.replace(upstream={**run.upstream, **event.ids})
        case _:
            return run


def interrupt_raised(record: Record, event: InterruptRaised) -> Interrupt:
    return Interrupt(
        interrupt_id=event.interrupt_id or "",
        task_id=record.task_id or "",
        run_id=record.run_id or "",
        ask=event.ask,
        message=event.message,
        raised_at=record.at,
        value=event.value,
        answer_schema=event.answer_schema,
        takes_text=event.takes_text,
        asker=event.asker,
        node=event.node,
        ns=event.ns,
        extra=event.extra,
    )


def interrupt_after(interrupt: Interrupt, event: InterruptAnswered) -> Interrupt:
    return interrupt.replace(action=event.action, answer=event.value)


def _merge_extra(begun: Extra, ended: Extra) -> Extra:
    """Return the `extra` of a message: that of its start and that of its end, merged. If both have the same member
    under the same protocol, the end's value wins."""
    return {**begun, **{name: {**(begun.get(name) or {}), **(more or {})} for name, more in ended.items()}}


@dataclass(slots=True)
class _OpenMessage:
    """Message of a fold, with the parts that its records have brought so far."""

    message: Message
    run_id: str | None
    task_id: str | None
    ended: bool = False
    is_input: bool = False
    """True if the message is part of the run's input, so a restart keeps it."""
    parts: GrowingParts = field(default_factory=GrowingParts)
    whole: Message | None = None
    """Complete message; None until it has ended."""

    def value(self) -> Message:
        if self.whole is not None:
            return self.whole
        message = self.message.replace(parts=self.parts.join_all())
        if self.ended:
            self.whole = message
        return message

    def copy(self) -> "_OpenMessage":
        """Return an independent copy, or the message itself if it has ended, because it no longer changes."""
        if self.ended:
            return self
        return replace(self, parts=self.parts.copy())


class Fold:
    """State of a thread, a task or a run, computed from its records. Its user applies every record, in order."""

    def __init__(self, thread_id: str, owner: str = "", records: Iterable[Record] = ()) -> None:
        self.thread_id = thread_id
        self.owner = owner
        self.seq = 0
        self.size = 0
        """Estimated memory in bytes: texts and files, and a constant for each message, run, question and artifact."""
        self.thread: Thread | None = None
        self.tasks: dict[str, Task] = {}
        self.runs: dict[str, Run] = {}
        self.interrupts: dict[tuple[str, str], Interrupt] = {}
        """Questions by task id and interrupt id; two tasks may have questions with the same id."""
        self.artifacts: dict[str, Artifact] = {}
        self._messages: dict[str, _OpenMessage] = {}
        for record in records:
            self.apply(record)

    def copy(self) -> "Fold":
        """Return an independent copy. The cost depends on the number of messages, runs and artifacts, not of
        records."""
        copy = Fold(self.thread_id, self.owner)
        copy.seq, copy.size, copy.thread = self.seq, self.size, self.thread
        copy.tasks, copy.runs = dict(self.tasks), dict(self.runs)
        copy.interrupts, copy.artifacts = dict(self.interrupts), dict(self.artifacts)
        copy._messages = {message_id: message.copy() for message_id, message in self._messages.items()}
        return copy

    def apply(self, record: Record) -> None:
        self.seq = record.seq
        if type(record.event) is PartDelta:  # most events of a long answer; they change only the message
            self.add_texts(record.event, (record.event.text,), record.seq)
        else:
            self._apply_other(record)

    def add_texts(self, event: PartDelta, texts: Sequence[str], seq: int) -> None:
        """Apply several deltas that differ from `event` in their text only. `seq` is the number of the last one."""
        self.seq = seq
        message = self._messages.get(event.message_id or "")
        if message is not None:
            self.size += sum(map(len, texts))
            message.parts.extend(event.index, texts)

    def _apply_other(self, record: Record) -> None:
        event = record.event
        self._advance(record)
        match event:
            case ThreadChanged() if self.thread is None:
                self.thread = thread_after(thread_created(self.thread_id, self.owner, record), record)
            case TaskCreated():
                self.tasks[event.task_id] = task_created(self.thread_id, record, event)
            case RunCreated():
                self.size += _ENTRY_OVERHEAD + len(encode_event(event))
                self._add_run(event, record)
                for message in event.messages:
                    self._add_message(message, record)
            case RunStarted() if event.is_restart:
                self._void(record.run_id, event)
            case InterruptRaised() | InterruptAnswered():
                self._interrupt(event, record)
            case ArtifactAdded():
                self._artifact(event, record)
            case RunRemoved() | RunChanged():
                if event.run_id in self.runs:
                    self.runs[event.run_id] = run_after(self.runs[event.run_id], record)
            case MessageStarted() | PartAdded() | PartEnded() | MessageEnded():
                self._message(event, record)
            case _:
                pass

    def _advance(self, record: Record) -> None:
        """Apply a record to the thread, the task and the run to which it belongs."""
        task_id, run_id = record.task_id, record.run_id
        if self.thread is not None:
            self.thread = thread_after(self.thread, record)
        if task_id in self.tasks:
            self.tasks[task_id] = task_after(self.tasks[task_id], record)
        if run_id in self.runs:
            self.runs[run_id] = run_after(self.runs[run_id], record)

    def _interrupt(self, event: InterruptRaised | InterruptAnswered, record: Record) -> None:
        key = record.task_id or "", event.interrupt_id or ""
        if isinstance(event, InterruptRaised):
            self.size += _ENTRY_OVERHEAD + len(encode_event(event))
            self.interrupts[key] = interrupt_raised(record, event)
            return
        interrupt = self.interrupts.get(key)
        if interrupt is not None:
            self.interrupts[key] = interrupt_after(interrupt, event)

    def _add_run(self, event: RunCreated, record: Record) -> None:
        task_id = record.task_id or ""
        agent = self.tasks[task_id].agent if task_id in self.tasks else ""
        self.runs[event.run_id] = run_created(record, event, task_id, self.thread_id, agent)

    def _void(self, run_id: str | None, start: RunStarted) -> None:
        """Drop the messages and artifacts of the run `run_id` that `start`, the start of its next attempt, makes void.
        The messages of the run's input stay."""
        for message_id, message in list(self._messages.items()):
            if message.run_id == run_id and not message.is_input and start.is_void(message_id):
                del self._messages[message_id]
        for artifact_id, artifact in list(self.artifacts.items()):
            if artifact.run_id == run_id and start.is_void(None):
                del self.artifacts[artifact_id]

    def _add_message(self, message: Message, record: Record) -> None:
        self._messages[message.message_id or ""] = _OpenMessage(
            message=message,
            run_id=record.run_id,
            task_id=record.task_id,
            ended=True,
            is_input=True,
            parts=GrowingParts(message.parts),
        )

    def _message(self, event: MessageStarted | PartAdded | PartEnded | MessageEnded, record: Record) -> None:
        message_id = event.message_id or ""
        if isinstance(event, MessageStarted):
            self.size += _ENTRY_OVERHEAD
            self._messages[message_id] = _OpenMessage(
                message=Message(
                    message_id=event.message_id,
                    role=event.role,
                    name=event.name,
                    phase=event.phase,
                    metadata=event.metadata,
                    extra=event.extra,
                ),
                run_id=record.run_id,
                task_id=record.task_id,
            )
            return
        message = self._messages.get(message_id)
        if message is None:  # the fold began in the middle of the message
            return
        match event:
            case PartAdded():
                self.size += len(event.part.text) if isinstance(event.part, TextPart) else len(encode_event(event))
                message.parts.append(event.part)
            case PartEnded():
                pass
            case MessageEnded():
                message.ended = True
                if event.extra:
                    message.message = message.message.replace(extra=_merge_extra(message.message.extra, event.extra))
                message.value()  # now: copies share it from here on, and several threads may read them at once

    def _artifact(self, event: ArtifactAdded, record: Record) -> None:
        artifact_id = event.artifact_id or ""
        self.size += _ENTRY_OVERHEAD + len(encode_event(event))
        artifact = self.artifacts.get(artifact_id)
        if artifact is not None and event.append:
            self.artifacts[artifact_id] = artifact.replace(parts=(*artifact.parts, event.part), complete=event.last)
            return
        self.artifacts[artifact_id] = Artifact(
            artifact_id=event.artifact_id,
            name=event.name,
            description=event.description,
            parts=(event.part,),
            task_id=record.task_id,
            run_id=record.run_id,
            origin=event.origin,
            folder=event.folder,
            complete=event.last,
            created_at=record.at,
            metadata=event.metadata,
            extra=event.extra,
        )

    def _is_removed(self, run_id: str | None) -> bool:
        return run_id in self.runs and self.runs[run_id].removed

    def messages(self, *, task_id: str | None = None, run_id: str | None = None) -> list[Message]:
        """Return the messages in the order in which they began. `task_id` and `run_id` select those of one task or run;
        None does not restrict. Messages of removed runs are left out."""
        return [
            message.value()
            for message in self._messages.values()
            if (task_id is None or message.task_id == task_id)
            and (run_id is None or message.run_id == run_id)
            and not self._is_removed(message.run_id)
        ]

    def messages_by_run(self) -> dict[str | None, list[Message]]:
        """Return the messages by run id; messages outside runs are under None. Removed runs are left out."""
        messages: dict[str | None, list[Message]] = {}
        for message in self._messages.values():
            if not self._is_removed(message.run_id):
                messages.setdefault(message.run_id, []).append(message.value())
        return messages

    def message(self, message_id: str) -> Message | None:
        message = self._messages.get(message_id)
        return None if message is None else message.value()

    def find_messages(self, message_ids: Iterable[str]) -> tuple[Message, ...]:
        """Return the messages with these ids, in this order. Unknown ids are skipped."""
        messages = self._messages
        found = (messages[message_id] for message_id in message_ids if message_id in messages)
        return tuple([message.whole or message.value() for message in found])

    def open_interrupts(self, task_id: str | None = None) -> list[Interrupt]:
        """Return the unanswered questions of a task, or of all tasks without `task_id`, oldest first."""
        return [i for i in self.interrupts.values() if i.is_open and (task_id is None or i.task_id == task_id)]
