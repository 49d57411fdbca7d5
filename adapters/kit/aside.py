"""CPU-bound work off the event loop: what computes for long is done in a thread, or on the loop with pauses, so that
nobody else has to wait for it."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

_POOL: Final = ThreadPoolExecutor(2, thread_name_prefix="babelgate-aside")
"""Threads of its own, because those of `asyncio.to_thread` wait for disks and agents; and few, because each takes turns
with the loop at the interpreter's lock (`sys.getswitchinterval`)."""

_SLICE: Final = 0.01
"""Seconds. Chosen, not measured."""


class Turns:
    """Of something long that is done in small steps: others have the loop in between."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = time.perf_counter() + _SLICE

    @property
    def is_over(self) -> bool:
        """Whether it is somebody else's turn."""
        return time.perf_counter() >= self._until

    async def give(self) -> None:
        await asyncio.sleep(0)
        self._until = time.perf_counter() + _SLICE


async def aside(work: Callable[[], T]) -> T:
    """What `work` gives. It takes turns with the loop between the steps of the interpreter, so it must not be one long
    step: a single call into C is one."""
    return await asyncio.get_running_loop().run_in_executor(_POOL, work)
