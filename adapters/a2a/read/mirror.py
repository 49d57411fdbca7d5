"""Pass-through of A2A fields that no canonical event covers, such as the metadata of a status.

They are stored unchanged in `Native` events, and only callers of A2A receive them (`write.task_events`).
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from babelgate.adapters.a2a.codec.dialect import DataRule
from babelgate.adapters.a2a.read.parts import as_extra, decode_parts, decode_state
from babelgate.adapters.a2a.wire import replies as w
from babelgate.adapters.a2a.wire.task import PROTOCOL, STATUS, TASK
from babelgate.canonical import Event, Message
from babelgate.canonical.event import (
    LossNoted,
    MessageEnded,
    MessageStarted,
    Native,
    PartAdded,
    PartDelta,
    PartEnded,
    Record,
)
from babelgate.canonical.state import TERMINAL, WAITING
from babelgate.canonical.value import JsonObject

MOST: Final = 256_000
"""Maximum size of the fields in one event as JSON, in bytes. Chosen, because the log limits the size of events, and a
larger one would end the run."""
TOO_LARGE: Final = "the members next to a status are too large to keep"
_SPOKEN: Final = (MessageStarted, PartAdded, PartDelta, PartEnded, MessageEnded)


class Mirror:
    """Reader of the uncovered fields of one run. For each reply, it returns them in an event before the reply's other
    events."""

    def __init__(self) -> None:
        self._last: dict[str, JsonObject] = {}
        """Last fields that were passed through, by the name of the event: `task` or `status`."""
        self._lost = False

    def recall(self, record: Record) -> None:
        """Restore the fields of a recorded event, so that they are not passed through again."""
        event = record.event
        if isinstance(event, Native) and event.protocol == PROTOCOL and PROTOCOL in event.extra:
            self._last[event.event] = event.extra[PROTOCOL]

    def reflect(self, reply: w.Reply | None, events: list[Event], rule: DataRule) -> list[Event]:
        """Return the events of a reply. Before them are new events with those of its uncovered fields that have
        changed. Only tasks and status updates have such fields. `rule` is the form of the server's data parts."""
        match reply:
            case w.Task():
                fields = _fields(reply.metadata, reply.model_extra)
                passed = [*self._pass(TASK, fields)]
                # A running task without a message looks the same without its status.
                if reply.status is not None and (reply.status.message is not None or _is_over(reply.status)):
                    passed += self._status(reply.status, {}, events, rule)
                return [*passed, *events]
            case w.TaskStatusUpdateEvent():
                fields = _fields(reply.metadata, reply.model_extra)
                return [*self._status(reply.status, fields, events, rule), *events]
            case _:
                return events

    def _status(
        self, status: w.TaskStatus, fields: JsonObject, events: Sequence[Event], rule: DataRule
    ) -> Sequence[Event]:
        state = decode_state(status.state)
        if status.model_extra:
            fields["status"] = status.model_extra
        if status.message is not None and (_is_over(status) or not _is_plain(events, fields)):
            message = _message(status.message, rule)
            if message is not None:
                fields["message"] = message
        return self._pass(STATUS, {"state": state.value, **fields} if fields else {})

    def _pass(self, name: str, data: JsonObject) -> Sequence[Event]:
        if not data or self._last.get(name) == data:
            return ()
        self._last[name] = data
        if len(msgspec.json.encode(data)) > MOST:
            return () if self._lost else self._lose()
        return (Native(protocol=PROTOCOL, event=name, extra={PROTOCOL: data}),)

    def _lose(self) -> Sequence[Event]:
        self._lost = True
        return (LossNoted(feature="custom", how=TOO_LARGE),)


def update_members(update: w.TaskArtifactUpdateEvent) -> JsonObject:
    """Return the metadata of an artifact update under `metadata`, and its unknown members under `own`."""
    return _fields(update.metadata, update.model_extra)


def _fields(metadata: JsonObject | None, unknown: JsonObject | None) -> JsonObject:
    # Another gateway reports its ids and losses under this key. They are read as events.
    metadata = {key: value for key, value in (metadata or {}).items() if key != "babelgate"}
    fields: JsonObject = {"metadata": metadata} if metadata else {}
    return {**fields, "own": unknown} if unknown else fields


def _is_over(status: w.TaskStatus) -> bool:
    state = decode_state(status.state)
    # Terminal and interrupted states (a2a.proto 1.0.1, TaskState).
    return state in TERMINAL or state in WAITING


def _is_plain(events: Sequence[Event], fields: JsonObject) -> bool:
    """Return True if the canonical events already show the whole status: there are no uncovered fields, and its only
    message is progress."""
    spoken = [event for event in events if isinstance(event, _SPOKEN)]
    begun = [event for event in spoken if isinstance(event, MessageStarted)]
    return not fields and len(begun) == 1 and begun[0].phase == "progress"


def _message(message: w.Message, rule: DataRule) -> JsonObject | None:
    """Return the message of a status as JSON for the log. Return None if it has no id, by which it could be recognized,
    or has files.

    The other events of the status already contain the files.
    """
    canonical = Message(
        parts=decode_parts(message.parts, rule).parts,
        metadata=message.metadata or {},
        extra=as_extra(message, messageId=message.messageId),
    )
    # The id is required (a2a.proto 1.0.1, Message.message_id), but some servers omit it.
    if not message.messageId or canonical.has_bytes:
        return None
    encoded: JsonObject = msgspec.json.decode(msgspec.json.encode(canonical))
    return encoded
