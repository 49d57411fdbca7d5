"""JSON as all packages define it: which values it can hold, and when two values are equal.

A value is JSON here if every reader accepts it and every database stores it: finite numbers that can be printed, text
without lone surrogates, and a limited depth.
"""

from collections.abc import Iterable
from math import isfinite
from typing import Any, Final, cast

from babelgate.canonical.value import JsonObject, Value

MAX_DEPTH: Final = 64
"""Maximum depth of nested objects and lists. Chosen."""
MAX_VALUES: Final = 200_000
"""Maximum number of objects, lists and their items in one value, because each costs time and memory. Chosen."""
MAX_BITS: Final = 4096
"""Maximum size of an integer, in bits. Chosen: it stays below the 4300 digits that Python parses, because a log that
cannot be parsed is lost."""
_LARGEST: Final = 2**MAX_BITS
_NESTED: Final = (dict, list, tuple)


class NotJson(ValueError):
    """Raised for a value that is not JSON. The message names it: "a set, which is not JSON"."""


class TooDeep(NotJson):
    """Raised for a value that is nested deeper than `MAX_DEPTH`."""


def check_json(value: object, *, most: int = MAX_VALUES, largest: int = _LARGEST, deepest: int = MAX_DEPTH) -> None:
    """Raise if a value of plain Python types is not JSON. A tuple counts as a list.

    `most` is the maximum number of values, counting nested ones, and `deepest` the maximum number of levels. The
    absolute value of an integer must be less than `largest`.

    Raises:
        NotJson, TooDeep: naming the first flaw.
    """
    # Level by level and not by recursion, because deeply nested values attack recursion.
    level: Iterable[Any] = (value,)
    count, least = 1, -largest
    for depth in range(deepest + 1):
        deeper: list[Any] = []
        for item in level:
            if isinstance(item, str):
                if not item.isascii() and not is_text(item):
                    raise NotJson("text with a lone surrogate")
            elif isinstance(item, _NESTED):
                if depth == deepest:
                    raise TooDeep(f"data nested deeper than {MAX_DEPTH} levels")
                members = cast("dict[Any, Any] | list[Any]", item)
                count += len(members)
                if count > most:
                    raise NotJson(f"data of more than {most} values")
                deeper += _values(members) if isinstance(members, dict) else members
            elif not (
                item is None
                or (isinstance(item, int) and least < item < largest)
                or (isinstance(item, float) and isfinite(item))
            ):
                raise _flaw_of(item)
        if not deeper:
            return
        level = deeper


def _flaw_of(item: object) -> NotJson:
    """Return the error for a number or a value of another type that `check_json` has rejected."""
    if isinstance(item, int):
        return NotJson(f"an integer of more than {MAX_BITS} bits")
    if isinstance(item, float):
        return NotJson(f"{item}, which is not JSON")
    return NotJson(f"a {type(item).__name__}, which is not JSON")


def _values(members: dict[Any, Any]) -> Iterable[Any]:
    for key in members:
        if not isinstance(key, str):
            raise NotJson(f"an object with a key {key!r}, not a string")
        if not key.isascii() and not is_text(key):
            raise NotJson("text with a lone surrogate")
    return members.values()


def is_text(text: str) -> bool:
    """Return True if UTF-8 can encode the text: it has no lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_number(value: float) -> bool:
    """Return True if the number is finite and, if it is an integer, has at most `MAX_BITS` bits."""
    return value.bit_length() <= MAX_BITS if isinstance(value, int) else isfinite(value)


def to_json(value: Any) -> Any:
    """Convert a canonical value, or a tuple of canonical values, to plain JSON types. All members are included, even
    those that have their default. Anything else is returned unchanged."""
    if isinstance(value, Value):
        return {name: to_json(member) for name, member in value.members().items()}
    return [to_json(item) for item in cast("tuple[Any, ...]", value)] if isinstance(value, tuple) else value


def as_object(value: Any) -> JsonObject:
    """Return the value if it is an object, else an empty object."""
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def as_text(value: Any) -> str:
    """Return the value if it is a text, else an empty text."""
    return value if isinstance(value, str) else ""


def as_list(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty list."""
    return value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType]


def objects_in(value: Any) -> list[JsonObject]:
    """Return the items of a list that are objects. Empty if the value is not a list."""
    return [each for each in as_list(value) if isinstance(each, dict)]


def is_identical(one: Any, other: Any) -> bool:
    """Return True if two JSON values have the same JSON text, regardless of the order of members: 1 and 1.0 differ."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        members = cast("JsonObject", one)
        return members.keys() == other.keys() and all(
            is_identical(value, other[name]) for name, value in members.items()
        )
    if isinstance(one, list):
        items = cast("list[Any]", one)
        return len(items) == len(other) and all(map(is_identical, items, other))
    return one == other


def is_equal(one: Any, other: Any) -> bool:
    """Return True if two JSON values mean the same: 1 equals 1.0, but true does not equal 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        members, others = cast("JsonObject", one), cast("JsonObject", other)
        return members.keys() == others.keys() and all(is_equal(value, others[name]) for name, value in members.items())
    if isinstance(one, list) and isinstance(other, list):
        items, others = cast("list[Any]", one), cast("list[Any]", other)
        return len(items) == len(others) and all(map(is_equal, items, others))
    return one == other


def has_members(whole: Any, part: Any) -> bool:
    """Return True if `whole` contains `part`: at every level, objects of `whole` may have more members than those of
    `part`; all other values are equal."""
    if isinstance(part, dict):
        members = cast("JsonObject", part)
        return isinstance(whole, dict) and all(
            name in whole and has_members(whole[name], inner) for name, inner in members.items()
        )
    return is_equal(whole, part)
