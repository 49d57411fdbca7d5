"""Texts and parts that grow by deltas, stored so that equal texts share memory.

Each reader of a long answer that encodes it separately holds the text so far. The deltas are collected in chunks, and
equal chunks exist once in memory. So another reader of the same text needs almost no memory.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final, Generic, TypeVar
from weakref import WeakValueDictionary

from babelgate.canonical.message import Part, ReasoningPart, RefusalPart, TextPart, ToolCallPart

T = TypeVar("T", bound=Hashable)

_CHUNK_DELTAS: Final = 64
"""Number of deltas in a chunk. Chosen: a delta takes 60 bytes, so each text has at most 4 kB that it does not share."""
_LARGE_CHUNK: Final = 64
"""Number of chunks of a `GrowingText` that are joined into one larger chunk. Chosen."""


class _Chunk(Generic[T]):
    __slots__ = ("__weakref__", "value")

    def __init__(self, value: T) -> None:
        self.value = value


_chunks: Final[WeakValueDictionary[Hashable, _Chunk[str] | _Chunk[tuple[str, ...]]]] = WeakValueDictionary()


def _share_text(text: str) -> _Chunk[str]:
    chunk = _chunks.get(text)
    if chunk is None:
        chunk = _chunks[text] = _Chunk(text)
    return chunk  # pyright: ignore[reportReturnType] - the key says which it is


def _share_texts(texts: tuple[str, ...]) -> _Chunk[tuple[str, ...]]:
    chunk = _chunks.get(texts)
    if chunk is None:
        chunk = _chunks[texts] = _Chunk(texts)
    return chunk  # pyright: ignore[reportReturnType] - the key says which it is


_SHARED_BYTES: Final = 8 * 2**20
"""Maximum total length of the texts in `_SharedTexts`, in characters, each of which takes 1 to 4 bytes. When a new text
exceeds it, all earlier texts are dropped. Chosen."""
_SHORT: Final = 4096
"""Minimum length of a text that `share` shares, in characters. Chosen."""


class _SharedTexts:
    """Cache of the complete long texts that were joined recently. While several responses with the same long text are
    sent, they refer to one string in memory."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._size = 0

    def get(self, text: str) -> str:
        shared = self._texts.setdefault(text, text)  # one step, because threads join texts, too
        if shared is text:
            self._size += len(text)
            if self._size > _SHARED_BYTES:
                self._texts, self._size = {text: text}, len(text)
        return shared


_shared: Final = _SharedTexts()


def share(text: str) -> str:
    """Return a string equal to `text` that other readers of the same text share: the cached one, or `text` itself,
    which is then cached. Return a text that is shorter than `_SHORT` unchanged, without the cache."""
    return text if len(text) < _SHORT else _shared.get(text)


class GrowingText:
    """Text that grows by deltas and is read as one string. Equal chunks of different texts share memory."""

    __slots__ = ("_large", "_small", "_tail")

    def __init__(self) -> None:
        self._large: list[_Chunk[str]] = []
        self._small: list[_Chunk[str]] = []
        self._tail: list[str] = []

    def append(self, text: str) -> None:
        self._tail.append(text)
        if len(self._tail) == _CHUNK_DELTAS:
            self._close()

    def extend(self, texts: Sequence[str]) -> None:
        """Append several deltas. The chunks are the same as with single appends, so that they can be shared."""
        begin = 0
        while begin < len(texts):
            end = begin + _CHUNK_DELTAS - len(self._tail)
            self._tail += texts[begin:end]
            if len(self._tail) == _CHUNK_DELTAS:
                self._close()
            begin = end

    def _close(self) -> None:
        self._small.append(_share_text("".join(self._tail)))
        self._tail = []
        if len(self._small) == _LARGE_CHUNK:
            self._large.append(_share_text("".join([chunk.value for chunk in self._small])))
            self._small.clear()

    def join(self) -> str:
        chunks = [chunk.value for chunks in (self._large, self._small) for chunk in chunks]
        return share("".join([*chunks, *self._tail]))

    def copy(self) -> "GrowingText":
        copy = GrowingText()
        copy._large, copy._small, copy._tail = list(self._large), list(self._small), list(self._tail)
        return copy


class GrowingTexts:
    """Sequence of deltas that is read one delta at a time, for readers that need the original splits. Equal chunks of
    different sequences share memory."""

    __slots__ = ("_chunks", "_tail")

    def __init__(self) -> None:
        self._chunks: list[_Chunk[tuple[str, ...]]] = []
        self._tail: list[str] = []

    def extend(self, texts: Sequence[str]) -> None:
        """Append several deltas."""
        begin = 0
        while begin < len(texts):
            end = begin + _CHUNK_DELTAS - len(self._tail)
            self._tail += texts[begin:end]
            if len(self._tail) == _CHUNK_DELTAS:
                self._chunks.append(_share_texts(tuple(self._tail)))
                self._tail = []
            begin = end

    def __len__(self) -> int:
        return len(self._chunks) * _CHUNK_DELTAS + len(self._tail)

    def copy(self) -> "GrowingTexts":
        copy = GrowingTexts()
        copy._chunks, copy._tail = list(self._chunks), list(self._tail)
        return copy

    def __iter__(self) -> Iterator[str]:
        for chunk in self._chunks:
            yield from chunk.value
        yield from self._tail


def extend_part(part: Part, text: str) -> Part:
    """Return the part with the text of a delta appended: to its `text`, or to the `arguments` of a tool call. Other
    kinds of parts are returned unchanged."""
    match part:
        case TextPart() | ReasoningPart() | RefusalPart():
            return part.replace(text=part.text + text)
        case ToolCallPart():
            return part.replace(arguments=part.arguments + text)
        case _:
            return part


class GrowingParts:
    """Parts of a message or artifact while their deltas arrive. The deltas are joined once, when the parts are read."""

    __slots__ = ("_deltas", "begun")

    def __init__(self, parts: Iterable[Part] = ()) -> None:
        self.begun: list[Part] = list(parts)
        """Parts as they were added, with all deltas that have been joined so far. A text may lack its newest deltas,
        which wait in `_deltas`; all other fields are final."""
        self._deltas: dict[int, GrowingText] = {}

    def append(self, part: Part) -> None:
        self.begun.append(part)

    def extend(self, index: int | None, texts: Sequence[str]) -> None:
        """Append deltas to the text of a part. An index of None means the last part. Deltas of an unknown part are
        ignored, so that a log that has them can be read."""
        if index is None:
            index = len(self.begun) - 1
        if not 0 <= index < len(self.begun):
            return
        text = self._deltas.get(index)
        if text is None:
            text = self._deltas[index] = GrowingText()
        text.extend(texts)

    def join(self, index: int) -> Part:
        """Return the part with this index, with all deltas that have arrived so far."""
        text = self._deltas.pop(index, None)
        if text is not None:
            self.begun[index] = extend_part(self.begun[index], text.join())
        return self.begun[index]

    def join_all(self) -> tuple[Part, ...]:
        """Return all parts, with all deltas that have arrived so far."""
        for index in tuple(self._deltas):
            self.join(index)
        return tuple(self.begun)

    def copy(self) -> "GrowingParts":
        copy = GrowingParts(self.begun)
        copy._deltas = {index: text.copy() for index, text in self._deltas.items()}
        return copy
