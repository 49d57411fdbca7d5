"""CPU-bound work that does not block the event loop: long computations run in a thread, or on the loop with pauses."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

_POOL: Final = ThreadPoolExecutor(2, thread_name_prefix="babelgate-aside")
"""Separate threads, because those of `asyncio.to_thread` wait for disks and agents. There are few, because each
competes with the loop for the interpreter lock (`sys.getswitchinterval`)."""

_SLICE: Final = 0.01
"""Seconds of work on the loop between two pauses. Chosen, not measured."""


class TimeSlice:
    """Time slices of a long computation on the event loop: other tasks run between them."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = time.perf_counter() + _SLICE

    @property
    def is_used_up(self) -> bool:
        """True if the time slice is used up."""
        return time.perf_counter() >= self._until

    async def pause(self) -> None:
        """Let other tasks run, then begin a new time slice."""
        await asyncio.sleep(0)
        self._until = time.perf_counter() + _SLICE


async def aside(work: Callable[[], T]) -> T:
    """Run `work` in a thread and return its result. `work` shares the interpreter with the loop between bytecode
    instructions, so it must not be one long call into C."""
    return await asyncio.get_running_loop().run_in_executor(_POOL, work)
