"""ACP sessions: what the completed runs of a thread said, one resource a message.

"On completion" a server records the input messages of a run and then its output; runs that fail or are cancelled leave
nothing. A resource's id is the task (or, for messages that another server recorded, the thread) and a number.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from adapters.acp import wire as w
from adapters.acp.codec.messages import encode_message
from adapters.acp.codec.parts import View, extra_of, resource_url
from adapters.acp.write.run_events import EventWriter
from canonical import Fold, Message, Record
from canonical.event import MessageStarted, RunCreated, RunRemoved, TaskCreated


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

    def entries(self) -> Iterable[Entry]:
        # SDK 1.0.3 appends on completion only: a run that failed or was cancelled is in no session.
        if self.removed or self.writer.status != "completed":
            return
        for number, message in enumerate(self.messages):
            resource_id = f"{self.view.run_id}.{number}"
            # Absolute: clients hand it to another server, which fetches it.
            yield Entry(resource_id, resource_url(self.view.base_url, resource_id), message)


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
            self._groups[event.task_id] = _Group(view, EventWriter(view))
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
