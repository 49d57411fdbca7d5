"""Policy of Python's garbage collector: no run of it may stop the event loop for long.

Requests, streams and connections leave no reference cycles, so reference counts free all of their objects. Only agents
in this process, and libraries, leave cycles. The collector visits all objects of the generations that it collects: with
5,000 idle streams, that took 1.1 seconds. So it visits an object at most twice, shortly after its creation. The oldest
generation is collected only while no run is active, or when too much memory may be garbage.
"""

import gc
import logging
import sys
from collections.abc import Callable
from typing import Final

log = logging.getLogger("babelgate")

YOUNG: Final = 5_000
"""Number of new objects after which Python collects generation 0. Chosen: a collection takes about 0.7 ms per 1,000
objects that are scattered in memory. Measured in a gateway with 5,000 streams, 2026-11."""
_MIDDLE: Final = 2
"""Number of collections of generation 0, minus one, after which Python also collects generation 1. Chosen: about 20,000
objects."""
_NEVER: Final = 2**30
"""Number of collections of generation 1 after which Python collects the oldest generation. It is never reached."""
_TICKS: Final = 4
"""Number of ticks after which a tick also collects generation 1. Chosen."""
_QUIET: Final = 5.0
"""Seconds without an active run after which the oldest generation may be collected. Chosen."""
_SMALL: Final = 60_000
"""Maximum number of new memory blocks with which that is done. Chosen: a collection takes at most 40 ms."""
_GROWTH: Final = 6_000_000
"""Number of new memory blocks after which all objects are visited, although runs are active. Chosen: 5,000 idle streams
through an A2A server have fewer, and they are about 600 MB."""
_GROWTH_WITH_CYCLES: Final = 500_000
"""Number of new memory blocks after which that is done in a process that leaves many cycles: the collector has freed at
least half as many young objects. Chosen: about 50 MB."""


class Collector:
    """Garbage collector of the process, which this object configures for good. `tick` must be called once per second.

    Python counts only how many objects more were created than freed. If as many streams begin as end, it would not
    collect at all, and one late collection would visit all of them. So the ticks collect, too.
    """

    def __init__(self, blocks: Callable[[], int] = sys.getallocatedblocks) -> None:
        """Freeze all objects of the startup. `blocks` returns the number of memory blocks that the process uses."""
        self._blocks = blocks
        gc.freeze()
        gc.set_threshold(YOUNG, _MIDDLE, _NEVER)
        self._ticks = 0
        self._active_at: float | None = None
        """Time of the last tick with an active run; None if it was followed by `_QUIET` seconds without one."""
        self._base = self._quiet_base = blocks()
        """Number of memory blocks after all objects were visited, and after the last collection without active runs."""
        self._cycles = _count_freed()
        """Number of objects that the collector had freed when all objects were visited."""

    def tick(self, now: float, *, is_active: bool) -> None:
        """Collect what is due. `now` is the time of a monotonic clock, and `is_active` is true if runs are active."""
        self._ticks += 1
        gc.collect(0 if self._ticks % _TICKS else 1)
        blocks = self._blocks()
        if self._has_grown(blocks - self._base):
            self._visit_all()
        elif is_active:
            self._active_at = now
        elif self._active_at is not None and now - self._active_at >= _QUIET:
            if blocks - self._quiet_base <= _SMALL:
                self._visit_new()
            self._active_at = None

    def _has_grown(self, growth: int) -> bool:
        """Return True if so many new memory blocks may contain too much garbage."""
        freed = _count_freed() - self._cycles
        return growth >= _GROWTH or (growth >= _GROWTH_WITH_CYCLES and freed >= growth // 2)

    def _visit_new(self) -> None:
        """Collect the objects that were created since the last call, and freeze those that remain."""
        gc.collect()
        gc.freeze()
        self._quiet_base = self._blocks()

    def _visit_all(self) -> None:
        """Collect all objects, also the frozen ones. This is the only long pause."""
        gc.unfreeze()
        freed = gc.collect()
        gc.freeze()
        self._base = self._quiet_base = self._blocks()
        self._cycles = _count_freed()
        log.debug("all objects collected freed=%d", freed)


def _count_freed() -> int:
    """Return the number of objects that the collector has freed in this process."""
    return sum(generation["collected"] for generation in gc.get_stats())
