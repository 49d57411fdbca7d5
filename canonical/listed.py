"""Lazy result sets (async iteration): what a search has found, read one by one."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """Things that were found, each read when it is asked for: together they may be larger than the memory."""

    count: int
    """How many there are. One that was deleted meanwhile is left out."""
    read: Callable[[], AsyncGenerator[T]]

    def __aiter__(self) -> AsyncGenerator[T]:
        return self.read()

    async def all(self) -> list[T]:
        """For a few."""
        return [each async for each in self]
