"""Agents in the gateway's process whose output is just within the limits, or exceeds the total."""

from collections.abc import AsyncGenerator
from typing import Any, Final

from babelgate.canonical import Ask, Event, Message
from babelgate.canonical.event import Custom
from tests.limits.strain import MB

PIECE: Final = "x" * (7 * MB)
WORDS: Final = {"words": ["word"] * 190_000}


async def messages(text: str) -> AsyncGenerator[Message]:
    """Emit 12 messages, each just below the limit."""
    for _ in range(12):
        yield Message.of(PIECE, "agent")


async def fluent(text: str) -> AsyncGenerator[Message]:
    """Emit as much as a run may, with a limit of 32 MB."""
    for _ in range(4):
        yield Message.of(PIECE, "agent")


async def asking(text: str) -> AsyncGenerator[Message | Ask]:
    """Emit 6 messages, each just below the limit, and a question."""
    for _ in range(6):
        yield Message.of(PIECE, "agent")
    yield Ask("Go on?")


async def events(text: str) -> AsyncGenerator[Event | str]:
    """Emit 280 MB in custom events, which only readers of the run's stream receive."""
    for _ in range(40):
        yield Custom(name="large", value=PIECE)
    yield "done"


async def much(text: str) -> AsyncGenerator[Message]:
    """Emit more than a run may, in several messages."""
    for _ in range(40):
        yield Message.of(PIECE, "agent")


async def words(text: str) -> Any:
    """Return the largest allowed number of values."""
    return WORDS
