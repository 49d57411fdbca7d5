"""Memory of the process: settings of glibc's heap by which freed memory is returned to the system."""

import asyncio
import ctypes
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

_MMAP_THRESHOLD: Final = -3
"""Number of the parameter M_MMAP_THRESHOLD in glibc's malloc.h."""
_ARENA_MAX: Final = -8
"""Number of the parameter M_ARENA_MAX in glibc's malloc.h."""
_CLOSED: Final = 32
"""Number of closed connections after which the heap is trimmed. Chosen: the memory of fewer connections is not worth
a trim."""
_PAUSE: Final = 5.0
"""Minimum seconds between two trims of the heap. Chosen."""


def give_back_blocks() -> None:
    """Make glibc return large blocks to the system as soon as they are free.

    Once glibc has freed a block of some size, it keeps all blocks up to that size, at most 32 MB (mallopt(3),
    M_MMAP_THRESHOLD). Measured: a run with 63 MB of text took 100 MB more with AIEF, 45 MB with webhooks. By default
    each thread may have its own heap, which also keeps its free memory. One thread computes at a time, so two heaps are
    enough.
    """
    with suppress(AttributeError, OSError, TypeError):  # another libc
        libc = ctypes.CDLL(None)
        libc.mallopt(_MMAP_THRESHOLD, 2**20)
        libc.mallopt(_ARENA_MAX, 2)


def trim() -> None:
    """Return the free pages of glibc's heap to the system. glibc itself returns only pages at the heap's end, where
    some memory is always in use (malloc_trim(3))."""
    with suppress(AttributeError, OSError, TypeError):  # another libc
        ctypes.CDLL(None).malloc_trim(0)


class Trimmer:
    """Trimmer of the heap, which returns memory to the system after many connections have closed."""

    def __init__(self, clock: Callable[[], float], work: Callable[[], Any] = trim) -> None:
        self._clock = clock
        self._work = work
        self._most = 0
        """Maximum number of open connections since the last trim."""
        self._trimmed_at = float("-inf")
        self._trimming: asyncio.Future[Any] | None = None
        """Future of the last trim, which is kept here because asyncio holds no reference to it."""

    def observe(self, open_connections: int) -> None:
        """Note the number of open connections. Trim the heap in a thread if at least 32 have closed since the last
        trim."""
        self._most = max(self._most, open_connections)
        now = self._clock()
        if self._most - open_connections < _CLOSED or now - self._trimmed_at < _PAUSE:
            return
        self._most, self._trimmed_at = open_connections, now
        self._trimming = asyncio.ensure_future(asyncio.to_thread(self._work))
