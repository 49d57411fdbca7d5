"""Event sourcing, folds (projections): `Fold` turns records into the snapshots that every protocol's view is made of.

`task_after`, `run_after` and `interrupt_after` say what one record does to one snapshot. The journal applies the same
functions to the rows it keeps, in the transaction that appends the record, so rows and log cannot disagree.
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
from babelgate.canonical.growing import GrowingText, grow
from babelgate.canonical.message import FilePart, Message, Part, ReasoningPart, RefusalPart, TextPart, ToolCallPart
from babelgate.canonical.state import RunStatus, TaskState
from babelgate.canonical.thread import Artifact, Interrupt, Loss, Run, Task, Thread
from babelgate.canonical.value import Extra

_THING: Final = 500
"""Bytes of a thing without its words."""


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
        case RunCreated() if thread.uploads:  # its messages bring them
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
        created_at=record.at,
        first_seq=record.seq,
        last_seq=record.seq,
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
            return run.replace(removed=True)
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
        node=event.node,
        ns=event.ns,
        extra=event.extra,
    )


def interrupt_after(interrupt: Interrupt, event: InterruptAnswered) -> Interrupt:
    return interrupt.replace(action=event.action, answer=event.value)


def extend_part(part: Part, text: str) -> Part:
    """The part with a delta's text at its end."""
    match part:
        case TextPart() | ReasoningPart() | RefusalPart():
            return part.replace(text=part.text + text)
        case ToolCallPart():
            return part.replace(arguments=part.arguments + text)
        case _:
            return part


def _merge_extra(begun: Extra, ended: Extra) -> Extra:
    """What a protocol says of a message at its start and at its end, member by member."""
    return {**begun, **{name: {**(begun.get(name) or {}), **(more or {})} for name, more in ended.items()}}


@dataclass(slots=True)
class _OpenMessage:
    """A message while its records arrive: deltas are gathered in lists and joined once, when somebody looks."""

    message: Message
    run_id: str | None
    task_id: str | None
    ended: bool = False
    given: bool = False
    """Of the run's input."""
    parts: list[Part] = field(default_factory=list[Part])
    deltas: dict[int, GrowingText] = field(default_factory=dict[int, GrowingText])
    whole: Message | None = None
    """The message with its parts, once it has ended."""

    def value(self) -> Message:
        if self.whole is not None:
            return self.whole
        for index, said in self.deltas.items():
            self.parts[index] = extend_part(self.parts[index], said.join())
        self.deltas.clear()
        made = self.message.replace(parts=tuple(self.parts))
        if self.ended:
            self.whole = made
        return made

    def copy(self) -> "_OpenMessage":
        """One that has ended does not change any more, and is its own copy."""
        if self.ended:
            return self
        return replace(self, parts=list(self.parts), deltas={at: said.copy() for at, said in self.deltas.items()})


class Fold:
    """The state that some records add up to. Feed it the records of a thread, or of one task or run of it, in order."""

    def __init__(self, thread_id: str, owner: str = "", records: Iterable[Record] = ()) -> None:
        self.thread_id = thread_id
        self.owner = owner
        self.seq = 0
        self.size = 0
        """About how many bytes it holds: of words and files, and something for each thing that has them."""
        self.thread: Thread | None = None
        self.tasks: dict[str, Task] = {}
        self.runs: dict[str, Run] = {}
        self.interrupts: dict[tuple[str, str], Interrupt] = {}
        """By task and id: two tasks may be asked the same."""
        self.artifacts: dict[str, Artifact] = {}
        self._messages: dict[str, _OpenMessage] = {}
        for record in records:
            self.apply(record)

    def copy(self) -> "Fold":
        """One of its own, in a time that grows with what was said and not with the records in which it was."""
        made = Fold(self.thread_id, self.owner)
        made.seq, made.size, made.thread = self.seq, self.size, self.thread
        made.tasks, made.runs = dict(self.tasks), dict(self.runs)
        made.interrupts, made.artifacts = dict(self.interrupts), dict(self.artifacts)
        made._messages = {message_id: said.copy() for message_id, said in self._messages.items()}
        return made

    def apply(self, record: Record) -> None:
        self.seq = record.seq
        if type(record.event) is PartDelta:  # most events of a long answer, of which nothing knows but the message
            self.add_texts(record.event, (record.event.text,), record.seq)
        else:
            self._apply_other(record)

    def add_texts(self, event: PartDelta, texts: Sequence[str], seq: int) -> None:
        """Apply several deltas, of which the last has this seq, and which differ from `event` in their text only."""
        self.seq = seq
        said = self._messages.get(event.message_id or "")
        if said is not None:
            self.size += sum(map(len, texts))
            index = len(said.parts) - 1 if event.index is None else event.index
            grow(said.deltas, index).extend(texts)

    def _apply_other(self, record: Record) -> None:
        event = record.event
        task_id, run_id = record.task_id, record.run_id
        if self.thread is not None:
            self.thread = thread_after(self.thread, record)
        if task_id in self.tasks:
            self.tasks[task_id] = task_after(self.tasks[task_id], record)
        if run_id in self.runs:
            self.runs[run_id] = run_after(self.runs[run_id], record)
        match event:
            case ThreadChanged() if self.thread is None:
                self.thread = thread_after(thread_created(self.thread_id, self.owner, record), record)
            case TaskCreated():
                self.tasks[event.task_id] = task_created(self.thread_id, record, event)
            case RunCreated():
                self.size += _THING + len(encode_event(event))
                self._add_run(event, record)
                for message in event.messages:
                    self._add_message(message, record)
            case RunStarted() if event.is_restart:
                self._void(run_id, event)
            case InterruptRaised():
                self.size += _THING + len(encode_event(event))
                self.interrupts[task_id or "", event.interrupt_id or ""] = interrupt_raised(record, event)
            case InterruptAnswered():
                asked = self.interrupts.get((task_id or "", event.interrupt_id))
                if asked is not None:
                    self.interrupts[task_id or "", event.interrupt_id] = interrupt_after(asked, event)
            case ArtifactAdded():
                self._artifact(event, record)
            case RunRemoved() | RunChanged():
                if event.run_id in self.runs:
                    self.runs[event.run_id] = run_after(self.runs[event.run_id], record)
            case MessageStarted() | PartAdded() | PartEnded() | MessageEnded():
                self._message(event, record)
            case _:
                pass

    def _add_run(self, event: RunCreated, record: Record) -> None:
        task_id = record.task_id or ""
        agent = self.tasks[task_id].agent if task_id in self.tasks else ""
        self.runs[event.run_id] = run_created(record, event, task_id, self.thread_id, agent)

    def _void(self, run_id: str | None, start: RunStarted) -> None:
        """The run starts over."""
        for message_id, said in list(self._messages.items()):
            if said.run_id == run_id and not said.given and start.is_void(message_id):
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
            given=True,
            parts=list(message.parts),
        )

    def _message(self, event: MessageStarted | PartAdded | PartEnded | MessageEnded, record: Record) -> None:
        message_id = event.message_id or ""
        if isinstance(event, MessageStarted):
            self.size += _THING
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
        said = self._messages.get(message_id)
        if said is None:  # the view began in the middle of the message
            return
        match event:
            case PartAdded():
                self.size += len(event.part.text) if isinstance(event.part, TextPart) else len(encode_event(event))
                said.parts.append(event.part)
            case PartEnded():
                pass
            case MessageEnded():
                said.ended = True
                if event.extra:
                    said.message = said.message.replace(extra=_merge_extra(said.message.extra, event.extra))
                said.value()  # now, because copies share it from here on, and may be looked at side by side

    def _artifact(self, event: ArtifactAdded, record: Record) -> None:
        artifact_id = event.artifact_id or ""
        self.size += _THING + len(encode_event(event))
        before = self.artifacts.get(artifact_id)
        if before is not None and event.append:
            self.artifacts[artifact_id] = before.replace(parts=(*before.parts, event.part), complete=event.last)
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
        """What was said, in order: by the thread, or by one task or run. Removed runs said nothing."""
        return [
            said.value()
            for said in self._messages.values()
            if (task_id is None or said.task_id == task_id)
            and (run_id is None or said.run_id == run_id)
            and not self._is_removed(said.run_id)
        ]

    def messages_by_run(self) -> dict[str | None, list[Message]]:
        """The same, run by run; under None what belongs to no run."""
        said: dict[str | None, list[Message]] = {}
        for message in self._messages.values():
            if not self._is_removed(message.run_id):
                said.setdefault(message.run_id, []).append(message.value())
        return said

    def message(self, message_id: str) -> Message | None:
        said = self._messages.get(message_id)
        return None if said is None else said.value()

    def find_messages(self, message_ids: Iterable[str]) -> tuple[Message, ...]:
        """Those of these ids that there are."""
        known = self._messages
        found = (known[message_id] for message_id in message_ids if message_id in known)
        return tuple([said.whole or said.value() for said in found])

    def open_interrupts(self, task_id: str | None = None) -> list[Interrupt]:
        """Unanswered questions, oldest first."""
        return [i for i in self.interrupts.values() if i.is_open and (task_id is None or i.task_id == task_id)]
