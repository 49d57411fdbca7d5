"""Counts of the faults with which runs of this gateway have ended."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from babelgate.gateway.clock import Clock

_MAX_COUNTS: Final = 200
"""Maximum number of counts in memory. Beyond it, the counts that were incremented longest ago are removed. Chosen."""


@dataclass(frozen=True, slots=True)
class FaultCount:
    """Number of one agent's runs that ended with one fault code."""

    count: int
    last_at: int
    """Time at which the last of these runs ended, in microseconds since 1970, UTC."""


class FaultCounts:
    """Numbers of failed runs since the start of the gateway, by code of the fault and name of the agent."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: OrderedDict[tuple[str, str], FaultCount] = OrderedDict()

    def note(self, code: str, agent: str) -> None:
        """Count a run of an agent that ended with a fault. `code` is that of the fault."""
        earlier = self._counts.pop((code, agent), None)
        self._counts[code, agent] = FaultCount(1 + (0 if earlier is None else earlier.count), self._clock.now())
        if len(self._counts) > _MAX_COUNTS:
            self._counts.popitem(last=False)

    def all(self) -> Mapping[tuple[str, str], FaultCount]:
        """Return the counts, by fault code and name of the agent."""
        return dict(self._counts)
