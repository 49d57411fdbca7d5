"""Agents in the gateway's process that say nearly as much as may be, or too much in all."""

from collections.abc import AsyncGenerator
from typing import Any, Final

from babelgate.canonical import Ask, Event, Message
from babelgate.canonical.event import Custom
from tests.limits.strain import MB

PIECE: Final = "x" * (7 * MB)
WORDS: Final = {"words": ["word"] * 190_000}


async def messages(text: str) -> AsyncGenerator[Message]:
    """Each as large as may be, nearly."""
    for _ in range(12):
        yield Message.of(PIECE, "agent")


async def fluent(text: str) -> AsyncGenerator[Message]:
    """As much as a run may say, where that is 32 MB."""
    for _ in range(4):
        yield Message.of(PIECE, "agent")


async def asking(text: str) -> AsyncGenerator[Message | Ask]:
    """Half of them, and a question."""
    for _ in range(6):
        yield Message.of(PIECE, "agent")
    yield Ask("Go on?")


async def events(text: str) -> AsyncGenerator[Event | str]:
    """As many bytes, for those who follow the run only."""
    for _ in range(40):
        yield Custom(name="large", value=PIECE)
    yield "done"


async def much(text: str) -> AsyncGenerator[Message]:
    """More than a run may say, message by message."""
    for _ in range(40):
        yield Message.of(PIECE, "agent")


async def words(text: str) -> Any:
    """As many as may be."""
    return WORDS
