"""Index of the keys of a cache by thread, so that the entries of one thread are found without a search of the cache."""

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class ThreadKeys(Generic[K]):
    """Keys of a cache by the database key of the thread to which each belongs."""

    def __init__(self) -> None:
        self._keys: dict[int, dict[K, None]] = {}

    def add(self, pk: int, key: K) -> None:
        """Add a key of a thread. A key that was added before keeps its place."""
        self._keys.setdefault(pk, {})[key] = None

    def discard(self, pk: int, key: K) -> None:
        """Remove a key of a thread, if it was added."""
        keys = self._keys.get(pk)
        if keys is not None:
            keys.pop(key, None)
            if not keys:
                del self._keys[pk]

    def of(self, pk: int) -> tuple[K, ...]:
        """Return the keys of a thread in the order in which they were added."""
        return tuple(self._keys.get(pk, ()))

    def __len__(self) -> int:
        """Return the number of threads that have keys."""
        return len(self._keys)
