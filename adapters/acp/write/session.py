"""ACP sessions: what the completed runs of a thread said, one resource a message.

"On completion" a server records the input messages of a run and then its output; runs that fail or are cancelled leave
nothing. A resource's id is the task (or, for messages that another server recorded, the thread) and a number.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from babelgate.adapters.acp import wire as w
from babelgate.adapters.acp.codec.messages import encode_message
from babelgate.adapters.acp.codec.parts import View, extra_of, resource_url
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
    resource_id: str
    url: str
    """Where it can be had: of another server's message, where that server keeps it."""
    message: w.Message


@dataclass(slots=True)
class _Group:
    """The messages of one task."""

    view: View
    writer: EventWriter
    messages: list[w.Message] = field(default_factory=list[w.Message])
    output: list[w.Message] = field(default_factory=list[w.Message])
    """Those of them that the agent said."""
    removed: bool = False

    def write(self, record: Record) -> None:
        event = record.event
        if isinstance(event, RunCreated):
            self.messages.extend(encode_message(message, self.view, record.at) for message in event.messages)
        if isinstance(event, RunRemoved):
            self.removed = True
        self.writer.apply(record)
        output = self.writer.output
        if len(output) < len(self.output):  # a run has started over
            stands = {id(message) for message in output}
            void = {id(message) for message in self.output} - stands
            self.messages = [message for message in self.messages if id(message) not in void]
            self.output = list(output)
        new = output[len(self.output) :]
        self.messages.extend(new)
        self.output.extend(new)

    @classmethod
    def of(cls, view: View) -> "_Group":
        return cls(view, EventWriter(view))

    def complete(self) -> Sequence[w.Message]:
        # SDK 1.0.3 appends on completion only: a run that failed or was cancelled is in no session.
        return () if self.removed or self.writer.status != "completed" else self.messages

    def entries(self) -> Iterable[Entry]:
        for number, message in enumerate(self.complete()):
            resource_id = f"{self.view.run_id}.{number}"
            # Absolute: clients hand it to another server, which fetches it.
            yield Entry(resource_id, resource_url(self.view.base_url, resource_id), message)


class SessionUrls:
    """Where the messages of a session are: a snapshot (`babelgate.canonical.hub.Snapshot`) that holds how many there
    are, and not the messages. Feed it all records of the thread, in order."""

    def __init__(self, thread_id: str, advertised: Callable[[str], str]) -> None:
        """`advertised` = the name under which callers know an agent."""
        self.seq = 0
        self.size = 0
        self._thread_id = thread_id
        self._advertised = advertised
        self._found: dict[str, int | str] = {}
        """In order: by task, how many messages it has; by message of another server, where it is kept, or nothing."""
        self._open: dict[str, list[Record]] = {}
        """By task that has not ended, what there is of it: what it has said is counted when it is complete."""
        self._sizes: dict[str, int] = {}
        """Of these."""

    def copy(self) -> "SessionUrls":
        made = SessionUrls(self._thread_id, self._advertised)
        made.seq, made.size, made._found = self.seq, self.size, dict(self._found)
        made._open = {task_id: list(records) for task_id, records in self._open.items()}
        made._sizes = dict(self._sizes)
        return made

    def apply(self, record: Record) -> None:
        self.seq = record.seq
        event, task_id = record.event, record.task_id
        if task_id is None:
            if isinstance(event, MessageStarted | MessageEnded) and event.message_id is not None:
                self._import(event.message_id, event)
            return
        if isinstance(event, TaskCreated):
            self._found[task_id], self._open[task_id], self._sizes[task_id] = 0, [], 0
            self.size += _THING
        elif isinstance(event, RunRemoved):
            self._found[task_id] = 0
        records = self._open.get(task_id)
        if records is None:
            return
        records.append(record)
        size = _size_of(record)
        self.size += size
        self._sizes[task_id] += size
        if isinstance(event, TaskChanged) and event.state in TERMINAL:
            self._found[task_id] = self._count(task_id, self._open.pop(task_id))
            self.size -= self._sizes.pop(task_id)

    def _import(self, message_id: str, event: MessageStarted | MessageEnded) -> None:
        url = extra_of(event.extra).get("url")
        if isinstance(event, MessageStarted):
            self._found[message_id] = url or ""
            self.size += _THING
        elif url and message_id in self._found:
            self._found[message_id] = url

    def _count(self, task_id: str, records: Iterable[Record]) -> int:
        group: _Group | None = None
        for record in records:
            if isinstance(record.event, TaskCreated):
                agent = self._advertised(record.event.agent)
                group = _Group.of(View(run_id=task_id, session_id=self._thread_id, agent=agent))
            if group is not None:
                group.write(record)
        return 0 if group is None else len(group.complete())

    def urls(self, base_url: str) -> list[str]:
        """As those of a `Transcript`."""
        made: list[str] = []
        number = 0
        for key, found in self._found.items():
            if isinstance(found, int):
                made += [resource_url(base_url, f"{key}.{each}") for each in range(found)]
            else:
                made.append(found or resource_url(base_url, f"{self._thread_id}.{number}"))
                number += 1
        return made


_THING: Final = 200
"""Bytes of what is known of a task, a message or a record, without its words."""


def _size_of(record: Record) -> int:
    event = record.event
    match event:
        case PartDelta():
            return _THING + len(event.text)
        case PartAdded() if isinstance(event.part, TextPart):
            return _THING + len(event.part.text)
        case _:
            return _THING + len(encode_event(event))


class Transcript:
    """The session's history. Feed it the records of the thread, or of one task of it, in order."""

    def __init__(self, thread_id: str, *, base_url: str, advertised: Callable[[str], str]) -> None:
        """`advertised` = the name under which callers know an agent."""
        self._thread_id = thread_id
        self._base_url = base_url
        self._advertised = advertised
        self._groups: dict[str, _Group | Message] = {}
        self._imported = Fold(thread_id)
        self._times: dict[str, int] = {}

    def apply(self, record: Record) -> None:
        event = record.event
        if isinstance(event, TaskCreated):
            view = View(
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
        plain = View(run_id=self._thread_id, session_id=self._thread_id, agent="agent", base_url=self._base_url)
        number = 0
        for key, group in self._groups.items():
            if isinstance(group, _Group):
                yield from group.entries()
                continue
            message = self._imported.message(key) or group
            resource_id = f"{self._thread_id}.{number}"
            number += 1
            # Distributed sessions of SDK 1.0.3: the messages of another server stay where they are.
            url = extra_of(message.extra).get("url") or resource_url(self._base_url, resource_id)
            yield Entry(resource_id, url, encode_message(message, plain, self._times[key]))
