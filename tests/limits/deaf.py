"""Agents for clients that do not read their streams."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

TOKENS: Final = 8_000
WORD: Final = "token"


async def ended(text: str) -> AsyncGenerator[str]:
    """Emit all tokens and end."""
    for number in range(TOKENS):
        yield f"{WORD}{number} "


async def open_ended(text: str) -> AsyncGenerator[str]:
    """Emit all tokens and keep the run open."""
    for number in range(TOKENS):
        yield f"{WORD}{number} "
    await asyncio.Event().wait()
