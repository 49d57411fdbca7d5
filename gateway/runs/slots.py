"""Concurrency limits and fairness: which agent has a free slot, and which thread gets it.

An agent and an owner each have a maximum number of active runs (`concurrency`, `limits.concurrency.per_owner`).

A thread is in the queue of an agent at most once, even if several of its runs wait for the agent. Owners are served in
turn. Among the threads of an owner, the one that has waited longest is first. This module does not know which run
starts: it calls `start` when a slot is free.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from babelgate.canonical.fault import FaultError
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.runs.lifecycle import Later


@dataclass(slots=True)
class _AgentSlots:
    """Slots of one agent: the limit of its active runs, and the threads that wait for a slot."""

    limit: int | None
    used: int = 0
    waiting: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    """Waiting threads by owner and thread id, each with the time of its arrival in seconds. Owners are in the order of
    their turns, threads in the order of arrival."""

    @property
    def has_room(self) -> bool:
        return self.limit is None or self.used < self.limit

    @property
    def queue_length(self) -> int:
        return sum(map(len, self.waiting.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentQueue:
    """Numbers of one agent's active runs and waiting threads, at one moment."""

    used: int = 0
    """Number of active runs, each of which occupies a slot."""
    waiting: int = 0
    """Number of threads that wait for a slot."""
    oldest: float | None = None
    """Seconds for which the thread at the head of the queue has waited; None if none waits."""


class Slots:
    """Slots of all agents. A run occupies a slot of its agent while it is active; a run without a free slot waits."""

    def __init__(
        self,
        find: Callable[[str], RegisteredAgent],
        start: Callable[[str, str, str], None],
        now: Callable[[], float] = time.monotonic,
        find_owner_limit: Callable[[], int | None] = lambda: None,
    ) -> None:
        """Create the slots of a gateway. `now` is a steady clock, in seconds.

        `start` is called with an owner, a thread id and an agent name, after a slot of that agent was taken for the
        thread's next run. `find_owner_limit` returns the maximum number of active runs of one owner, or None.
        """
        self._find = find
        self._start = start
        self._now = now
        self._find_owner_limit = find_owner_limit
        self._by_agent: dict[str, _AgentSlots] = {}
        self._used_by_owner: Counter[str] = Counter()
        self._timers: set[asyncio.TimerHandle] = set()
        self._is_closed = False
        self._is_paused = False
        self._held: set[str] = set()
        """Names of the agents that start no runs, because an operator has disabled them."""

    def reserve(self, agent: str, owner: str) -> bool:
        """Take a slot of the agent for a run of the owner if one is free and no thread waits for it. Return True if it
        was taken."""
        slots = self._of(agent)
        if self._is_closed or self._is_paused or agent in self._held or slots.waiting or not slots.has_room:
            return False
        if not self._has_room(owner):
            return False
        self._use(slots, owner)
        return True

    def take(self, agent: str, owner: str) -> None:
        """Take a slot for a run that is already active, even if this exceeds the limit."""
        self._use(self._of(agent), owner)

    def release(self, agent: str, owner: str) -> None:
        """Release the slot of an agent that a run of the owner occupied, and start waiting runs that have room now."""
        had_room = self._has_room(owner)
        slots = self._of(agent)
        slots.used -= 1
        self._used_by_owner[owner] -= 1
        if not self._used_by_owner[owner]:
            del self._used_by_owner[owner]
        self._serve(agent, slots)
        if not had_room:  # the owner may wait for a slot of another agent
            for other, other_slots in list(self._by_agent.items()):
                if owner in other_slots.waiting:
                    self._serve(other, other_slots)

    def _has_room(self, owner: str) -> bool:
        """Return True if the owner has fewer active runs than `limits.concurrency.per_owner`."""
        limit = self._find_owner_limit()
        return limit is None or self._used_by_owner[owner] < limit

    def _use(self, slots: _AgentSlots, owner: str) -> None:
        slots.used += 1
        self._used_by_owner[owner] += 1

    def offer(self, owner: str, thread_id: str, agent: str) -> None:
        """Queue a thread that has a run of this agent ready to start. It starts when a slot is free."""
        slots = self._of(agent)
        slots.waiting.setdefault(owner, {}).setdefault(thread_id, self._now())
        self._serve(agent, slots)

    def offer_next(self, owner: str, thread_id: str, later: Later | None) -> None:
        """Queue the next run of a thread, as a command returned it: now, or by a timer when it is due. None means that
        no run waits."""
        if later is None:
            return
        if later.wait <= 0:
            self.offer(owner, thread_id, later.agent)
            return

        def due() -> None:
            self._timers.discard(timer)
            self.offer(owner, thread_id, later.agent)

        timer = asyncio.get_running_loop().call_later(later.wait / 1e6, due)
        self._timers.add(timer)

    def queue_of(self, agent: str) -> AgentQueue:
        """Return the number of active runs and waiting threads of an agent."""
        slots = self._by_agent.get(agent)
        if slots is None:  # it has had no runs
            return AgentQueue()
        first = min((next(iter(threads.values())) for threads in slots.waiting.values()), default=None)
        oldest = None if first is None else self._now() - first
        return AgentQueue(used=slots.used, waiting=slots.queue_length, oldest=oldest)

    def count_queued(self) -> dict[str, int]:
        """Return the number of waiting threads of each agent that has any."""
        return {name: slots.queue_length for name, slots in self._by_agent.items() if slots.waiting}

    def pause(self, *, on: bool) -> None:
        """Stop starting runs of all agents, or start them again if `on` is False."""
        self._is_paused = on
        for agent, slots in [] if on else list(self._by_agent.items()):
            self._serve(agent, slots)

    def hold(self, agent: str) -> None:
        """Stop starting runs of one agent: they wait in its queue until `unhold`."""
        self._held.add(agent)

    def unhold(self, agent: str) -> None:
        """Start runs of an agent again after `hold`."""
        self._held.discard(agent)
        if (slots := self._by_agent.get(agent)) is not None:
            self._serve(agent, slots)

    def refresh(self) -> None:
        """Read the limits of all agents again, and start the runs for which there is room now."""
        for agent, slots in list(self._by_agent.items()):
            slots.limit = self._limit_of(agent)
            self._serve(agent, slots)

    def close(self) -> None:
        """Stop starting runs permanently."""
        self._is_closed = True
        for timer in self._timers:
            timer.cancel()

    def _serve(self, agent: str, slots: _AgentSlots) -> None:
        """Start runs of an agent while it has free slots: owners of waiting threads get one slot each, in turn."""
        if agent in self._held:
            return
        while slots.waiting and not (self._is_closed or self._is_paused) and slots.has_room:
            owner = next(filter(self._has_room, slots.waiting), None)
            if owner is None:
                return
            threads = slots.waiting.pop(owner)
            thread_id = next(iter(threads))
            del threads[thread_id]
            if threads:
                slots.waiting[owner] = threads
            self._use(slots, owner)
            self._start(owner, thread_id, agent)

    def _of(self, agent: str) -> _AgentSlots:
        slots = self._by_agent.get(agent)
        if slots is None:
            slots = self._by_agent[agent] = _AgentSlots(self._limit_of(agent))
        return slots

    def _limit_of(self, agent: str) -> int | None:
        try:
            return self._find(agent).concurrency
        except FaultError:  # removed from the configuration: its runs fail when they start
            return None
