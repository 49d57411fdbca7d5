"""Agents in the gateway's process that say more than anybody can take. What they say is made before anybody asks."""

from collections.abc import AsyncGenerator
from typing import Any, Final

from canonical import Ask, Event, Message
from canonical.event import Custom
from tests.limits.strain import MB


def nested(levels: int) -> Any:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


NUMBERS: Final = {"numbers": [0] * 10_000_000}
OBJECTS: Final[Any] = [{"a": []} for _ in range(2_000_000)]
LEVELS: Final = nested(200)
MANY_LEVELS: Final = nested(100_000)
TEXT: Final = "x" * (100 * MB)
PIECE: Final = "x" * (7 * MB)
WORDS: Final = {"words": ["word"] * 190_000}


async def numbers(text: str) -> Any:
    return NUMBERS


async def objects(text: str) -> Any:
    return OBJECTS


async def levels(text: str) -> Any:
    return LEVELS


async def many_levels(text: str) -> Any:
    return MANY_LEVELS


async def text(text: str) -> str:
    return TEXT


async def texts(text: str) -> AsyncGenerator[str]:
    yield TEXT


async def pieces(text: str) -> AsyncGenerator[str]:
    for _ in range(100):
        yield PIECE


async def messages(text: str) -> AsyncGenerator[Message]:
    """Each as large as may be, nearly."""
    for _ in range(25):
        yield Message.of(PIECE, "agent")


async def asking(text: str) -> AsyncGenerator[Message | Ask]:
    """Half of them, and a question."""
    for _ in range(12):
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


AGENTS: Final = {
    "numbers": "more than 200000 values",
    "objects": "more than 200000 values",
    "levels": "nested deeper than 64 levels",
    "many_levels": "nested deeper than 64 levels",
    "text": "larger than the limit of 8388608 bytes",
    "texts": "larger than the limit of 8388608 bytes",
    "pieces": "piece by piece, that is larger than the limit of 8388608 bytes",
}
"""What is said of each."""
