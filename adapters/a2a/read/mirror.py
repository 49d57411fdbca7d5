"""Pass-through of unknown A2A events: what a server says of a task that canonical events have no word for, or another
one, is kept as it came, for callers of A2A alone (`write.task_events`)."""

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
"""Bytes of one, as JSON: an event of the log has a limit, and a run ends that says a larger one. Chosen, not
measured."""
TOO_LARGE: Final = "what is said beside a status is too large to keep"
_SPOKEN: Final = (MessageStarted, PartAdded, PartDelta, PartEnded, MessageEnded)


class Mirror:
    """Of one run: what is new in each reply, before the events that it was read as."""

    def __init__(self) -> None:
        self._last: dict[str, JsonObject] = {}
        self._lost = False

    def recall(self, record: Record) -> None:
        event = record.event
        if isinstance(event, Native) and event.protocol == PROTOCOL and PROTOCOL in event.extra:
            self._last[event.event] = event.extra[PROTOCOL]

    def reflect(self, reply: w.Reply | None, events: list[Event], rule: DataRule) -> list[Event]:
        match reply:
            case w.Task():
                about = _about(reply.metadata, reply.model_extra, "own")
                told = [*self._tell(TASK, about)]
                # A task at work that says nothing is shown so anyway.
                if reply.status is not None and (reply.status.message is not None or _is_over(reply.status)):
                    told += self._status(reply.status, {}, events, rule)
                return [*told, *events]
            case w.TaskStatusUpdateEvent():
                about = _about(reply.metadata, reply.model_extra, "own")
                return [*self._status(reply.status, about, events, rule), *events]
            case _:
                return events

    def _status(
        self, status: w.TaskStatus, about: JsonObject, events: Sequence[Event], rule: DataRule
    ) -> Sequence[Event]:
        state = decode_state(status.state)
        if status.model_extra:
            about["status"] = status.model_extra
        if status.message is not None and (_is_over(status) or not _is_plain(events, about)):
            message = _message(status.message, rule)
            if message is not None:
                about["message"] = message
        return self._tell(STATUS, {"state": state.value, **about} if about else {})

    def _tell(self, name: str, data: JsonObject) -> Sequence[Event]:
        if not data or self._last.get(name) == data:
            return ()
        self._last[name] = data
        if len(msgspec.json.encode(data)) > MOST:
            return () if self._lost else self._lose()
        return (Native(protocol=PROTOCOL, event=name, extra={PROTOCOL: data}),)

    def _lose(self) -> Sequence[Event]:
        self._lost = True
        return (LossNoted(feature="custom", how=TOO_LARGE),)


def beside_of(update: w.TaskArtifactUpdateEvent) -> JsonObject:
    return _about(update.metadata, update.model_extra, "own")


def _about(metadata: JsonObject | None, unknown: JsonObject | None, name: str) -> JsonObject:
    # A gateway like this one has ids and losses of its own there, which are read.
    metadata = {key: value for key, value in (metadata or {}).items() if key != "babelgate"}
    told: JsonObject = {"metadata": metadata} if metadata else {}
    return {**told, name: unknown} if unknown else told


def _is_over(status: w.TaskStatus) -> bool:
    state = decode_state(status.state)
    # Terminal and interrupted states (a2a.proto 1.0.1, TaskState).
    return state in TERMINAL or state in WAITING


def _is_plain(events: Sequence[Event], about: JsonObject) -> bool:
    """Whether the events show the message as it is: said on the way, and nothing beside it."""
    spoken = [event for event in events if isinstance(event, _SPOKEN)]
    begun = [event for event in spoken if isinstance(event, MessageStarted)]
    return not about and len(begun) == 1 and begun[0].phase == "progress"


def _message(message: w.Message, rule: DataRule) -> JsonObject | None:
    """As it is in the log. None for one without an id, by which it is known again, and for one with files: these are in
    the events."""
    said = Message(
        parts=decode_parts(message.parts, rule).parts,
        metadata=message.metadata or {},
        extra=as_extra(message, messageId=message.messageId),
    )
    # Required (a2a.proto 1.0.1, Message.message_id), and not there in all that servers say.
    if not message.messageId or said.has_bytes:
        return None
    told: JsonObject = msgspec.json.decode(msgspec.json.encode(said))
    return told
