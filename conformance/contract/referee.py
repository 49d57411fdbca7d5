"""Referee of one run: checks each event of an agent, and rejects an event that is not allowed after the earlier
ones."""

import hashlib
from dataclasses import dataclass, field
from typing import cast, get_args
from uuid import uuid4

from babelgate.canonical import Event, Fault, FilePart, Message, RunStatus
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptRaised,
    LossNoted,
    MessageEnded,
    MessageStarted,
    Native,
    PartAdded,
    PartDelta,
    PartEnded,
    RunEnded,
    StateSaved,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
    UpstreamBound,
    encode_event,
)
from babelgate.canonical.growing import GrowingParts
from babelgate.canonical.json import to_json
from babelgate.canonical.state import ENDED
from babelgate.canonical.stored import decode_event

_EVENTS = get_args(Event)
_UNCHECKED_EVENTS = (StateSaved, Custom, Native, LossNoted, UpstreamBound)
_MESSAGE_EVENTS = (PartAdded, PartDelta, PartEnded, MessageEnded)
_ACTIVITY_EVENTS = (ToolStarted, ToolEnded, StepStarted, StepEnded)
_IDS = {
    "message_id": True,
    "call_id": True,
    "step_id": True,
    "artifact_id": True,
    "interrupt_id": True,
    "checkpoint_id": True,
    "message": {"message_id"},
    "ids": True,
    "extra": True,
}


class Broken(AssertionError):
    """Violation of the contract by an agent. `rule` is the rule in words."""

    def __init__(self, rule: str, how: str) -> None:
        super().__init__(f"{rule}: {how}")
        self.rule = rule


@dataclass
class Transcript:
    """Events of one run, with the ids that the hub would fill in."""

    events: list[Event] = field(default_factory=list[Event])
    ended: RunEnded | None = None
    fault: Fault | None = None
    """Fault of a failed run, which the agent reported or raised; None if the run did not fail."""

    @property
    def questions(self) -> list[InterruptRaised]:
        return [event for event in self.events if isinstance(event, InterruptRaised)]

    @property
    def messages(self) -> list[Message]:
        """Messages of the run with their parts, in order. A message that the agent has not ended is included."""
        parts: dict[str, GrowingParts] = {}
        started: list[MessageStarted] = []
        for event in self.events:
            if isinstance(event, MessageStarted):
                started.append(event)
                parts[event.message_id or ""] = GrowingParts()
            elif isinstance(event, PartAdded):
                parts[event.message_id or ""].append(event.part)
            elif isinstance(event, PartDelta):
                parts[event.message_id or ""].extend(event.index or 0, (event.text,))
        return [
            Message(
                message_id=event.message_id,
                role=event.role,
                phase=event.phase,
                parts=parts[event.message_id or ""].join_all(),
            )
            for event in started
        ]

    @property
    def text(self) -> str:
        """Text of all messages with the phase `answer`, joined together."""
        return "".join(message.text for message in self.messages if message.phase == "answer")

    @property
    def words(self) -> list[object]:
        """Events as JSON without ids, to compare the outputs of two runs."""
        events = [to_json(event) for event in self.events]
        return [{name: each for name, each in event.items() if name not in _IDS} for event in events]


def _hash_file(event: Event, original: object) -> Event:
    """Return `event` with the bytes of its file part replaced by their hash and size. `original` is the event before
    encoding, which has the bytes."""
    part: object = getattr(original, "part", None)
    if not isinstance(event, PartAdded | ArtifactAdded) or not isinstance(part, FilePart) or part.inline is None:
        return event
    blob = hashlib.sha256(part.inline).hexdigest()
    return event.replace(part=part.replace(blob=blob, size=len(part.inline), inline=None))


class Referee:
    """Judge of the events of one run. It rejects events that are not allowed, and fills in missing ids as the hub
    does."""

    def __init__(self) -> None:
        self.transcript = Transcript()
        self._open: dict[str, dict[int, bool]] = {}
        """Parts of the messages that have not ended, by message id and part index: True if the part is open for
        deltas."""
        self._active: dict[tuple[str, str], str] = {}
        """Names of the tool calls and steps that have not ended, by `tool` or `step` and id."""
        self._used_ids: set[str] = set()
        self._artifacts: set[str] = set()
        self._has_asked = False

    def see(self, event: object) -> Event | None:
        """Check the next event of the run and return it with its ids filled in. Return None for a RunEnded, which is
        kept in the transcript. Raises Broken if the event breaks the contract of agents."""
        if not isinstance(event, _EVENTS):
            raise Broken("events are canonical and fit into a log", f"a {type(event).__name__}")
        try:
            decoded = decode_event(encode_event(cast("Event", event)))
        except (TypeError, ValueError) as error:
            raise Broken("events are canonical and fit into a log", f"{type(event).__name__}: {error}") from error
        if self.transcript.ended is not None:
            raise Broken("nothing follows RunEnded", decoded.kind)
        if self._has_asked and isinstance(decoded, MessageStarted | ArtifactAdded | ToolStarted | StepStarted):
            raise Broken("a run stops at its questions", f"{decoded.kind} after interrupt_raised")
        if isinstance(decoded, RunEnded):
            self._check_run_end(decoded)
            return None
        filled = _hash_file(self._fill(decoded), event)
        self.transcript.events.append(filled)
        return filled

    def _check_run_end(self, event: RunEnded) -> None:
        if event.status not in ENDED:
            raise Broken("RunEnded has a status in which a run ends", event.status)
        if event.status in (RunStatus.ERROR, RunStatus.TIMEOUT) and event.fault is None:
            raise Broken("a run that failed says why", f"status {event.status} without a fault")
        if event.status is RunStatus.SUCCESS and (event.fault is not None or self._has_asked):
            raise Broken("a run succeeds without a fault and without an open question", "it has one")
        self.transcript.ended = event
        self.transcript.fault = event.fault

    def _fill(self, event: Event) -> Event:
        match event:
            case MessageStarted():
                message_id = self._new(event.message_id)
                self._open[message_id] = {}
                return event.replace(message_id=message_id)
            case _ if isinstance(event, _MESSAGE_EVENTS):
                return self._of_a_message(event)
            case _ if isinstance(event, _ACTIVITY_EVENTS):
                return self._activity(event)
            case ArtifactAdded():
                artifact_id = event.artifact_id or str(uuid4())
                if event.append and artifact_id not in self._artifacts:
                    raise Broken("an append has something to append to", "artifact_added")
                self._artifacts.add(artifact_id)
                return event.replace(artifact_id=artifact_id)
            case InterruptRaised():
                self._has_asked = True
                message = event.message.replace(message_id=event.message.message_id or str(uuid4()))
                return event.replace(interrupt_id=self._new(event.interrupt_id), message=message)
            case _ if isinstance(event, _UNCHECKED_EVENTS):
                return event
            case _:
                raise Broken("an agent says only what is an agent's to say", event.kind)

    def close(self) -> list[Event]:
        """Return the events with which the hub ends the messages, tool calls and steps that the run has left open."""
        closing: list[Event] = []
        for message_id, parts in self._open.items():
            closing += [PartEnded(message_id=message_id, index=index) for index, is_open in parts.items() if is_open]
            closing.append(MessageEnded(message_id=message_id))
        for (kind, id), name in self._active.items():
            closing.append(ToolEnded(call_id=id, name=name) if kind == "tool" else StepEnded(step_id=id, name=name))
        return closing

    def _new(self, id: str | None) -> str:
        if id == "" or id in self._used_ids:
            raise Broken("ids are None, or not empty and used once", repr(id))
        self._used_ids.add(id or "")
        return id or str(uuid4())

    def _of_a_message(self, event: PartAdded | PartDelta | PartEnded | MessageEnded) -> Event:
        message_id = event.message_id or next(reversed(self._open), "")
        parts = self._open.get(message_id)
        if parts is None:
            raise Broken("parts are added to an open message", event.kind)
        if isinstance(event, MessageEnded):
            if any(parts.values()):
                raise Broken("a message ends after its parts", "message_ended with an open part")
            del self._open[message_id]
            return event.replace(message_id=message_id)
        if isinstance(event, PartAdded):
            index = len(parts)
            if event.index not in (None, index):
                raise Broken("parts are numbered in order", f"index {event.index} for part {index}")
            parts[index] = event.open
        else:
            index = event.index
            if index is None:
                index = next((i for i in reversed(parts) if parts[i]), -1)
            if not parts.get(index, False):
                raise Broken("deltas and ends belong to an open part", event.kind)
            parts[index] = isinstance(event, PartDelta)
        return event.replace(message_id=message_id, index=index)

    def _activity(self, event: ToolStarted | ToolEnded | StepStarted | StepEnded) -> Event:
        tool = isinstance(event, ToolStarted | ToolEnded)
        kind, key = ("tool", "call_id") if tool else ("step", "step_id")
        event_id: str | None = getattr(event, key)
        if isinstance(event, ToolStarted | StepStarted):
            id = self._new(event_id)
            self._active[kind, id] = event.name
        else:
            found = (
                i for (k, i), name in self._active.items() if k == kind and (event_id or i) == i and name == event.name
            )
            id = next(found, "")
            if self._active.pop((kind, id), None) is None:
                raise Broken("what ends has started", f"{event.kind} of {event.name}")
        return event.replace(**{key: id})
