"""Retries of a run: an attempt is what an agent says from one start to its end, as it goes into the log.

The first attempt of a run says everything for the first time. One that comes after a restart repeats what the log holds
by then: that is not said again. An agent that was started again may also say something else. Then the run starts over:
what it had said is void, and all that this attempt has said so far is said at once. Until an attempt says something
else, nobody knows that it will, so readers keep what they have; and one that only stops short, because it fails or is
cancelled, contradicts nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from babelgate.canonical.event import Event, MessageStarted, PartDelta, Record, RunEnded, RunStarted, encode_event
from babelgate.canonical.replay import Diverged, ReplayCursor, agent_records
from babelgate.canonical.state import RunStatus
from babelgate.gateway.ids import new_id
from babelgate.gateway.runs.event_check import AnyEvent, EventValidator
from babelgate.gateway.runs.lifecycle import Start

Entry = tuple[Event, bytes]
"""An event as the log may hold it, and as JSON."""

_ENDED = (RunStatus.SUCCESS, RunStatus.PAUSED)


@dataclass(frozen=True, slots=True)
class Past:
    """What the log has of a run that is taken up."""

    records: Sequence[Record]
    """Those that stand."""
    reattached: bool
    """The upstream's run goes on and was found again. Otherwise the agent is started again."""
    stateful: bool
    """The agent keeps a state of its own, in which messages have the ids that it gives them."""


class Attempt:
    """Feed it the agent's events in order, and write what it gives.

    An agent that keeps a state of its own may go on from there when it is started again: then it says so first, by a
    `RunStarted` that names what is void, and repeats nothing else.
    """

    def __init__(self, start: Start, limit: int, output_limit: int, past: Past | None = None) -> None:
        """Bytes as JSON: `limit` of one event, `output_limit` of all that the run says."""
        self._start = start
        self._limit = limit
        self._output_limit = output_limit
        self._past = past
        self._validator = EventValidator(start.task.agent, limit, output_limit=output_limit)
        self._before: list[Record] = []
        """What the agent had said."""
        self._said: ReplayCursor | None = None
        self._known: frozenset[str | None] = frozenset()
        """Ids of messages that the log has. A reader adds up what comes under one id, so no other message gets it."""
        if past is not None:
            self._before = agent_records(past.records)
            self._validator.replay(self._before)
            renames = not (past.reattached or past.stateful)
            events = [record.event for record in self._before]
            self._said = ReplayCursor(events, closed=False, renames=renames)
            if renames:
                self._known = frozenset(event.message_id for event in events if isinstance(event, MessageStarted))
        self._heard: list[Event] = []
        """What an attempt that may still say something else has said."""
        self._names: dict[str, str] = {}
        """The agent's id of a message → that in the log, where the agent's was in use."""

    @property
    def run_end(self) -> RunEnded | None:
        """How the agent said that it ended."""
        return self._validator.ended

    def take_delta(self, event: PartDelta) -> Entry | None:
        """The way of most events of a long answer; None for what `take` has to look at."""
        if self._said is not None:
            return None
        return self._validator.add_text(self._rename_message(event) if self._names else event)

    def take(self, event: Event) -> Iterator[Entry]:
        """Raises agent_invalid, or agent_not_replayable where an upstream tells something else than before: while it is
        iterated, too, because what came before is said."""
        if isinstance(event, RunStarted) and event.void is not None and self._said is not None:
            yield from self._start_over(event.void)
            return
        if isinstance(event, RunEnded):
            if getattr(event, "status", None) in _ENDED:
                yield from self.end()
            self._validator.record(event)
            return
        if self._said is None:
            yield from self._record(self._rename_message(event))
            return
        self._heard.append(event)
        try:
            news = self._said.news(self._rename_message(event))
        except Diverged:
            if self._is_reattached:
                raise
            yield from self._start_over()
            return
        except (AttributeError, TypeError):  # it is no event, or not whole: the validator has words for that
            news = [event]
        if self._said.is_repeated:
            self._heard, self._before = [], []
        for new in news:
            yield from self._record(new)

    def end(self) -> Iterator[Entry]:
        """The agent has nothing more to say, and did not fail. Raises as `take` does."""
        if self._said is None:
            return
        try:
            self._said.end()
        except Diverged:
            if self._is_reattached:
                raise
            yield from self._start_over()

    def close(self) -> list[Entry]:
        """Events that end what is open in the log."""
        return self._validator.close()

    def _record(self, event: Event) -> Iterator[Entry]:
        if isinstance(event, MessageStarted) and event.message_id in self._known:
            self._names[event.message_id or ""] = new_id()
            event = self._rename_message(event)
        recorded = self._validator.record(event)
        if recorded is not None:
            yield recorded

    def _rename_message(self, event: AnyEvent) -> AnyEvent:
        if not self._names:
            return event
        taken = self._names.get(getattr(event, "message_id", None) or "")
        return event if taken is None else event.replace(message_id=taken)

    @property
    def _is_reattached(self) -> bool:
        return self._past is not None and self._past.reattached

    def _start_over(self, void: tuple[str, ...] | None = None) -> Iterator[Entry]:
        yield from self._validator.close(void)  # a message that is not void goes on
        start = RunStarted(attempt=self._start.run.attempt, node=self._start.task.agent, void=void)
        yield start, encode_event(start)
        heard, self._heard, self._before, self._said = self._heard, [], [], None
        if void is not None:
            return
        self._validator = EventValidator(self._start.task.agent, self._limit, output_limit=self._output_limit)
        for event in heard:
            yield from self._record(self._rename_message(event))
