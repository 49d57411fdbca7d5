"""Structural sharing in JSON answers: of values that share most of one long list, such as the states of a conversation
with all of its messages, what they share is encoded once."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import takewhile
from operator import is_
from typing import Any, Final, Generic, TypeVar, cast
from uuid import uuid4

from pydantic_core import to_json

from babelgate.adapters.kit.aside import Turns
from babelgate.adapters.kit.server.encoding import LargeJson, encode

T = TypeVar("T")

MARK: Final = uuid4().hex
"""Stands in a value in the place of its list."""
_PIECE: Final = 32 * 1024
"""Bytes that are sent at once, at least."""
_TOGETHER: Final = 128
"""Items that are put together in one step, where they have no more bytes than `_MOST_BYTES`."""
_MOST_BYTES: Final = 64 * 1024


class SharedList(Generic[T]):
    """The items of the list that was last encoded. Another one begins with the same objects, most likely."""

    def __init__(self, convert: Callable[[T], Any]) -> None:
        """`convert`: item → its JSON value."""
        self._convert = convert
        self._items: Sequence[T] = ()
        self._encoded: list[bytes | LargeJson] = []

    async def encode(self, items: Sequence[T]) -> "Sequence[bytes | LargeJson]":
        """Each as JSON. Others have the loop in between."""
        same = sum(takewhile(bool, map(is_, items, self._items)))
        if same < len(items):
            turns, convert = Turns(), self._convert
            encoded = self._encoded[:same]
            for item in items[same:]:
                encoded.append(encode(convert(item)))
                if turns.is_over:
                    await turns.give()
            self._items, self._encoded = items, encoded
        return self._encoded[: len(items)]


def with_list(value: Any, items: "Sequence[bytes | LargeJson]") -> "bytes | ValueWithList | None":
    """The JSON of a value, with the items where `MARK` stands in it once, or nowhere. None where the value is large
    without them."""
    shell = encode(value)
    if isinstance(shell, LargeJson):
        return None
    before, mark, after = shell.partition(to_json(MARK))
    return ValueWithList(before + b"[", items, b"]" + after) if mark else shell


@dataclass(frozen=True, slots=True)
class ValueWithList:
    before: bytes
    items: "Sequence[bytes | LargeJson]"
    after: bytes

    async def pieces(self) -> AsyncGenerator[bytes]:
        """Others have the loop in between."""
        turns, yielded = Turns(), self.before
        for begun in range(0, len(self.items), _TOGETHER):
            some = self.items[begun : begun + _TOGETHER]
            if begun:
                yielded += b","
            if sum(map(len, some)) <= _MOST_BYTES:  # so none of them is large
                yielded += b",".join(cast("Sequence[bytes]", some))
            else:
                async for piece in _pieces(some):
                    yield yielded + piece
                    yielded = b""
            if len(yielded) > _PIECE:
                yield yielded
                yielded = b""
            if turns.is_over:
                await turns.give()
        yield yielded + self.after


async def _pieces(items: Sequence[bytes | LargeJson]) -> AsyncGenerator[bytes]:
    for place, item in enumerate(items):
        if place:
            yield b","
        if isinstance(item, bytes):
            yield item
        else:
            async with aclosing(item.pieces()) as pieces:
                async for piece in pieces:
                    yield piece
