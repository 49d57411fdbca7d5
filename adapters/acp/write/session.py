"""ACP sessions: the messages of a thread's completed runs. Each message is a resource with its own URL.

"On completion", a server records the input messages of a run and then its output. Failed and cancelled runs leave no
messages. The id of a resource is that of the task and a number within the task. For messages that another server
recorded, it is that of the thread and a number within the thread.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from babelgate.adapters.acp import wire as w
from babelgate.adapters.acp.codec.messages import encode_message
from babelgate.adapters.acp.codec.parts import EncodingContext, extra_of, resource_url
from babelgate.adapters.acp.write.run_events import EventWriter
from babelgate.canonical import Fold, Message, Record, TextPart
from babelgate.canonical.event import (
    MessageEnded,
    MessageStarted,
    PartAdded,
    PartDelta,
    RunCreated,
    RunRemoved,
    TaskChanged,
    TaskCreated,
    encode_event,
)
from babelgate.canonical.state import TERMINAL


@dataclass(frozen=True, slots=True)
class Entry:
    """One message of a session, with its resource id."""

    resource_id: str
    url: str
    """URL of the message: on this gateway, or on the server that recorded the message."""
    message: w.Message


@dataclass(slots=True)
class _Group:
    """Messages that one task contributes to a session: its inputs and its output."""

    view: EncodingContext
    writer: EventWriter
    messages: list[w.Message] = field(default_factory=list[w.Message])
    output: list[w.Message] = field(default_factory=list[w.Message])
    """Messages of the agent alone. They are also in `messages`."""
    removed: bool = False

    def write(self, record: Record) -> None:
        """Apply the next record of the task."""
        event = record.event
        if isinstance(event, RunCreated):
            self.messages.extend(encode_message(message, self.view, record.at) for message in event.messages)
        if isinstance(event, RunRemoved):
            self.removed = True
        self.writer.apply(record)
        output = self.writer.output
        if len(output) < len(self.output):  # a restart voided a part of the output
            valid_ids = {id(message) for message in output}
            void_ids = {id(message) for message in self.output} - valid_ids
            self.messages = [message for message in self.messages if id(message) not in void_ids]
            self.output = list(output)
        new = output[len(self.output) :]
        self.messages.extend(new)
        self.output.extend(new)

    @classmethod
    def of(cls, view: EncodingContext) -> "_Group":
        """Return a group without messages."""
        return cls(view, EventWriter(view))

    def complete(self) -> Sequence[w.Message]:
        """Return the messages of the task if it has completed, and none otherwise."""
        # SDK 1.0.3 records messages on completion only: a failed or cancelled run is in no session.
        return () if self.removed or self.writer.status != "completed" else self.messages

    def entries(self) -> Iterable[Entry]:
        """Yield the messages of the task as entries of the session."""
        for number, message in enumerate(self.complete()):
            resource_id = f"{self.view.run_id}.{number}"
            # Absolute, because clients pass it to another server, which fetches it.
            yield Entry(resource_id, resource_url(self.view.base_url, resource_id), message)


class SessionUrls:
    """URLs of the messages of a session: a snapshot (`babelgate.canonical.hub.Snapshot`) that stores the number of
    messages, but not the messages. All records of the thread must be applied in order."""

    def __init__(self, thread_id: str, advertised: Callable[[str], str]) -> None:
        """Create the snapshot of a thread without records. `advertised` returns the name of an agent that ACP callers
        see."""
        self.seq = 0
        self.size = 0
        self._thread_id = thread_id
        self._advertised = advertised
        self._entries: dict[str, int | str] = {}
        """Contributions to the session, in order. For a task, the number of its messages by task id. For a message of
        another server, its URL by message id; the URL is empty if it is unknown."""
        self._open: dict[str, list[Record]] = {}
        """Records of tasks that have not ended, by task id. The messages are counted when the task ends."""
        self._open_sizes: dict[str, int] = {}
        """Estimated sizes of the records in `_open`, in bytes, by task id."""

    def copy(self) -> "SessionUrls":
        """Return an independent copy of the snapshot."""
        copied = SessionUrls(self._thread_id, self._advertised)
        copied.seq, copied.size, copied._entries = self.seq, self.size, dict(self._entries)
        copied._open = {task_id: list(records) for task_id, records in self._open.items()}
        copied._open_sizes = dict(self._open_sizes)
        return copied

    def apply(self, record: Record) -> None:
        """Apply the next record of the thread."""
        self.seq = record.seq
        event, task_id = record.event, record.task_id
        if task_id is None:
            if isinstance(event, MessageStarted | MessageEnded) and event.message_id is not None:
                self._import(event.message_id, event)
            return
        if isinstance(event, TaskCreated):
            self._entries[task_id], self._open[task_id], self._open_sizes[task_id] = 0, [], 0
            self.size += _ENTRY_OVERHEAD
        elif isinstance(event, RunRemoved):
            self._entries[task_id] = 0
        records = self._open.get(task_id)
        if records is None:
            return
        records.append(record)
        size = _size_of(record)
        self.size += size
        self._open_sizes[task_id] += size
        if isinstance(event, TaskChanged) and event.state in TERMINAL:
            self._entries[task_id] = self._count(task_id, self._open.pop(task_id))
            self.size -= self._open_sizes.pop(task_id)

    def _import(self, message_id: str, event: MessageStarted | MessageEnded) -> None:
        """Store the URL of a message that another server has recorded. `event` starts or ends the message."""
        url = extra_of(event.extra).get("url")
        if isinstance(event, MessageStarted):
            self._entries[message_id] = url or ""
            self.size += _ENTRY_OVERHEAD
        elif url and message_id in self._entries:
            self._entries[message_id] = url

    def _count(self, task_id: str, records: Iterable[Record]) -> int:
        """Return the number of messages that a task contributes to the session, from all records of the task. It is 0
        unless the task has completed."""
        group: _Group | None = None
        for record in records:
            if isinstance(record.event, TaskCreated):
                agent = self._advertised(record.event.agent)
                group = _Group.of(EncodingContext(run_id=task_id, session_id=self._thread_id, agent=agent))
            if group is not None:
                group.write(record)
        return 0 if group is None else len(group.complete())

    def urls(self, base_url: str) -> list[str]:
        """Return the URLs of the session's messages, in order. They equal those of a `SessionTranscript`."""
        urls: list[str] = []
        number = 0
        for key, entry in self._entries.items():
            if isinstance(entry, int):
                urls += [resource_url(base_url, f"{key}.{each}") for each in range(entry)]
            else:
                urls.append(entry or resource_url(base_url, f"{self._thread_id}.{number}"))
                number += 1
        return urls


_ENTRY_OVERHEAD: Final = 200
"""Memory that a task, a message or a record takes in addition to its text, in bytes. Estimated."""


def _size_of(record: Record) -> int:
    """Return the estimated memory that a record takes, in bytes."""
    event = record.event
    match event:
        case PartDelta():
            return _ENTRY_OVERHEAD + len(event.text)
        case PartAdded() if isinstance(event.part, TextPart):
            return _ENTRY_OVERHEAD + len(event.part.text)
        case _:
            return _ENTRY_OVERHEAD + len(encode_event(event))


class SessionTranscript:
    """Messages of a session. The records of the thread, or of one of its tasks, must be applied in order."""

    def __init__(self, thread_id: str, *, base_url: str, advertised: Callable[[str], str]) -> None:
        """Create a transcript without messages. `advertised` returns the name of an agent that ACP callers see."""
        self._thread_id = thread_id
        self._base_url = base_url
        self._advertised = advertised
        self._groups: dict[str, _Group | Message] = {}
        self._imported = Fold(thread_id)
        self._times: dict[str, int] = {}

    def apply(self, record: Record) -> None:
        """Apply the next record."""
        event = record.event
        if isinstance(event, TaskCreated):
            view = EncodingContext(
                run_id=event.task_id,
                session_id=self._thread_id,
                agent=self._advertised(event.agent),
                base_url=self._base_url,
            )
            self._groups[event.task_id] = _Group.of(view)
        if record.task_id is None:
            self._imported.apply(record)
            if isinstance(event, MessageStarted) and event.message_id is not None:
                self._groups[event.message_id] = Message()
                self._times[event.message_id] = record.at
            return
        group = self._groups.get(record.task_id)
        if isinstance(group, _Group):
            group.write(record)

    def entries(self) -> Iterator[Entry]:
        """Yield the messages of the session as entries, in order."""
        plain = EncodingContext(
            run_id=self._thread_id, session_id=self._thread_id, agent="agent", base_url=self._base_url
        )
        number = 0
        for key, group in self._groups.items():
            if isinstance(group, _Group):
                yield from group.entries()
                continue
            message = self._imported.message(key) or group
            resource_id = f"{self._thread_id}.{number}"
            number += 1
            # Distributed sessions of SDK 1.0.3: messages of another server stay there.
            url = extra_of(message.extra).get("url") or resource_url(self._base_url, resource_id)
            yield Entry(resource_id, url, encode_message(message, plain, self._times[key]))
