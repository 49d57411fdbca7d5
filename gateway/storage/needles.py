"""Byte strings by which the database preselects rows whose JSON must have certain members.

The database searches the bytes of each row, and only the rows that contain all of them are decoded and compared. No
index is used, but a row takes a fraction of a microsecond instead of several."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, cast

import msgspec
from sqlalchemy import Column, ColumnElement, LargeBinary, bindparam, literal, literal_column, or_

from babelgate.canonical.value import JsonObject
from babelgate.gateway.storage.short_form import RUN_WORDS
from babelgate.gateway.storage.statements import Position

_MAX_NEEDLES: Final = 8
"""Maximum number of byte strings that the database searches in the JSON of a row, before the row is decoded. Chosen."""
_EXACT: Final = 2**50
"""Bound for the absolute value of numbers that can be searched as text. Below it, the JSON of a whole number has no
exponent, and that of an integer (`7`) is a prefix of that of the equal float (`7.0`)."""
_NONE: Final[ColumnElement[int]] = literal_column("0")


def find_needles(members: JsonObject, encode: Callable[[Any], bytes] = msgspec.json.encode) -> Sequence[bytes]:
    """Return byte strings, such as `"status":"open"`, that occur in the JSON of every object that has these members.

    `encode` must be the function that has encoded the objects, without spaces between the tokens."""
    return [name + b":" + value for name, value in islice(_each(members, encode), _MAX_NEEDLES)]


def has_needles(column: ColumnElement[Any] | Column[Any], needles: Sequence[bytes]) -> list[ColumnElement[bool]]:
    """Return the SQL conditions that a column contains all of these byte strings."""
    return [
        Position(column, bindparam(f"needle_{number}", needle, type_=LargeBinary)) > _NONE
        for number, needle in enumerate(needles)
    ]


def run_conditions(column: ColumnElement[Any] | Column[Any], metadata: JsonObject) -> list[ColumnElement[bool]]:
    """Return SQL conditions that are true for the body of every run whose metadata has these members.

    The compact form of a row replaces `RUN_WORDS`, of which some begin with the character after a value. So the
    database searches the name and the value first, and then one of the texts that can follow them."""
    each = (_run_needle(name + b":", value) for name, value in _each(metadata, msgspec.json.encode))
    conditions: list[ColumnElement[bool]] = []
    for needle, ends in islice(filter(None, each), _MAX_NEEDLES):
        found, *ended = (
            Position(column, literal(text, LargeBinary)) > _NONE for text in (needle, *(needle + end for end in ends))
        )
        conditions += [found, or_(*ended)] if ended else [found]
    return conditions


def _run_needle(name: bytes, value: bytes) -> tuple[bytes, Sequence[bytes]] | None:
    """Return the JSON of a member without its end, and the texts of which one follows it in the row of a run. Return
    None for a member that the compact form can change in another way."""
    if any(name in word for word in RUN_WORDS):
        return None
    if len(value) > 1 and value.endswith(b'"'):
        return name + value[:-1], _TEXT_ENDS
    return name + value, _NUMBER_ENDS if value[-1:].isdigit() else ()


def _ends(first: bytes) -> list[bytes]:
    return [first, *(bytes((code,)) for code, word in enumerate(RUN_WORDS, 1) if word.startswith(first))]


_TEXT_ENDS: Final = _ends(b'"')
_NUMBER_ENDS: Final = [*_ends(b","), b"}", b"."]


def _each(members: JsonObject, encode: Callable[[Any], bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the JSON of each name, and the text with which the JSON of its value begins."""
    for name, value in members.items():
        try:
            yield encode(name), _beginning(value, encode)
        except UnicodeEncodeError:  # a lone surrogate, which no stored JSON contains
            continue
        if isinstance(value, dict):
            yield from _each(cast("JsonObject", value), encode)


def _beginning(value: Any, encode: Callable[[Any], bytes]) -> bytes:
    """Return the longest text with which the JSON of every value equal to this one begins: `7` for 7 and 7.0."""
    match value:
        case str() | bool() | None:
            return encode(value)
        case int() | float() if 0 < abs(value) < _EXACT:
            return encode(int(value) if value == int(value) else value)  # 7 may be written as 7.0
        case dict():
            return b"{"
        case list():
            return b"["
        case _:
            return b""
