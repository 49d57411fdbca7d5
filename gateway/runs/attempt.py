"""Attempts of a run: the events of an agent from one start to its end, as they go into the log.

The first attempt of a run logs every event. An attempt after a restart first repeats the events that the log already
has, and these are dropped. An agent that was started again may also produce different events. Then the run starts over:
its earlier events are void, and all events of this attempt so far are logged at once.

Readers keep the earlier events until an attempt differs from them. An attempt that only stops early, because it failed
or was cancelled, does not differ.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from babelgate.canonical.event import (
    Event,
    InterruptRaised,
    MessageStarted,
    PartDelta,
    Record,
    RunEnded,
    RunStarted,
    encode_event,
)
from babelgate.canonical.replay import Diverged, ReplayCursor, agent_records
from babelgate.canonical.state import RunStatus
from babelgate.gateway.ids import new_id
from babelgate.gateway.runs.attempt_trace import AttemptTrace
from babelgate.gateway.runs.event_check import AnyEvent, EventValidator
from babelgate.gateway.runs.lifecycle import StartedRun

Entry = tuple[Event, bytes]
"""Event to be stored in the log, after its validation, and its JSON text."""

_ENDED = (RunStatus.SUCCESS, RunStatus.PAUSED)


@dataclass(frozen=True, slots=True)
class Past:
    """Events of a run before the restart that it is recovered from, and how its agent continues."""

    records: Sequence[Record]
    """Records of the run that no later record has made void."""
    reattached: bool
    """True if the run continues on the agent's server, and its events are read again. False if the agent is started
    again."""
    stateful: bool
    """True if the agent keeps its own state, in which messages have the ids that it assigns."""


class AttemptFilter:
    """Filter between an agent and the log: takes the agent's events in order, and yields the entries to store.

    A stateful agent that is started again may continue from its own state. Then its first event is a `RunStarted` that
    names the void messages, and it repeats nothing.
    """

    def __init__(self, start: StartedRun, limit: int, output_limit: int, past: Past | None = None) -> None:
        """Create the filter for one attempt of the run `start`.

        `limit` is the maximum size of one event, and `output_limit` that of all events of the run, as JSON in bytes.
        `past` holds the earlier events of a recovered run, which the agent repeats; None for a new run.
        """
        self.trace: AttemptTrace | None = None
        """Trace of the attempt; None if the attempt is not sampled. It receives every event that is new in the log.
        Deltas are left out if the trace records no text."""
        self._start = start
        self._limit = limit
        self._output_limit = output_limit
        self._past = past
        self._validator = EventValidator(start.task.agent, limit, output_limit=output_limit)
        self._before: list[Record] = []
        """Records of the agent's events in earlier attempts, until this attempt has repeated them or differs from
        them."""
        self._cursor: ReplayCursor | None = None
        """Position of this attempt in the events of earlier attempts; None if it no longer repeats them."""
        self._logged_ids: Container[str | None] = ()
        """Ids of messages in the log. A new message with one of these ids gets another id, because readers merge events
        with the same message id."""
        if past is not None:
            self._before = agent_records(past.records)
            self._validator.replay(self._before)
            renames = not (past.reattached or past.stateful)
            events = [record.event for record in self._before]
            self._cursor = ReplayCursor(events, closed=False, renames=renames)
            if renames:
                self._logged_ids = frozenset(event.message_id for event in events if isinstance(event, MessageStarted))
        self._pending: list[Event] = []
        """Events of this attempt while they still equal those of the earlier attempt. If a later event differs, they
        are logged."""
        self._names: dict[str, str] = {}
        """Ids that the gateway has chosen for messages whose own id the log already has, by the id that the agent
        sent."""

    @property
    def run_end(self) -> RunEnded | None:
        """The `RunEnded` event of the agent; None if it has sent none."""
        return self._validator.ended

    def take_delta(self, event: PartDelta) -> Entry | None:
        """Return the entry of a delta, or None if `take` has to process the event.

        This is the fast path for most events of a long answer.
        """
        if self._cursor is not None or (self.trace is not None and self.trace.takes_text):
            return None
        return self._validator.add_text(self._rename_message(event) if self._names else event)

    def take(self, event: Event) -> Iterator[Entry]:
        """Yield the entries to store for an event.

        Raises agent_invalid, or agent_not_replayable if the events of a reattached upstream differ from those before.
        The fault may be raised after some entries were yielded, which are stored.
        """
        if isinstance(event, InterruptRaised) and event.asker != "agent":
            event = event.replace(asker="agent")
        if isinstance(event, RunStarted) and event.void is not None and self._cursor is not None:
            yield from self._start_over(event.void)
            return
        if isinstance(event, RunEnded):
            if getattr(event, "status", None) in _ENDED:
                yield from self.end()
            self._validator.record(event)
            return
        if self._cursor is None:
            yield from self._record(self._rename_message(event))
            return
        self._pending.append(event)
        try:
            news = self._cursor.new_events(self._rename_message(event))
        except Diverged:
            if self._is_reattached:
                raise
            yield from self._start_over()
            return
        except (AttributeError, TypeError):  # not a valid event: the validator rejects it with a message
            news = [event]
        if self._cursor.is_repeated:
            self._pending, self._before = [], []
        for new in news:
            yield from self._record(new)

    def end(self) -> Iterator[Entry]:
        """Yield the entries to store after an agent has ended without a failure. If the attempt ended before it
        repeated all earlier events, they are all events of the attempt. Raises the same faults as `take`."""
        if self._cursor is None:
            return
        try:
            self._cursor.end()
        except Diverged:
            if self._is_reattached:
                raise
            yield from self._start_over()

    def close(self) -> list[Entry]:
        """Return the entries that end all messages, parts, tools and steps that the agent has left open."""
        return self._validator.close()

    def _record(self, event: Event) -> Iterator[Entry]:
        if isinstance(event, MessageStarted) and event.message_id in self._logged_ids:
            self._names[event.message_id or ""] = new_id()
            event = self._rename_message(event)
        recorded = self._validator.record(event)
        if recorded is not None:
            if self.trace is not None:
                self.trace.note(recorded[0])
            yield recorded

    def _rename_message(self, event: AnyEvent) -> AnyEvent:
        if not self._names:
            return event
        renamed = self._names.get(getattr(event, "message_id", None) or "")
        return event if renamed is None else event.replace(message_id=renamed)

    @property
    def _is_reattached(self) -> bool:
        return self._past is not None and self._past.reattached

    def _start_over(self, void: tuple[str, ...] | None = None) -> Iterator[Entry]:
        """Yield a `RunStarted` that makes earlier events of the run void, and the entries to log after it.

        `void` are the ids of the messages that become void. None makes all earlier events void, and the pending events
        of this attempt are logged in their place.
        """
        yield from self._validator.close(void)  # a message that is not void continues
        start = RunStarted(attempt=self._start.run.attempt, node=self._start.task.agent, void=void)
        yield start, encode_event(start)
        pending, self._pending, self._before, self._cursor = self._pending, [], [], None
        if void is not None:
            return
        self._validator = EventValidator(self._start.task.agent, self._limit, output_limit=self._output_limit)
        for event in pending:
            yield from self._record(self._rename_message(event))
