"""Text that grows by deltas, in a form that equal texts share.

Each reader of a long answer that encodes it for itself holds what was said so far. The deltas of it are gathered in
chunks, and there is one chunk in memory for all that hold the same. So a further reader at any place of the same text
takes next to nothing.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import Final, Generic, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T", bound=Hashable)

_PIECES: Final = 64
"""Deltas of a chunk. Chosen: a delta by itself takes 60 bytes, so as many take 4 kB that are not shared."""
_CHUNKS: Final = 64
"""Chunks that become a larger one."""


class _Chunk(Generic[T]):
    __slots__ = ("__weakref__", "value")

    def __init__(self, value: T) -> None:
        self.value = value


_chunks: Final[WeakValueDictionary[Hashable, _Chunk[str] | _Chunk[tuple[str, ...]]]] = WeakValueDictionary()


def _share_text(text: str) -> _Chunk[str]:
    found = _chunks.get(text)
    if found is None:
        found = _chunks[text] = _Chunk(text)
    return found  # pyright: ignore[reportReturnType] - the key says which it is


def _share_texts(texts: tuple[str, ...]) -> _Chunk[tuple[str, ...]]:
    found = _chunks.get(texts)
    if found is None:
        found = _chunks[texts] = _Chunk(texts)
    return found  # pyright: ignore[reportReturnType] - the key says which it is


_SHARED_BYTES: Final = 8 * 2**20
"""Characters of the long texts that are shared. All are dropped when there are more. Chosen."""
_SHORT: Final = 4096
"""Characters of a text that is not worth sharing."""


class _SharedTexts:
    """Long texts that were joined lately. An answer holds its whole text while it is sent, and equal ones share it."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._size = 0

    def get(self, text: str) -> str:
        found = self._texts.setdefault(text, text)  # one step, because threads join texts, too
        if found is text:
            self._size += len(text)
            if self._size > _SHARED_BYTES:
                self._texts, self._size = {text: text}, len(text)
        return found


_shared: Final = _SharedTexts()


def share(text: str) -> str:
    """Return an equal text that is in memory already, or this one."""
    return text if len(text) < _SHORT else _shared.get(text)


class GrowingText:
    """Deltas, of which the whole text is asked for."""

    __slots__ = ("_large", "_small", "_tail")

    def __init__(self) -> None:
        self._large: list[_Chunk[str]] = []
        self._small: list[_Chunk[str]] = []
        self._tail: list[str] = []

    def append(self, text: str) -> None:
        self._tail.append(text)
        if len(self._tail) == _PIECES:
            self._close()

    def extend(self, texts: Sequence[str]) -> None:
        """Add several, with the same result as one by one: where chunks end depends on the number of deltas alone."""
        begin = 0
        while begin < len(texts):
            end = begin + _PIECES - len(self._tail)
            self._tail += texts[begin:end]
            if len(self._tail) == _PIECES:
                self._close()
            begin = end

    def _close(self) -> None:
        self._small.append(_share_text("".join(self._tail)))
        self._tail = []
        if len(self._small) == _CHUNKS:
            self._large.append(_share_text("".join([chunk.value for chunk in self._small])))
            self._small.clear()

    def join(self) -> str:
        chunks = [chunk.value for chunks in (self._large, self._small) for chunk in chunks]
        return share("".join([*chunks, *self._tail]))

    def copy(self) -> "GrowingText":
        made = GrowingText()
        made._large, made._small, made._tail = list(self._large), list(self._small), list(self._tail)
        return made


class GrowingTexts:
    """Deltas that are asked for one by one."""

    __slots__ = ("_chunks", "_tail")

    def __init__(self) -> None:
        self._chunks: list[_Chunk[tuple[str, ...]]] = []
        self._tail: list[str] = []

    def extend(self, texts: Sequence[str]) -> None:
        """Add several, with the same result as one by one."""
        begin = 0
        while begin < len(texts):
            end = begin + _PIECES - len(self._tail)
            self._tail += texts[begin:end]
            if len(self._tail) == _PIECES:
                self._chunks.append(_share_texts(tuple(self._tail)))
                self._tail = []
            begin = end

    def __len__(self) -> int:
        return len(self._chunks) * _PIECES + len(self._tail)

    def copy(self) -> "GrowingTexts":
        made = GrowingTexts()
        made._chunks, made._tail = list(self._chunks), list(self._tail)
        return made

    def __iter__(self) -> Iterator[str]:
        for chunk in self._chunks:
            yield from chunk.value
        yield from self._tail


def grow(deltas: dict[int, GrowingText], index: int) -> GrowingText:
    """Return the text of a part, by its index."""
    found = deltas.get(index)
    if found is None:
        found = deltas[index] = GrowingText()
    return found
