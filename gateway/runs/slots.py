"""Concurrency limits and fairness: which agent has room for one more run, and which thread's turn it is.

A thread waits in the queue of an agent once, however many runs of the agent wait on it. Owners are served in turn, and
of the threads of an owner the one that has waited longest. What is started with a slot is not known here: `start` is
told that it is there.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from babelgate.canonical.fault import FaultError
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.runs.lifecycle import Later


@dataclass(slots=True)
class _AgentSlots:
    """How many runs of one agent may be active, and which threads wait for one to end."""

    limit: int | None
    used: int = 0
    waiting: dict[str, dict[str, None]] = field(default_factory=dict[str, dict[str, None]])
    """Ids of threads by owner: the owners in the order of their turns, the threads in the order in which they came."""

    @property
    def has_room(self) -> bool:
        return self.limit is None or self.used < self.limit


class Slots:
    def __init__(self, find: Callable[[str], RegisteredAgent], start: Callable[[str, str, str], None]) -> None:
        """`start` is called with an owner, the id of a thread and an agent: a slot of the agent is taken for what the
        thread runs next."""
        self._find = find
        self._start = start
        self._by_agent: dict[str, _AgentSlots] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        self._closed = False
        self._pauses = False

    def reserve(self, agent: str) -> bool:
        """Take a slot of the agent, if one is free and nobody waits for it."""
        slots = self._of(agent)
        if self._closed or self._pauses or slots.waiting or not slots.has_room:
            return False
        slots.used += 1
        return True

    def take(self, agent: str) -> None:
        """Take a slot whether there is one or not, for a run that was active already."""
        self._of(agent).used += 1

    def release(self, agent: str) -> None:
        slots = self._of(agent)
        slots.used -= 1
        self._serve(agent, slots)

    def offer(self, owner: str, thread_id: str, agent: str) -> None:
        """The thread has a run of this agent that could start: it does when there is a slot."""
        slots = self._of(agent)
        slots.waiting.setdefault(owner, {}).setdefault(thread_id)
        self._serve(agent, slots)

    def offer_next(self, owner: str, thread_id: str, later: Later | None) -> None:
        """The same, for what the journal says comes next."""
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

    def pause(self, *, on: bool) -> None:
        """For now, nothing is started."""
        self._pauses = on
        for agent, slots in [] if on else list(self._by_agent.items()):
            self._serve(agent, slots)

    def close(self) -> None:
        """Nothing is started any more."""
        self._closed = True
        for timer in self._timers:
            timer.cancel()

    def _serve(self, agent: str, slots: _AgentSlots) -> None:
        """Give free slots to the owners in turn, one each."""
        while slots.waiting and not (self._closed or self._pauses) and slots.has_room:
            owner = next(iter(slots.waiting))
            threads = slots.waiting.pop(owner)
            thread_id = next(iter(threads))
            del threads[thread_id]
            if threads:
                slots.waiting[owner] = threads
            slots.used += 1
            self._start(owner, thread_id, agent)

    def _of(self, agent: str) -> _AgentSlots:
        slots = self._by_agent.get(agent)
        if slots is None:
            try:
                limit = self._find(agent).concurrency
            except FaultError:  # gone from the configuration: its runs fail as they start
                limit = None
            slots = self._by_agent[agent] = _AgentSlots(limit)
        return slots
