"""Agent that sends the time of sending, by the clock that all processes of a machine share."""

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Final

PAUSE: Final = 0.02
"""Seconds between two words: longer than the gateway collects tokens before a commit."""


async def stamp(text: str) -> AsyncGenerator[str]:
    """Yield as many words as the input says. Each is the time in nanoseconds of the monotonic clock."""
    for _ in range(int(text)):
        await asyncio.sleep(PAUSE)
        yield f" {time.monotonic_ns()}"
