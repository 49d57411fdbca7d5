"""Lazy result sets (async iteration): matches of a search, read one by one."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """Matches of a search. Each is read from the database only when it is needed, because together they may be larger
    than the memory."""

    count: int
    """Number of matches. Iteration skips those that have been deleted meanwhile."""
    read: Callable[[], AsyncGenerator[T]]

    def __aiter__(self) -> AsyncGenerator[T]:
        return self.read()

    async def all(self) -> list[T]:
        """Return all matches in a list. Use it only for few matches."""
        return [each async for each in self]
