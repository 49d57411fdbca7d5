"""Structural sharing in JSON responses. If several values share most of one long list, such as the states of a
conversation with all its messages, the items that they share are encoded once."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import takewhile
from operator import is_
from typing import Any, Final, Generic, TypeVar, cast
from uuid import uuid4

from pydantic_core import to_json

from babelgate.adapters.kit.aside import TimeSlice
from babelgate.adapters.kit.server.encoding import LargeJson, encode

T = TypeVar("T")

MARK: Final = uuid4().hex
"""Placeholder that a value contains where `with_list` inserts the list. It is random, so it occurs nowhere else."""
_PIECE: Final = 32 * 1024
"""Minimum size of a chunk, in bytes. Chosen."""
_TOGETHER: Final = 128
"""Maximum number of items that are joined in one step. Chosen."""
_MOST_BYTES: Final = 64 * 1024
"""Maximum size of items that are joined in one step, in bytes. Chosen."""


class SharedList(Generic[T]):
    """Cache of the encoded items of the list that was encoded last. The next list probably begins with the same
    objects, and only its other items are encoded."""

    def __init__(self, convert: Callable[[T], Any]) -> None:
        """Create an empty cache. `convert` returns the JSON value of an item."""
        self._convert = convert
        self._items: Sequence[T] = ()
        self._encoded: list[bytes | LargeJson] = []

    async def encode(self, items: Sequence[T]) -> "Sequence[bytes | LargeJson]":
        """Return the items of a list, each as JSON. Items at the beginning that the last list also had come from the
        cache. Other tasks run in between."""
        same = sum(takewhile(bool, map(is_, items, self._items)))
        if same < len(items):
            time_slice, convert = TimeSlice(), self._convert
            encoded = self._encoded[:same]
            for item in items[same:]:
                encoded.append(encode(convert(item)))
                if time_slice.is_used_up:
                    await time_slice.pause()
            self._items, self._encoded = items, encoded
        return self._encoded[: len(items)]


def with_list(value: Any, items: "Sequence[bytes | LargeJson]") -> "bytes | ValueWithList | None":
    """Return the JSON of a value with the list of `items` where the value contains `MARK`. Return the JSON of the value
    alone if it has no `MARK`, and None if the value is large even without the items."""
    shell = encode(value)
    if isinstance(shell, LargeJson):
        return None
    before, mark, after = shell.partition(to_json(MARK))
    return ValueWithList(before + b"[", items, b"]" + after) if mark else shell


@dataclass(frozen=True, slots=True)
class ValueWithList:
    """JSON of a value with one long list: the text before the items, the items, and the text after them."""

    before: bytes
    items: "Sequence[bytes | LargeJson]"
    after: bytes

    async def pieces(self) -> AsyncGenerator[bytes]:
        """Yield the JSON in pieces. Other tasks run in between."""
        time_slice, yielded = TimeSlice(), self.before
        for begun in range(0, len(self.items), _TOGETHER):
            some = self.items[begun : begun + _TOGETHER]
            if begun:
                yielded += b","
            if sum(map(len, some)) <= _MOST_BYTES:  # so none of the items is large
                yielded += b",".join(cast("Sequence[bytes]", some))
            else:
                async for piece in _pieces(some):
                    yield yielded + piece
                    yielded = b""
            if len(yielded) > _PIECE:
                yield yielded
                yielded = b""
            if time_slice.is_used_up:
                await time_slice.pause()
        yield yielded + self.after


async def _pieces(items: Sequence[bytes | LargeJson]) -> AsyncGenerator[bytes]:
    """Yield the JSON of items in pieces, with commas between the items."""
    for place, item in enumerate(items):
        if place:
            yield b","
        if isinstance(item, bytes):
            yield item
        else:
            async with aclosing(item.pieces()) as pieces:
                async for piece in pieces:
                    yield piece
