"""The referee: follows what one run says and refuses what may not follow."""

import hashlib
from dataclasses import dataclass, field
from typing import cast, get_args
from uuid import uuid4

from babelgate.canonical import Event, Fault, FilePart, Message, Part, RunStatus
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
from babelgate.canonical.fold import extend_part
from babelgate.canonical.json import to_json
from babelgate.canonical.state import ENDED
from babelgate.canonical.stored import decode_event

_EVENTS = get_args(Event)
_FREE = (StateSaved, Custom, Native, LossNoted, UpstreamBound)
_OF_A_MESSAGE = (PartAdded, PartDelta, PartEnded, MessageEnded)
_ACTIVITY = (ToolStarted, ToolEnded, StepStarted, StepEnded)
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
    """An agent broke the contract."""

    def __init__(self, rule: str, how: str) -> None:
        super().__init__(f"{rule}: {how}")
        self.rule = rule


@dataclass
class Transcript:
    """What one run said, with ids filled in."""

    events: list[Event] = field(default_factory=list[Event])
    ended: RunEnded | None = None
    fault: Fault | None = None
    """It failed: it said so, or raised."""

    @property
    def questions(self) -> list[InterruptRaised]:
        return [event for event in self.events if isinstance(event, InterruptRaised)]

    @property
    def messages(self) -> list[Message]:
        """Whole, in order, also those left open."""
        parts: dict[str, list[Part]] = {}
        deltas: dict[tuple[str, int], list[str]] = {}
        started: list[MessageStarted] = []
        for event in self.events:
            if isinstance(event, MessageStarted):
                started.append(event)
                parts[event.message_id or ""] = []
            elif isinstance(event, PartAdded):
                parts[event.message_id or ""].append(event.part)
            elif isinstance(event, PartDelta):
                deltas.setdefault((event.message_id or "", event.index or 0), []).append(event.text)
        for (message_id, index), texts in deltas.items():
            parts[message_id][index] = extend_part(parts[message_id][index], "".join(texts))
        return [
            Message(
                message_id=event.message_id,
                role=event.role,
                phase=event.phase,
                parts=tuple(parts[event.message_id or ""]),
            )
            for event in started
        ]

    @property
    def text(self) -> str:
        """The answer: the text of its messages, without progress."""
        return "".join(message.text for message in self.messages if message.phase == "answer")

    @property
    def words(self) -> list[object]:
        """What was said, without ids: equal for two runs that said the same."""
        told = [to_json(event) for event in self.events]
        return [{name: each for name, each in event.items() if name not in _IDS} for event in told]


def _hash_file(event: Event, given: object) -> Event:
    """With the hash of a file's bytes in their place."""
    part: object = getattr(given, "part", None)
    if not isinstance(event, PartAdded | ArtifactAdded) or not isinstance(part, FilePart) or part.inline is None:
        return event
    blob = hashlib.sha256(part.inline).hexdigest()
    return event.replace(part=part.replace(blob=blob, size=len(part.inline), inline=None))


class Referee:
    """Follows one run and refuses what may not follow. Fills ids as the hub does."""

    def __init__(self) -> None:
        self.heard = Transcript()
        self._open: dict[str, dict[int, bool]] = {}
        """Message → part index → open."""
        self._active: dict[tuple[str, str], str] = {}
        """(kind, id) → name, of tools and steps."""
        self._seen: set[str] = set()
        self._artifacts: set[str] = set()
        self._asked = False

    def see(self, event: object) -> Event | None:
        """The event with its ids; None for RunEnded. Raises Broken."""
        if not isinstance(event, _EVENTS):
            raise Broken("events are canonical and fit into a log", f"a {type(event).__name__}")
        try:
            told = decode_event(encode_event(cast("Event", event)))
        except (TypeError, ValueError) as error:
            raise Broken("events are canonical and fit into a log", f"{type(event).__name__}: {error}") from error
        if self.heard.ended is not None:
            raise Broken("nothing follows RunEnded", told.kind)
        if self._asked and isinstance(told, MessageStarted | ArtifactAdded | ToolStarted | StepStarted):
            raise Broken("a run stops at its questions", f"{told.kind} after interrupt_raised")
        if isinstance(told, RunEnded):
            self._check_run_end(told)
            return None
        filled = _hash_file(self._fill(told), event)
        self.heard.events.append(filled)
        return filled

    def _check_run_end(self, event: RunEnded) -> None:
        if event.status not in ENDED:
            raise Broken("RunEnded has a status in which a run ends", event.status)
        if event.status in (RunStatus.ERROR, RunStatus.TIMEOUT) and event.fault is None:
            raise Broken("a run that failed says why", f"status {event.status} without a fault")
        if event.status is RunStatus.SUCCESS and (event.fault is not None or self._asked):
            raise Broken("a run succeeds without a fault and without an open question", "it has one")
        self.heard.ended = event
        self.heard.fault = event.fault

    def _fill(self, event: Event) -> Event:
        match event:
            case MessageStarted():
                message_id = self._new(event.message_id)
                self._open[message_id] = {}
                return event.replace(message_id=message_id)
            case _ if isinstance(event, _OF_A_MESSAGE):
                return self._of_a_message(event)
            case _ if isinstance(event, _ACTIVITY):
                return self._activity(event)
            case ArtifactAdded():
                artifact_id = event.artifact_id or str(uuid4())
                if event.append and artifact_id not in self._artifacts:
                    raise Broken("an append has something to append to", "artifact_added")
                self._artifacts.add(artifact_id)
                return event.replace(artifact_id=artifact_id)
            case InterruptRaised():
                self._asked = True
                said = event.message.replace(message_id=event.message.message_id or str(uuid4()))
                return event.replace(interrupt_id=self._new(event.interrupt_id), message=said)
            case _ if isinstance(event, _FREE):
                return event
            case _:
                raise Broken("an agent says only what is an agent's to say", event.kind)

    def close(self) -> list[Event]:
        """What the hub says for what was left open."""
        closing: list[Event] = []
        for message_id, parts in self._open.items():
            closing += [PartEnded(message_id=message_id, index=index) for index, is_open in parts.items() if is_open]
            closing.append(MessageEnded(message_id=message_id))
        for (kind, made), name in self._active.items():
            closing.append(ToolEnded(call_id=made, name=name) if kind == "tool" else StepEnded(step_id=made, name=name))
        return closing

    def _new(self, given: str | None) -> str:
        if given == "" or given in self._seen:
            raise Broken("ids are None, or not empty and used once", repr(given))
        self._seen.add(given or "")
        return given or str(uuid4())

    def _of_a_message(self, event: PartAdded | PartDelta | PartEnded | MessageEnded) -> Event:
        message_id = event.message_id or next(reversed(self._open), "")
        parts = self._open.get(message_id)
        if parts is None:
            raise Broken("parts are said in an open message", event.kind)
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
        given: str | None = getattr(event, key)
        if isinstance(event, ToolStarted | StepStarted):
            made = self._new(given)
            self._active[kind, made] = event.name
        else:
            found = (
                i for (k, i), name in self._active.items() if k == kind and (given or i) == i and name == event.name
            )
            made = next(found, "")
            if self._active.pop((kind, made), None) is None:
                raise Broken("what ends has started", f"{event.kind} of {event.name}")
        return event.replace(**{key: made})
