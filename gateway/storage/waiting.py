"""Counts of waiting runs by agent and owner, against which the limits of queues are checked."""

from collections import Counter
from collections.abc import Mapping
from heapq import heappop, heappush
from typing import NamedTuple


class Waiting(NamedTuple):
    """Numbers of waiting runs, as they concern one owner and one agent.

    A run with a start time in the future counts as delayed, and not as waiting, until that time."""

    agent: int
    """Number of runs of all owners that wait for the agent."""
    owner_at_agent: int
    """Number of the owner's runs that wait for the agent."""
    owners: int
    """Number of owners with runs that wait for the agent, counting the owner in any case."""
    owner: int
    """Number of the owner's runs that wait for any agent."""
    delayed: int
    """Number of the owner's delayed runs, for any agent."""

    @classmethod
    def of(cls, by_owner: Mapping[str, int], owner: str, *, in_all: int, delayed: int) -> "Waiting":
        """Create the numbers for one owner and one agent.

        `by_owner` has the number of runs that wait for the agent, by owner. `in_all` and `delayed` are the numbers of
        the owner's waiting and delayed runs for any agent."""
        counts = {name: count for name, count in by_owner.items() if count > 0}
        return cls(sum(counts.values()), counts.get(owner, 0), len(counts.keys() | {owner}), in_all, delayed)


class WaitingRuns:
    """Counts of the pending runs of a database that only this gateway uses."""

    def __init__(self) -> None:
        self._runs: dict[tuple[str, str], tuple[str, bool]] = {}
        """Agent of each pending run, and True if the run is delayed, by owner and run id."""
        self._by_agent: dict[str, Counter[str]] = {}
        self._by_owner: Counter[str] = Counter()
        self._delayed: Counter[str] = Counter()
        self._starts: list[tuple[int, str, str]] = []
        """Heap of the delayed runs: start time, owner and run id. Entries of runs that are no longer pending are
        skipped."""

    def add(self, owner: str, run_id: str, agent: str, start_after: int | None, now: int) -> None:
        if (owner, run_id) in self._runs:
            return
        is_delayed = start_after is not None and start_after > now
        self._runs[owner, run_id] = agent, is_delayed
        if is_delayed:
            self._delayed[owner] += 1
            heappush(self._starts, (start_after or 0, owner, run_id))
        else:
            self._change(owner, agent, 1)

    def discard(self, owner: str, run_id: str) -> None:
        agent, is_delayed = self._runs.pop((owner, run_id), (None, False))
        if agent is not None and is_delayed:
            self._delayed[owner] -= 1
        elif agent is not None:
            self._change(owner, agent, -1)

    def count(self, owner: str, agent: str, now: int) -> Waiting:
        while self._starts and self._starts[0][0] <= now:
            _, its_owner, run_id = heappop(self._starts)
            its_agent, is_delayed = self._runs.get((its_owner, run_id), (None, False))
            if its_agent is not None and is_delayed:
                self._runs[its_owner, run_id] = its_agent, False
                self._delayed[its_owner] -= 1
                self._change(its_owner, its_agent, 1)
        by_owner = self._by_agent.get(agent, Counter[str]())
        return Waiting.of(by_owner, owner, in_all=self._by_owner[owner], delayed=self._delayed[owner])

    def _change(self, owner: str, agent: str, by: int) -> None:
        self._by_owner[owner] += by
        counts = self._by_agent.setdefault(agent, Counter())
        counts[owner] += by
        if not counts[owner]:
            del counts[owner]
