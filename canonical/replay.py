"""Replay of paused generators and restarted runs: an agent that starts over is matched against its earlier events.

A run that is started again, a paused generator that was lost, and an upstream's event list that is read again all
repeat events that the log already holds. `ReplayCursor` drops the repeated events, and the first new event continues
where the log ends. Text is compared by its content, not by the deltas in which it arrives.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from babelgate.canonical.difference import apply_difference
from babelgate.canonical.event import (
    ArtifactAdded,
    Event,
    HubEvent,
    InterruptAnswered,
    InterruptRaised,
    LossNoted,
    MessageEnded,
    MessageStarted,
    PartAdded,
    PartDelta,
    PartEnded,
    Record,
    RunCreated,
    RunStarted,
    StateSaved,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
    UpstreamBound,
)
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.json import is_equal, to_json
from babelgate.canonical.message import Part, ReasoningPart, RefusalPart, TextPart, ToolCallPart
from babelgate.canonical.value import JsonObject

_BY_HUB = get_args(HubEvent)

_CLOSING = (PartEnded, MessageEnded, ToolEnded, StepEnded)
"""Events that the hub also appends, to end items that an agent left open when it stopped."""

_UNORDERED = (UpstreamBound, LossNoted)
"""Events that may come at another place when the agent repeats its events."""

_HUB_FILLED = ("message_id", "index", "call_id", "step_id", "artifact_id", "interrupt_id", "checkpoint_id", "node")
"""Fields that the hub fills if the agent leaves them empty. They are compared only if the agent sets them in the
repeated event."""

_ID_FIELDS: Final[Mapping[type, str]] = {
    MessageStarted: "message_id",
    ToolStarted: "call_id",
    StepStarted: "step_id",
    ArtifactAdded: "artifact_id",
}
"""Name of the field with the id of the item that an event begins, by the class of the event. Later events refer to the
item by this id."""


class Diverged(FaultError):
    """Raised if an agent that starts over does not repeat its earlier events."""

    def __init__(self, words: str) -> None:
        super().__init__(
            FaultCode.AGENT_NOT_REPLAYABLE, f"The restarted agent did not repeat its earlier events: {words}."
        )


def without_voided(records: Iterable[Record]) -> list[Record]:
    """Return the records without those that a later restart of their run voids, because the agent sends that content
    again (`RunStarted.is_void`).

    A restart voids the agent's events of all earlier attempts of the run, or only those in the messages that it names
    (`RunStarted.void`). Events of the hub, such as starts and answers, and events of other runs remain.
    """
    remaining: list[Record] = []
    for record in records:
        event = record.event
        if isinstance(event, RunStarted) and event.is_restart:
            remaining = [
                each
                for each in remaining
                if each.run_id != record.run_id
                or isinstance(each.event, _BY_HUB)
                or not event.is_void(getattr(each.event, "message_id", None))
            ]
        remaining.append(record)
    return remaining


def agent_records(records: Iterable[Record], run_id: str | None = None) -> list[Record]:
    """Return the records of the agent's events, in order: those of one run, or of all runs if `run_id` is None. Events
    that only the hub appends (starts, ends, answers) are left out. So are events before a restart that made the agent
    send them again (`without_voided`)."""
    return [
        record
        for record in without_voided(records)
        if not isinstance(record.event, _BY_HUB) and (run_id is None or record.run_id == run_id)
    ]


def agent_events(records: Iterable[Record], run_id: str | None = None) -> list[Event]:
    return [record.event for record in agent_records(records, run_id)]


def is_same_event(logged: Event, repeated: Event) -> bool:
    """Return True if the event `repeated` of a restarted agent equals the event `logged`.

    Ids that the hub fills are not compared. A file that is sent again has the same content if its bytes have the logged
    hash.
    """
    if logged.kind != repeated.kind:
        return False
    old, new = to_json(logged), to_json(repeated)
    if isinstance(logged, StateSaved) and logged.checkpoint_id and logged.checkpoint_id == new["checkpoint_id"]:
        # An id identifies one state, even if the state is encoded differently.
        for members in (old, new):
            members.update(dict.fromkeys(("values", "delta", "change")))
    if "interrupt_id" in new:  # the hub gives a question a new id if the task already had a question with that id
        new["interrupt_id"] = None
    for name in _HUB_FILLED:
        if name in new and new[name] in (None, ""):
            old.pop(name, None)
            new.pop(name)
    for name in ("message", "part"):
        if isinstance(old.get(name), dict):
            _fill(old[name], new[name], getattr(repeated, name))
    return is_equal(old, new)


def _fill(old: dict[str, Any], new: dict[str, Any], value: object) -> None:
    """Add to `new`, a repeated event as JSON, what the hub added to the logged event `old` when it stored it: message
    ids, and the hash and size of files. `value` is the message or part from which `new` was made."""
    if new.get("message_id", "") is None:
        new["message_id"] = old.get("message_id")
    if getattr(value, "inline", None) is not None:
        inline: bytes = getattr(value, "inline")  # noqa: B009  the union of parts has no such attribute
        new["blob"], new["size"] = hashlib.sha256(inline).hexdigest(), len(inline)
    old_parts, new_parts = old.get("parts", ()), new.get("parts", ())
    if len(old_parts) == len(new_parts):
        for before, after, part in zip(old_parts, new_parts, getattr(value, "parts", ()), strict=True):
            _fill(before, after, part)


@dataclass(slots=True)
class _Text:
    """Text of one part that the agent has sent so far, regardless of how it was split into deltas."""

    message_id: str | None
    index: int | None
    text: str

    def is_of(self, other: "_Text") -> bool:
        """Return True if both texts can belong to the same part: their message ids and indices are equal. None, which
        the agent left to the hub, equals any value."""
        mine, others = (self.message_id, self.index), (other.message_id, other.index)
        return all(None in pair or pair[0] == pair[1] for pair in zip(mine, others, strict=True))


_Piece = Event | _Text


def _pieces(event: Event) -> Iterator[_Piece]:
    """Yield an event as pieces that can be compared however its text is split into deltas. A part with text becomes its
    empty start, its text, and its end if the part is complete."""
    match event:
        case PartDelta():
            yield _Text(event.message_id, event.index, event.text)
        case PartAdded(part=TextPart() | ReasoningPart() | RefusalPart() | ToolCallPart()):
            empty, text = _split_text(event.part)
            yield event.replace(part=empty, open=True)
            yield _Text(event.message_id, event.index, text)
            if not event.open:
                yield PartEnded(message_id=event.message_id, index=event.index)
        case _:
            yield event


def _split_text(part: Part) -> tuple[Part, str]:
    match part:
        case TextPart() | ReasoningPart() | RefusalPart():
            return part.replace(text=""), part.text
        case ToolCallPart():
            return part.replace(arguments=""), part.arguments
        case _:
            return part, ""


def _with_whole_states(events: Sequence[Event]) -> list[Event]:
    """Return the events with each state that is stored as a difference replaced by the whole state, because agents send
    whole states."""
    values: dict[str, JsonObject] = {}
    result: list[Event] = []
    for event in events:
        if isinstance(event, StateSaved):
            if event.change is not None and event.change.since in values:
                whole: JsonObject = apply_difference(values[event.change.since], event.change.new)
                event = event.replace(values=whole, change=None)
            if event.values is not None:
                values[event.checkpoint_id or ""] = event.values
        result.append(event)
    return result


class ReplayCursor:
    """Position in the logged events of an agent, while the restarted agent repeats them.

    Args:
        events: Logged events of the agent, in order.
        closed: True if the hub ended the items that the agent had left open (`_CLOSING`) each time that the agent
            stopped. The agent need not repeat these ends. False for a run that was cut off.
        renames: True if the agent may give other ids to messages, tool calls, steps and artifacts. The new events then
            get the ids of the log.
    """

    def __init__(self, events: Sequence[Event], *, closed: bool = True, renames: bool = False) -> None:
        self._closed = closed
        self._renames = renames
        events = _with_whole_states(events)
        self._pieces: list[_Piece] = []
        self._origins: list[int] = []
        """Index in `events` of the event from which each piece was made."""
        self._unordered = [event for event in events if isinstance(event, _UNORDERED)]
        self._at = 0
        self._offset = 0
        """Number of characters that the agent has repeated of the current piece, if that is a text."""
        self._repeated: list[Event] = []
        self._ids: dict[tuple[str, str], str | None] = {}
        """Id of an item in the log, by the name of its id field (`_ID_FIELDS`) and the id that the restarted agent gave
        to it. None if the event in the log has no id."""
        for place, event in enumerate(events):
            if not isinstance(event, _UNORDERED):
                self._add(place, event)

    def _add(self, place: int, event: Event) -> None:
        for piece in _pieces(event):
            last = self._pieces[-1] if self._pieces else None
            if not isinstance(piece, _Text):
                self._pieces.append(piece)
                self._origins.append(place)
            elif isinstance(last, _Text) and last.is_of(piece):
                last.text += piece.text
            elif piece.text:
                self._pieces.append(piece)
                self._origins.append(place)

    def new_events(self, event: Event) -> list[Event]:
        """Return the part of an event that is not in the log yet.

        Raises:
            Diverged: if the event differs from the logged one.
        """
        if isinstance(event, _UNORDERED):
            return [] if event in self._unordered else [event]
        renamed = self._with_logged_ids(event)
        if self.is_repeated:
            return [renamed]
        new: list[Event] = []
        begun: Event | None = None
        for piece in _pieces(renamed):
            if isinstance(piece, _Text):
                if rest := self._rest(piece):
                    new.append(_more(renamed, begun, rest))
                continue
            logged = self._find(piece, event)
            if logged is None and begun is None:
                return [renamed]
            if logged is None:
                new.append(
                    PartEnded(message_id=getattr(begun, "message_id", None), index=getattr(begun, "index", None))
                )
            begun = begun or logged
        if begun is not None:
            self._repeated.append(begun)
        if self.is_repeated:  # the pieces are no longer needed
            self._pieces, self._origins, self._at = [], [], 0
        return new

    def split(self, events: Sequence[Event]) -> tuple[Sequence[Event], Sequence[Event]]:
        """Return the new events among `events`, and the logged events that the other ones repeat. `events` are those of
        one value that the agent yielded, such as a list of questions.

        Raises:
            Diverged: if an event differs from the log, or if the agent repeats only some of the questions that it asked
                at once.
        """
        if self.is_repeated:
            return events, ()
        self._repeated = []
        new = [new_event for event in events for new_event in self.new_events(event)]
        has_question = [any(isinstance(event, InterruptRaised) for event in each) for each in (new, self._repeated)]
        if all(has_question):
            raise Diverged("it asked a new question along with a logged one")
        return new, self._repeated

    @property
    def is_repeated(self) -> bool:
        """True if the agent has repeated all logged events."""
        return self._at == len(self._pieces)

    @property
    def is_over(self) -> bool:
        """True if the agent has repeated all its logged events. Ends that the hub may have appended (`_CLOSING`) need
        not be repeated."""
        return all(self._closed and isinstance(piece, _CLOSING) for piece in self._pieces[self._at :])

    def end(self) -> None:
        """Check that the agent may end now.

        Raises:
            Diverged: if the log has further events of the agent.
        """
        if not self.is_over:
            total = self._origins[-1] + 1
            raise Diverged(f"it ended after {self._origins[self._at]} of {total} logged events")

    def _rest(self, again: _Text) -> str:
        """Return the end of a text that goes beyond the logged text; empty if the log has all of it. Raises Diverged if
        the text differs from the log."""
        text = again.text
        while text and not self.is_repeated:
            logged = self._pieces[self._at]
            if isinstance(logged, _Text) and logged.is_of(again):
                left = logged.text[self._offset :]
                if left.startswith(text) and len(left) > len(text):
                    self._offset += len(text)
                    return ""
                if not text.startswith(left):
                    raise Diverged("its text differs from the logged text")
                text = text[len(left) :]
            elif not self._closed or not isinstance(logged, _CLOSING):
                raise Diverged("its text is longer than the logged text")
            self._at, self._offset = self._at + 1, 0
        return text

    def _find(self, again: Event, original: Event) -> Event | None:
        """Return the logged event that the agent's event repeats, or None if the agent has repeated the whole log and
        the event is new.

        `original` is the event with the ids that the agent chose, and `again` the same event with the ids of the log.
        Raises Diverged if the log has another event here.
        """
        while not self.is_repeated:
            logged = self._pieces[self._at]
            if isinstance(logged, _Text):
                raise Diverged(f"it sent {again.kind} where the log has more text of a part")
            if is_same_event(logged, self._without_new_id(again, original)):
                self._at += 1
                self._learn(logged, original)
                return logged
            if not self._closed or not isinstance(logged, _CLOSING):
                words = f"it sent {again.kind} where the log has {logged.kind}"
                raise Diverged(words if logged.kind != again.kind else f"{words} with other content")
            self._at += 1
        return None

    # Ids

    def _with_logged_ids(self, event: Event) -> Event:
        """Return the event with each id that the restarted agent gave to an item replaced by the item's id in the
        log."""
        if not self._ids:
            return event
        logged_ids = {
            name: self._ids[name, value]
            for name in _ID_FIELDS.values()
            if (value := getattr(event, name, None)) is not None and (name, value) in self._ids
        }
        return event.replace(**logged_ids) if logged_ids else event

    def _without_new_id(self, again: Event, original: Event) -> Event:
        """Return the event `again` without the id of the item that it begins, if the agent may rename items and has not
        used this id before. `is_same_event` then ignores the id."""
        name = _ID_FIELDS.get(type(again))
        if not self._renames or name is None or (name, getattr(original, name)) in self._ids:
            return again
        return again.replace(**{name: None})

    def _learn(self, logged: Event, original: Event) -> None:
        name = _ID_FIELDS.get(type(original))
        if name is not None and (new_id := getattr(original, name)) is not None and new_id != getattr(logged, name):
            self._ids[name, new_id] = getattr(logged, name)


def _more(event: Event, begun: Event | None, text: str) -> Event:
    """Return an event that appends `text`, the part of a text that the log does not have yet. `event` is the agent's
    event with the whole text. `begun` is the logged event that began the part, whose message id and index are used;
    None if there is none."""
    if isinstance(event, PartDelta):
        return event if event.text == text else event.replace(text=text)
    return PartDelta(message_id=getattr(begun, "message_id", None), index=getattr(begun, "index", None), text=text)


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """History of a paused agent up to its open questions."""

    first: RunCreated
    """Event that created the first run, whose input started the agent."""
    sent: Sequence[Event]
    """Events that the agent sent in the first run and in all runs that continued it, in order."""
    answers: Mapping[str, InterruptAnswered]
    """Answers by interrupt id."""
    message_ids: frozenset[str]
    """Ids of the caller's messages in the first run's input, and of the agent's messages in `sent`."""


def replay_plan(records: Sequence[Record], interrupt_id: str) -> ReplayPlan | None:
    """Return the history that led to a question, or None if the records are incomplete.

    The search goes backwards from the run that asked the question. If an answer started that run, the search continues
    with the run that asked the answered question. It ends at the first run, which no answer started.
    """
    created = {record.event.run_id: record.event for record in records if isinstance(record.event, RunCreated)}
    asked_by: dict[str, str] = {}
    answered_in: dict[str, list[str]] = {}
    answers: dict[str, InterruptAnswered] = {}
    for record in records:
        event, run_id = record.event, record.run_id or ""
        if isinstance(event, InterruptRaised):
            asked_by[event.interrupt_id or ""] = run_id
        elif isinstance(event, InterruptAnswered):
            answered_in.setdefault(run_id, []).append(event.interrupt_id)
            answers[event.interrupt_id] = event
    run_ids: list[str] = []
    question: str | None = interrupt_id
    while question is not None:
        run_id = asked_by.get(question)
        run = created.get(run_id or "")
        if run_id is None or run is None or run_id in run_ids:
            return None
        run_ids.append(run_id)
        if run.cause != "answer":
            events = [event for run_id in reversed(run_ids) for event in agent_events(records, run_id)]
            return ReplayPlan(run, events, answers, _message_ids(run, events))
        question = next(iter(answered_in.get(run_id, ())), None)
    return None


def _message_ids(run: RunCreated, events: Sequence[Event]) -> frozenset[str]:
    ids = [message.message_id for message in run.messages]
    for event in events:
        if isinstance(event, MessageStarted):
            ids.append(event.message_id)
        elif isinstance(event, InterruptRaised):
            ids.append(event.message.message_id)
    return frozenset(message_id for message_id in ids if message_id is not None)
