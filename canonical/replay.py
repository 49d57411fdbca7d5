"""Saying it again: how an agent that starts over is matched against what it said before.

A paused generator that was lost is run again from its start, and an upstream's event list is read again from its start;
what they repeat is dropped, and the first new event goes on where the log ends.
"""

import hashlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from canonical.event import (
    Event,
    InterruptAnswered,
    InterruptRaised,
    MessageEnded,
    MessageStarted,
    PartEnded,
    Record,
    RunCreated,
    RunEnded,
    RunRemoved,
    RunStarted,
    StepEnded,
    TaskChanged,
    TaskCreated,
    ThreadChanged,
    ToolEnded,
)
from canonical.fault import FaultCode, FaultError

__all__ = ("Said", "Story", "said_by_agent", "same_event", "story_of", "unseen")

_BY_HUB = (ThreadChanged, TaskCreated, RunCreated, RunStarted, TaskChanged, RunEnded, RunRemoved, InterruptAnswered)

_CLOSING = (PartEnded, MessageEnded, ToolEnded, StepEnded)
"""The hub says these too, for what an agent left open when it stopped."""

_MINTED = ("message_id", "index", "call_id", "step_id", "artifact_id", "interrupt_id", "checkpoint_id", "node")
"""Fields that the hub may have filled: they are not compared unless the agent gave them both times."""


def said_by_agent(records: Iterable[Record], run_id: str | None = None) -> list[Event]:
    """The events that came from the agent, of all runs or of one, in order. Whatever the hub adds by itself (starts,
    ends, answers) is left out."""
    return [
        record.event
        for record in records
        if not isinstance(record.event, _BY_HUB) and (run_id is None or record.run_id == run_id)
    ]


def same_event(said: Event, again: Event) -> bool:
    """Whether `again` repeats `said`, but for what the hub fills: ids, and the hash of a file's bytes, which must be
    that of the bytes given again."""
    if said.kind != again.kind:
        return False
    if said == again:
        return True
    ours, theirs = said.model_dump(), again.model_dump()
    if "interrupt_id" in theirs:  # the hub gives a question another id where the task was asked one of that id before
        theirs["interrupt_id"] = None
    for name in _MINTED:
        if name in theirs and theirs[name] in (None, ""):
            ours.pop(name, None)
            theirs.pop(name)
    for name in ("message", "part"):
        if isinstance(ours.get(name), dict):
            _fill(ours[name], theirs[name], getattr(again, name))
    return ours == theirs


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


class Said:
    """What was said before, while an agent says it again."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self._position = 0

    def repeats(self, event: Event) -> Event | None:
        """The event of the log that `event` repeats; None once all were repeated.

        Raises:
            FaultError: `agent_not_replayable`, if it is another one.
        """
        while self._position < len(self._events):
            said = self._events[self._position]
            self._position += 1
            if same_event(said, event):
                return said
            if not isinstance(said, _CLOSING):
                raise FaultError(
                    FaultCode.AGENT_NOT_REPLAYABLE,
                    f"The agent was started again and said {event.kind} where it had said {said.kind} before"
                    f"{'' if said.kind != event.kind else ', with other words'}.",
                )
        return None

    def split(self, events: Sequence[Event]) -> tuple[Sequence[Event], Sequence[Event]]:
        """What of one item's events is new, and the events of the log that the others repeat.

        Raises:
            FaultError: `agent_not_replayable`, also where the item asks questions of which only some were asked before.
        """
        if self._position == len(self._events):
            return events, ()
        pairs = [(event, self.repeats(event)) for event in events]
        new = [event for event, said in pairs if said is None]
        repeated = [said for _, said in pairs if said is not None]
        if any(isinstance(e, InterruptRaised) for e in new) and any(isinstance(e, InterruptRaised) for e in repeated):
            raise FaultError(
                FaultCode.AGENT_NOT_REPLAYABLE, "The agent was started again and asked more than it had asked before."
            )
        return new, repeated

    @property
    def over(self) -> bool:
        """Whether nothing is left but what the hub closed."""
        return all(isinstance(event, _CLOSING) for event in self._events[self._position :])

    def end(self) -> None:
        """The agent ended.

        Raises:
            FaultError: `agent_not_replayable`, if it had said more before.
        """
        if not self.over:
            raise FaultError(
                FaultCode.AGENT_NOT_REPLAYABLE,
                f"The agent was started again and ended after {self._position} of the {len(self._events)} events that "
                "it had said before.",
            )


async def unseen(events: AsyncIterable[Event], said: Sequence[Event]) -> AsyncIterator[Event]:
    """`events` without those at its start that repeat `said`.

    Raises:
        FaultError: `agent_not_replayable`, at the first event that differs or if `events` ends too early.
    """
    before = Said(said)
    try:
        async for event in events:
            if before.repeats(event) is None:
                try:
                    yield event
                except GeneratorExit:
                    raise
                except BaseException as error:  # let go of while nobody waited: the agent has to know how
                    if isinstance(events, AsyncGenerator):
                        await events.athrow(error)
                    raise
        before.end()
    finally:
        # Whoever closes this one closes the agent's: left to the garbage collector, its last words would come too late.
        if isinstance(events, AsyncGenerator):
            await events.aclose()


@dataclass(frozen=True, slots=True)
class Story:
    """How a paused agent came to its questions."""

    first: RunCreated
    """The run that it was started with."""
    said: Sequence[Event]
    """What it said since, over all of its runs."""
    answers: Mapping[str, InterruptAnswered]
    """By interrupt id."""
    message_ids: frozenset[str]
    """Of what was said on the task from that run on, by caller and agent."""


def story_of(records: Sequence[Record], interrupt_id: str) -> Story | None:
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
            said = [event for run_id in reversed(run_ids) for event in said_by_agent(_last_attempt(records, run_id))]
            return Story(run, said, answers, _message_ids(run, said))
        question = next(iter(answered_in.get(run_id, ())), None)
    return None


def _last_attempt(records: Sequence[Record], run_id: str) -> list[Record]:
    """The run's records, without what was said before it was started over."""
    of_run = [record for record in records if record.run_id == run_id]
    last = max((record.attempt for record in of_run), default=0)
    return [record for record in of_run if record.attempt == last]


def _message_ids(run: RunCreated, said: Sequence[Event]) -> frozenset[str]:
    ids = [message.message_id for message in run.messages]
    for event in said:
        if isinstance(event, MessageStarted):
            ids.append(event.message_id)
        elif isinstance(event, InterruptRaised):
            ids.append(event.message.message_id)
    return frozenset(message_id for message_id in ids if message_id is not None)
