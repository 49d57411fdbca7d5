"""Byte strings by which the database preselects rows whose JSON must have certain members.

The database searches the bytes of each row, and only the rows that contain all of them are decoded and compared. No
index is used, but a row takes a fraction of a microsecond instead of several."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, cast

import msgspec
from sqlalchemy import Column, ColumnElement, LargeBinary, bindparam, literal_column

from babelgate.canonical.value import JsonObject
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
    return list(islice(_each(members, encode), _MAX_NEEDLES))


def has_needles(column: ColumnElement[Any] | Column[Any], needles: Sequence[bytes]) -> list[ColumnElement[bool]]:
    """Return the SQL conditions that a column contains all of these byte strings."""
    return [
        Position(column, bindparam(f"needle_{number}", needle, type_=LargeBinary)) > _NONE
        for number, needle in enumerate(needles)
    ]


def _each(members: JsonObject, encode: Callable[[Any], bytes]) -> Iterator[bytes]:
    for name, value in members.items():
        try:
            yield encode(name) + b":" + _beginning(value, encode)
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
