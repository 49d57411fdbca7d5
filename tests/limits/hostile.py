"""Agents in the gateway's process whose output exceeds the limits.

The output is created when the module is imported.
"""

from collections.abc import AsyncGenerator
from typing import Any, Final

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
