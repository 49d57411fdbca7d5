"""CPU-bound work that does not block the event loop: long computations run in a thread, or on the loop with pauses."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

_POOL: Final = ThreadPoolExecutor(2, thread_name_prefix="babelgate-aside")
"""Threads of `aside`. They are separate from those of `asyncio.to_thread`, which may all be waiting for disks or
agents. There are only two, because each competes with the event loop for the interpreter lock
(`sys.getswitchinterval`)."""

_SLICE: Final = 0.01
"""Seconds of work on the loop between two pauses. Chosen, not measured."""


class TimeSlice:
    """Timer for a long computation on the event loop. The computation checks `is_used_up` and then awaits `pause`, so
    that other tasks run in between."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = time.perf_counter() + _SLICE

    @property
    def is_used_up(self) -> bool:
        """True if the computation has run for `_SLICE` seconds since the last pause."""
        return time.perf_counter() >= self._until

    async def pause(self) -> None:
        """Let other tasks of the event loop run, then begin a new time slice."""
        await asyncio.sleep(0)
        self._until = time.perf_counter() + _SLICE


async def aside(work: Callable[[], T]) -> T:
    """Run the CPU-bound function `work` in a thread, and return its result. The event loop can only run between the
    bytecode instructions of `work`, so `work` must not be one long call into C."""
    return await asyncio.get_running_loop().run_in_executor(_POOL, work)
