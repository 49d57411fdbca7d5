"""Incremental JSON encoding of one large value: all of it at once would block the event loop for everybody else, and
take twice the memory."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast
from uuid import uuid4

import msgspec
from litestar import Response
from pydantic import BaseModel
from pydantic_core import to_json

from babelgate.adapters.kit.aside import Turns
from babelgate.adapters.kit.server.listed import Pieces

T = TypeVar("T")

_LARGE: Final = 64 * 1024
"""Characters, and as values count, that are encoded at once."""
_WHOLE: Final = 64 * 1024
"""Bytes of JSON that is made at once rather than held as a value while it is sent. Chosen: a quarter of what a client
that reads nothing may hold."""
_VALUE: Final = 16
"""Characters as which a value counts."""
_PIECE: Final = 32 * 1024
"""Bytes that are sent at once, at least. A client that reads nothing has three times as much in memory."""
_SLICE: Final = 16 * 1024
"""Characters of a long text that are encoded at once. With `_LARGE` a client that reads nothing held 60 KiB more:
measured, 2026-11."""
_WEIGHT: Final = 2**20
_TOGETHER: Final = 256
"""Values of a list that are looked at, and encoded, at once."""


def json_response(
    value: Any,
    headers: Mapping[str, str] | None = None,
    *,
    status: int = 200,
    media_type: str = "application/json",
) -> Response[Any]:
    """An answer with the JSON of a value or of a model.

    A value takes up to ten times as much as its JSON. So it is held while it is sent only if the JSON is long.
    """
    data = encode(value)
    if isinstance(data, LargeJson):
        whole = _encode_whole(value)
        if whole is None:
            return Pieces(data.pieces(), headers or {}, status=status, media_type=media_type)
        data = whole
    return Response(data, status_code=status, media_type=media_type, headers=dict(headers or {}))


@dataclass(frozen=True, slots=True)
class LargeJson:
    """A value whose JSON is made when it is sent. Nobody may change the value by then."""

    value: Any

    def __len__(self) -> int:
        """Bytes as which it counts where encoded records are kept: it holds a value, and most of that is held
        elsewhere, too."""
        return _WEIGHT

    def pieces(self) -> AsyncGenerator[bytes]:
        return encode_in_pieces(self.value)


async def as_bytes(data: bytes | LargeJson) -> bytes:
    """For who can send it in one piece only. Others have the loop in between."""
    return data if isinstance(data, bytes) else b"".join([piece async for piece in data.pieces()])


async def size_of(data: bytes | LargeJson) -> int:
    """Bytes, for who has to tell before they are sent. Others have the loop in between."""
    return len(data) if isinstance(data, bytes) else sum([len(piece) async for piece in data.pieces()])


class LazyList(ABC):
    """Items of a large list, each made when it is encoded and not before. It does not change."""

    @abstractmethod
    def __iter__(self) -> Iterator[Any]: ...

    @abstractmethod
    def encode(self) -> Iterator[bytes]:
        """Return the JSON of some items at a time, with commas between them."""


class EncodedList(LazyList):
    """Items of which the JSON is made."""

    def __init__(self, items: Sequence[bytes]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        return map(msgspec.json.decode, self._items)

    def encode(self) -> Iterator[bytes]:
        yield from self._items


def encode(value: Any) -> bytes | LargeJson:
    """The JSON of a value or of a model."""
    if is_large(value):
        return LargeJson(value)
    return value.model_dump_json().encode() if isinstance(value, BaseModel) else to_json(value)


_MARK: Final = uuid4().hex
encode_text: Final[Callable[[str], bytes]] = msgspec.json.Encoder().encode
"""The JSON of a text, as pydantic writes it, in a quarter of the time."""


class TextTemplate:
    """The JSON of values that differ in one text only, such as the tokens of an answer: what is around the text is
    encoded once. A token of A2A took 10.5 µs, and takes 3.8."""

    __slots__ = ("after", "before")

    def __init__(self, make: Callable[[str], Any]) -> None:
        """`make`: text → the value, or the model, with the text in one place."""
        self.before, self.after = cast("bytes", encode(make(_MARK))).split(to_json(_MARK))

    def encode(self, text: str) -> bytes:
        return self.before + encode_text(text) + self.after

    def encode_all(self, texts: Iterable[str]) -> list[bytes]:
        before, after = self.before, self.after
        return [before + encode_text(text) + after for text in texts]


def _encode_whole(value: Any) -> bytes | None:
    """Return the JSON of a value. Return None if it is long."""
    pieces: list[bytes] = []
    size = 0
    for piece in _pieces(value):
        pieces.append(piece)
        size += len(piece)
        if size > _WHOLE:
            return None
    return b"".join(pieces)


async def encode_in_pieces(value: Any) -> AsyncGenerator[bytes]:
    """The JSON of a value. Others have the loop in between."""
    turns = Turns()
    ready: list[bytes] = []
    size = 0
    for piece in _pieces(value):
        ready.append(piece)
        size += len(piece)
        if size > _PIECE:
            yield b"".join(ready)
            ready, size = [], 0
        if turns.is_over:
            await turns.give()
    yield b"".join(ready)


def is_large(value: Any) -> bool:
    """Found in no more time than it takes to encode what is not."""
    return _subtract_weight(value, _LARGE) < 0


def _subtract_weight(value: Any, left: int) -> int:
    """What is left of so many characters; of what weighs more no more than that is looked at."""
    todo: list[Iterable[Any]] = [(value,)]
    kinds = _KINDS
    while todo and left >= 0:
        for item in todo.pop():
            left -= _VALUE
            kind = kinds[type(item)]
            if kind is None:
                continue
            if kind is str:
                left -= len(item)
            elif kind is LazyList:
                return -1
            elif kind is BaseModel:
                fields = item.__dict__
                left -= _VALUE * len(fields)
                todo.append(fields.values())
                if item.__pydantic_extra__:
                    todo.append((item.__pydantic_extra__,))
            else:
                left -= _VALUE * len(item)
                todo += (item, item.values()) if kind is dict else (item,)
            if left < 0:
                break
    return left


class _Kinds(dict[type, type | None]):
    """By the type of a value: as what it is looked at, None where it has one weight whatever it says. To ask whether a
    value is a model takes longer than the rest of the look at it."""

    def __missing__(self, kind: type) -> type | None:
        found = str if kind is str else None
        for each, known in ((list, list), (tuple, list), (dict, dict), (BaseModel, BaseModel), (LazyList, LazyList)):
            if issubclass(kind, each):
                found = known
        self[kind] = found
        return found


_KINDS: Final = _Kinds()


def _pieces(value: Any) -> Iterator[bytes]:
    if isinstance(value, BaseModel):  # wire models are written as their fields stand in them
        value = {**value.__dict__, **(value.__pydantic_extra__ or {})}
    if isinstance(value, str) and len(value) > _LARGE:
        yield b'"'
        # A character is written alike whatever stands beside it.
        yield from (to_json(value[start : start + _SLICE])[1:-1] for start in range(0, len(value), _SLICE))
        yield b'"'
    elif isinstance(value, LazyList):
        before = b"["
        for some in value.encode():
            yield before + some
            before = b","
        yield b"[]" if before == b"[" else b"]"
    elif not isinstance(value, dict | list | tuple) or not is_large(value):
        yield to_json(value)
    elif isinstance(value, dict):
        before = b"{"
        for some in _split(list(cast("dict[str, Any]", value).items())):
            yield before
            before = b","
            if len(some) > 1:
                yield to_json(dict(some))[1:-1]
            else:
                ((name, member),) = some
                yield to_json(name) + b":"
                yield from _pieces(member)
        yield b"}"
    else:
        yield b"["
        yield from _items(cast("Sequence[Any]", value))
        yield b"]"


def _items(values: Sequence[Any]) -> Iterator[bytes]:
    """The items of a list, with commas between them."""
    before = b""
    for some in _split(values):
        yield before
        before = b","
        if len(some) > 1:
            yield to_json(some)[1:-1]
        else:
            yield from _pieces(some[0])


def _split(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """In order, as many at a time as are not large together: a call for each takes longer than to encode it."""
    begun = 0
    while begun < len(items):
        some = items[begun : begun + _TOGETHER]
        if _subtract_weight(some, _LARGE) < 0:
            some = some[: _fitting(some)]
        yield some
        begun += len(some)


def _fitting(items: Sequence[Any]) -> int:
    """How many of the first are not large together, one at least."""
    left = _LARGE
    for place, item in enumerate(items):
        left = _subtract_weight(item, left)
        if left < 0:
            return max(place, 1)
    return len(items)
