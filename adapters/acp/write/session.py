"""ACP sessions: the messages of a thread's completed runs, one resource per message.

"On completion", a server records the input messages of a run and then its output. Failed and cancelled runs leave no
messages. A resource's id is a number within the task, or within the thread for messages that another server recorded.
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
    """One message of a session."""

    resource_id: str
    url: str
    """URL of the message. It is on another server if that server recorded the message."""
    message: w.Message


@dataclass(slots=True)
class _Group:
    """The messages of one task."""

    view: EncodingContext
    writer: EventWriter
    messages: list[w.Message] = field(default_factory=list[w.Message])
    output: list[w.Message] = field(default_factory=list[w.Message])
    """The messages of the agent."""
    removed: bool = False

    def write(self, record: Record) -> None:
        """Add a record of the task."""
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
        """Return an empty group."""
        return cls(view, EventWriter(view))

    def complete(self) -> Sequence[w.Message]:
        """Return the messages, if the task has completed."""
        # SDK 1.0.3 records messages on completion only: a failed or cancelled run is in no session.
        return () if self.removed or self.writer.status != "completed" else self.messages

    def entries(self) -> Iterable[Entry]:
        """Yield the session's entries of the task."""
        for number, message in enumerate(self.complete()):
            resource_id = f"{self.view.run_id}.{number}"
            # Absolute, because clients pass it to another server, which fetches it.
            yield Entry(resource_id, resource_url(self.view.base_url, resource_id), message)


class SessionUrls:
    """URLs of a session's messages: a snapshot (`babelgate.canonical.hub.Snapshot`) that holds the number of messages,
    but not the messages. Feed it all records of the thread, in order."""

    def __init__(self, thread_id: str, advertised: Callable[[str], str]) -> None:
        """Create the snapshot. `advertised` returns the name under which an agent is advertised."""
        self.seq = 0
        self.size = 0
        self._thread_id = thread_id
        self._advertised = advertised
        self._entries: dict[str, int | str] = {}
        """Entries in order: the number of messages by task id, or the URL by message id for a message of another
        server. The URL is empty if unknown."""
        self._open: dict[str, list[Record]] = {}
        """Records of unfinished tasks, by task id. Their messages are counted at the end of the task."""
        self._open_sizes: dict[str, int] = {}
        """Sizes of these records, by task id."""

    def copy(self) -> "SessionUrls":
        """Return an independent copy."""
        copied = SessionUrls(self._thread_id, self._advertised)
        copied.seq, copied.size, copied._entries = self.seq, self.size, dict(self._entries)
        copied._open = {task_id: list(records) for task_id, records in self._open.items()}
        copied._open_sizes = dict(self._open_sizes)
        return copied

    def apply(self, record: Record) -> None:
        """Add the next record."""
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
        """Store the URL of a message of another server."""
        url = extra_of(event.extra).get("url")
        if isinstance(event, MessageStarted):
            self._entries[message_id] = url or ""
            self.size += _ENTRY_OVERHEAD
        elif url and message_id in self._entries:
            self._entries[message_id] = url

    def _count(self, task_id: str, records: Iterable[Record]) -> int:
        """Return the number of messages in a completed task."""
        group: _Group | None = None
        for record in records:
            if isinstance(record.event, TaskCreated):
                agent = self._advertised(record.event.agent)
                group = _Group.of(EncodingContext(run_id=task_id, session_id=self._thread_id, agent=agent))
            if group is not None:
                group.write(record)
        return 0 if group is None else len(group.complete())

    def urls(self, base_url: str) -> list[str]:
        """Return the URLs, which equal those of a `SessionTranscript`."""
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
"""Estimated size of a task, a message or a record, without its text, in bytes."""


def _size_of(record: Record) -> int:
    """Return the estimated size of a record, in bytes."""
    event = record.event
    match event:
        case PartDelta():
            return _ENTRY_OVERHEAD + len(event.text)
        case PartAdded() if isinstance(event.part, TextPart):
            return _ENTRY_OVERHEAD + len(event.part.text)
        case _:
            return _ENTRY_OVERHEAD + len(encode_event(event))


class SessionTranscript:
    """Messages of a session. Feed it the records of the thread, or of one of its tasks, in order."""

    def __init__(self, thread_id: str, *, base_url: str, advertised: Callable[[str], str]) -> None:
        """Create the transcript. `advertised` returns the name under which an agent is advertised."""
        self._thread_id = thread_id
        self._base_url = base_url
        self._advertised = advertised
        self._groups: dict[str, _Group | Message] = {}
        self._imported = Fold(thread_id)
        self._times: dict[str, int] = {}

    def apply(self, record: Record) -> None:
        """Add the next record."""
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
        """Yield the session's entries in order."""
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
