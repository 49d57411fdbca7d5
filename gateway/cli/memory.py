"""Memory of the process: large blocks, and what many closed connections have left free, go back to the system."""

import asyncio
import ctypes
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

_MMAP_THRESHOLD: Final = -3
"""M_MMAP_THRESHOLD in glibc's malloc.h."""
_ARENA_MAX: Final = -8
"""M_ARENA_MAX in the same."""
_CLOSED: Final = 32
"""Connections that have closed before the free memory is looked at. Chosen: fewer leave too little."""
_PAUSE: Final = 5.0
"""Seconds between two trims. Chosen."""


def give_back_blocks() -> None:
    """Return large blocks to the system as soon as they are free.

    Once glibc has freed a block of some size it keeps all of that size to itself, up to 32 MB (mallopt(3),
    M_MMAP_THRESHOLD): a run that said 63 MB took 100 MB more with AIEF, 45 MB with webhooks. Each thread may have a
    heap of its own, too, which keeps what was free in it; one thread computes at a time, so two heaps are enough.
    """
    with suppress(AttributeError, OSError, TypeError):  # another libc
        libc = ctypes.CDLL(None)
        libc.mallopt(_MMAP_THRESHOLD, 2**20)
        libc.mallopt(_ARENA_MAX, 2)


def trim() -> None:
    """Return the free pages of the heap to the system. glibc does so only at the heap's end, and there is always
    something in use there (malloc_trim(3))."""
    with suppress(AttributeError, OSError, TypeError):  # another libc
        ctypes.CDLL(None).malloc_trim(0)


class Trimmer:
    """Trims the heap after many connections have closed."""

    def __init__(self, clock: Callable[[], float], work: Callable[[], Any] = trim) -> None:
        self._clock = clock
        self._work = work
        self._most = 0
        """Open connections, at the most since the last look."""
        self._trimmed_at = float("-inf")
        self._trimming: asyncio.Future[Any] | None = None
        """The last trim. asyncio itself holds no reference to it."""

    def look(self, open_connections: int) -> None:
        """Note the number of connections, and trim the heap in a thread if it has fallen by enough."""
        self._most = max(self._most, open_connections)
        now = self._clock()
        if self._most - open_connections < _CLOSED or now - self._trimmed_at < _PAUSE:
            return
        self._most, self._trimmed_at = open_connections, now
        self._trimming = asyncio.ensure_future(asyncio.to_thread(self._work))
