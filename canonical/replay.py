"""Replay of paused generators and restarted runs: an agent that starts over is matched against what it said before.

A run that is started again, a paused generator that was lost, and an upstream's list of events that is read again: each
says again what the log holds by now. What they repeat is dropped, and the first new event goes on where the log ends.
Text is compared by what it says, and not by the pieces in which it comes.
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
"""The hub says these too, for what an agent left open when it stopped."""

_BESIDE = (UpstreamBound, LossNoted)
"""Facts that are in no order with what is said."""

_MINTED = ("message_id", "index", "call_id", "step_id", "artifact_id", "interrupt_id", "checkpoint_id", "node")
"""Fields that the hub may have filled: they are not compared unless the agent gave them both times."""

_NAMES: Final[Mapping[type, str]] = {
    MessageStarted: "message_id",
    ToolStarted: "call_id",
    StepStarted: "step_id",
    ArtifactAdded: "artifact_id",
}
"""The field by which later events mean what this one begins."""


class Diverged(FaultError):
    """Not what was said before."""

    def __init__(self, words: str) -> None:
        super().__init__(FaultCode.AGENT_NOT_REPLAYABLE, f"The agent was started again and {words}.")


def standing(records: Iterable[Record]) -> list[Record]:
    """The records without what agents said in runs before these were started over."""
    kept: list[Record] = []
    for record in records:
        event = record.event
        if isinstance(event, RunStarted) and event.is_restart:
            kept = [
                each
                for each in kept
                if each.run_id != record.run_id
                or isinstance(each.event, _BY_HUB)
                or not event.is_void(getattr(each.event, "message_id", None))
            ]
        kept.append(record)
    return kept


def agent_records(records: Iterable[Record], run_id: str | None = None) -> list[Record]:
    """Those of the events that came from the agent and stand, of all runs or of one, in order. Whatever the hub adds by
    itself (starts, ends, answers) is left out."""
    return [
        record
        for record in standing(records)
        if not isinstance(record.event, _BY_HUB) and (run_id is None or record.run_id == run_id)
    ]


def agent_events(records: Iterable[Record], run_id: str | None = None) -> list[Event]:
    return [record.event for record in agent_records(records, run_id)]


def is_same_event(said: Event, again: Event) -> bool:
    """Whether `again` repeats `said`, but for what the hub fills: ids, and the hash of a file's bytes, which must be
    that of the bytes given again."""
    if said.kind != again.kind:
        return False
    ours, theirs = to_json(said), to_json(again)
    if isinstance(said, StateSaved) and said.checkpoint_id and said.checkpoint_id == theirs["checkpoint_id"]:
        # An id means one state, whichever way it is told.
        for told in (ours, theirs):
            told.update(dict.fromkeys(("values", "delta", "change")))
    if "interrupt_id" in theirs:  # the hub gives a question another id where the task was asked one of that id before
        theirs["interrupt_id"] = None
    for name in _MINTED:
        if name in theirs and theirs[name] in (None, ""):
            ours.pop(name, None)
            theirs.pop(name)
    for name in ("message", "part"):
        if isinstance(ours.get(name), dict):
            _fill(ours[name], theirs[name], getattr(again, name))
    return is_equal(ours, theirs)


def _fill(ours: dict[str, Any], theirs: dict[str, Any], value: object) -> None:
    """Give `theirs` what the hub gave to `ours` when it stored them: message ids, and files by hash."""
    if theirs.get("message_id", "") is None:
        theirs["message_id"] = ours.get("message_id")
    if getattr(value, "inline", None) is not None:
        inline: bytes = getattr(value, "inline")  # noqa: B009  the union of parts has no such attribute
        theirs["blob"], theirs["size"] = hashlib.sha256(inline).hexdigest(), len(inline)
    old, new = ours.get("parts", ()), theirs.get("parts", ())
    if len(old) == len(new):
        for before, after, part in zip(old, new, getattr(value, "parts", ()), strict=True):
            _fill(before, after, part)


@dataclass(slots=True)
class _Text:
    """What was said of one part, however it was cut."""

    message_id: str | None
    index: int | None
    text: str

    def is_of(self, other: "_Text") -> bool:
        """Whether both are of one part, as far as they tell."""
        mine, others = (self.message_id, self.index), (other.message_id, other.index)
        return all(None in pair or pair[0] == pair[1] for pair in zip(mine, others, strict=True))


_Piece = Event | _Text


def _pieces(event: Event) -> Iterator[_Piece]:
    """An event in pieces that do not depend on how text is cut: a part that is given whole is one that is opened, said
    and ended."""
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


def _tell_states_whole(events: Sequence[Event]) -> list[Event]:
    """With the states that the log has as differences to others of them: the agent gives them whole."""
    values: dict[str, JsonObject] = {}
    told: list[Event] = []
    for event in events:
        if isinstance(event, StateSaved):
            if event.change is not None and event.change.since in values:
                whole: JsonObject = apply_difference(values[event.change.since], event.change.new)
                event = event.replace(values=whole, change=None)
            if event.values is not None:
                values[event.checkpoint_id or ""] = event.values
        told.append(event)
    return told


class ReplayCursor:
    """What was said before, while an agent says it again.

    Args:
        events: What was said.
        closed: The hub has closed what the agent left open each time that it stopped (`_CLOSING`): these closings need
            not be repeated. Of a run that was cut off it has not.
        renames: An id that the agent gives to a message, a tool call, a step or an artifact is no part of what it says:
            the log's holds.
    """

    def __init__(self, events: Sequence[Event], *, closed: bool = True, renames: bool = False) -> None:
        self._closed = closed
        self._renames = renames
        events = _tell_states_whole(events)
        self._pieces: list[_Piece] = []
        self._origins: list[int] = []
        """Of each piece, the place of its event."""
        self._beside = [event for event in events if isinstance(event, _BESIDE)]
        self._at = 0
        self._offset = 0
        """Characters of the piece that were repeated, if it is a text."""
        self._repeated: list[Event] = []
        self._ids: dict[tuple[str, str], str | None] = {}
        """Field and the agent's id → the log's."""
        for place, event in enumerate(events):
            if not isinstance(event, _BESIDE):
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

    def news(self, event: Event) -> list[Event]:
        """What of the event was not said before, as it goes on from what was.

        Raises:
            Diverged: if it is something else than what was said.
        """
        if isinstance(event, _BESIDE):
            return [] if event in self._beside else [event]
        named = self._with_known_ids(event)
        if self.is_repeated:
            return [named]
        new: list[Event] = []
        begun: Event | None = None
        for piece in _pieces(named):
            if isinstance(piece, _Text):
                if rest := self._rest(piece):
                    new.append(_more(named, begun, rest))
                continue
            said = self._find(piece, event)
            if said is None and begun is None:
                return [named]
            if said is None:
                new.append(
                    PartEnded(message_id=getattr(begun, "message_id", None), index=getattr(begun, "index", None))
                )
            begun = begun or said
        if begun is not None:
            self._repeated.append(begun)
        if self.is_repeated:  # nothing of it is needed any more
            self._pieces, self._origins, self._at = [], [], 0
        return new

    def split(self, events: Sequence[Event]) -> tuple[Sequence[Event], Sequence[Event]]:
        """What of one item's events is new, and the events of the log that the others repeat.

        Raises:
            Diverged: also where the item asks questions of which only some were asked before.
        """
        if self.is_repeated:
            return events, ()
        self._repeated = []
        new = [news for event in events for news in self.news(event)]
        asked = [any(isinstance(event, InterruptRaised) for event in each) for each in (new, self._repeated)]
        if all(asked):
            raise Diverged("asked more than it had asked before")
        return new, self._repeated

    @property
    def is_repeated(self) -> bool:
        """Whether all of it was."""
        return self._at == len(self._pieces)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left but what the hub closed."""
        return all(self._closed and isinstance(piece, _CLOSING) for piece in self._pieces[self._at :])

    def end(self) -> None:
        """The agent ended.

        Raises:
            Diverged: if it had said more before.
        """
        if not self.is_over:
            total = self._origins[-1] + 1
            raise Diverged(f"ended after {self._origins[self._at]} of the {total} events that it had said before")

    def _rest(self, again: _Text) -> str:
        """What of a text is new."""
        text = again.text
        while text and not self.is_repeated:
            said = self._pieces[self._at]
            if isinstance(said, _Text) and said.is_of(again):
                left = said.text[self._offset :]
                if left.startswith(text) and len(left) > len(text):
                    self._offset += len(text)
                    return ""
                if not text.startswith(left):
                    raise Diverged("said other words than it had said before")
                text = text[len(left) :]
            elif not self._closed or not isinstance(said, _CLOSING):
                raise Diverged("said more than it had said before")
            self._at, self._offset = self._at + 1, 0
        return text

    def _find(self, again: Event, given: Event) -> Event | None:
        """The event of the log that this one repeats; None once all were repeated. `given` = as the agent gave it."""
        while not self.is_repeated:
            said = self._pieces[self._at]
            if isinstance(said, _Text):
                raise Diverged(f"said {again.kind} where it had said more of a part before")
            if is_same_event(said, self._nameless(again, given)):
                self._at += 1
                self._learn(said, given)
                return said
            if not self._closed or not isinstance(said, _CLOSING):
                words = f"said {again.kind} where it had said {said.kind} before"
                raise Diverged(words if said.kind != again.kind else f"{words}, with other words")
            self._at += 1
        return None

    # Names

    def _with_known_ids(self, event: Event) -> Event:
        """The event with the log's ids."""
        if not self._ids:
            return event
        known = {
            name: self._ids[name, value]
            for name in _NAMES.values()
            if (value := getattr(event, name, None)) is not None and (name, value) in self._ids
        }
        return event.replace(**known) if known else event

    def _nameless(self, again: Event, given: Event) -> Event:
        """Without the id that the agent gives to what begins here."""
        name = _NAMES.get(type(again))
        if not self._renames or name is None or (name, getattr(given, name)) in self._ids:
            return again
        return again.replace(**{name: None})

    def _learn(self, said: Event, given: Event) -> None:
        name = _NAMES.get(type(given))
        if name is not None and (own := getattr(given, name)) is not None and own != getattr(said, name):
            self._ids[name, own] = getattr(said, name)


def _more(event: Event, begun: Event | None, text: str) -> Event:
    """The end of a text of which the start was repeated."""
    if isinstance(event, PartDelta):
        return event if event.text == text else event.replace(text=text)
    return PartDelta(message_id=getattr(begun, "message_id", None), index=getattr(begun, "index", None), text=text)


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """How a paused agent came to its questions."""

    first: RunCreated
    """The run that it was started with."""
    said: Sequence[Event]
    """What it said since, over all of its runs."""
    answers: Mapping[str, InterruptAnswered]
    """By interrupt id."""
    message_ids: frozenset[str]
    """Of what was said on the task from that run on, by caller and agent."""


def replay_plan(records: Sequence[Record], interrupt_id: str) -> ReplayPlan | None:
    """The story that led to this question, found backwards: the run that asked it, the run that asked the question
    whose answer started that one, and so on to the run that no answer started. None if the records do not tell."""
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
            said = [event for run_id in reversed(run_ids) for event in agent_events(records, run_id)]
            return ReplayPlan(run, said, answers, _message_ids(run, said))
        question = next(iter(answered_in.get(run_id, ())), None)
    return None


def _message_ids(run: RunCreated, said: Sequence[Event]) -> frozenset[str]:
    ids = [message.message_id for message in run.messages]
    for event in said:
        if isinstance(event, MessageStarted):
            ids.append(event.message_id)
        elif isinstance(event, InterruptRaised):
            ids.append(event.message.message_id)
    return frozenset(message_id for message_id in ids if message_id is not None)
