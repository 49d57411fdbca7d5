"""An agent that says when it says something: by the clock that all processes of a machine share."""

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Final

PAUSE: Final = 0.02
"""Seconds between two words: more than tokens are gathered for."""


async def stamp(text: str) -> AsyncGenerator[str]:
    """As many words as the text says, each the nanoseconds of the monotonic clock."""
    for _ in range(int(text)):
        await asyncio.sleep(PAUSE)
        yield f" {time.monotonic_ns()}"
