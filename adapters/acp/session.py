"""Sessions: what the completed runs of a thread said, one resource a message.

"On completion" a server records the input messages of a run and then its output; runs that fail or are cancelled leave
nothing. A resource's id is the task (or, for messages that another server recorded, the thread) and a number.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from adapters.acp import wire as w
from adapters.acp.codec import View, encode_message, own_fields, resource_url
from adapters.acp.writer import EventWriter
from canonical import Fold, Message, Record
from canonical.event import MessageStarted, RunCreated, RunRemoved, TaskCreated

__all__ = ("Entry", "transcript")


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
    recorded: int = 0
    removed: bool = False

    def write(self, record: Record) -> None:
        event = record.event
        if isinstance(event, RunCreated):
            self.messages.extend(encode_message(message, self.view, record.at) for message in event.messages)
        if isinstance(event, RunRemoved):
            self.removed = True
        self.writer.write(record)
        output = self.writer.output
        self.messages.extend(output[self.recorded :])
        self.recorded = len(output)

    def entries(self) -> Iterable[Entry]:
        if self.removed or self.writer.status != "completed":
            return
        for number, message in enumerate(self.messages):
            resource_id = f"{self.view.run_id}.{number}"
            yield Entry(resource_id, resource_url(self.view.base_url, resource_id), message)


def transcript(
    thread_id: str, records: Iterable[Record], *, base_url: str, advertised: Callable[[str], str]
) -> list[Entry]:
    """The session's history, from the records of the thread or of one task of it. `advertised` = the name under which
    callers know an agent."""
    groups: dict[str, _Group | Message] = {}
    imported = Fold(thread_id)
    times: dict[str, int] = {}
    for record in records:
        event = record.event
        if isinstance(event, TaskCreated):
            view = View(run_id=event.task_id, session_id=thread_id, agent=advertised(event.agent), base_url=base_url)
            groups[event.task_id] = _Group(view, EventWriter(view))
        if record.task_id is None:
            imported.apply(record)
            if isinstance(event, MessageStarted) and event.message_id is not None:
                groups[event.message_id] = Message()
                times[event.message_id] = record.at
            continue
        group = groups.get(record.task_id)
        if isinstance(group, _Group):
            group.write(record)
    plain = View(run_id=thread_id, session_id=thread_id, agent="agent", base_url=base_url)
    entries: list[Entry] = []
    number = 0
    for key, group in groups.items():
        if isinstance(group, _Group):
            entries.extend(group.entries())
            continue
        message = imported.message(key) or group
        resource_id = f"{thread_id}.{number}"
        number += 1
        url = own_fields(message.extra).get("url") or resource_url(base_url, resource_id)
        entries.append(Entry(resource_id, url, encode_message(message, plain, times[key])))
    return entries
