"""What is JSON, and when two values say the same: the one notion of it that all packages share.

JSON is here what every reader takes and every database stores: finite numbers that can be printed, text without lone
surrogates, and not too many levels.
"""

from collections.abc import Iterable
from math import isfinite
from typing import Any, Final, cast

from babelgate.canonical.value import JsonObject, Value

MAX_DEPTH: Final = 64
"""Levels of objects and lists within each other."""
MAX_VALUES: Final = 200_000
"""Objects, lists and what is in them: each takes time and memory of everybody."""
MAX_BITS: Final = 4096
"""Of an integer: Python reads none of more than 4300 digits back, and a log that cannot be read is lost."""
_LARGEST: Final = 2**MAX_BITS
_NESTED: Final = (dict, list, tuple)


class NotJson(ValueError):
    """What a value is or holds that JSON cannot say: "a set, which is not JSON"."""


class TooDeep(NotJson):
    """More levels than `MAX_DEPTH`."""


def check_json(value: object, *, most: int = MAX_VALUES, largest: int = _LARGEST, deepest: int = MAX_DEPTH) -> None:
    """Refuse what JSON cannot say, in values of plain types; a tuple is a list. `most` is how many values there may be,
    integers are smaller than `largest`, and there are at most `deepest` levels.

    Raises:
        NotJson, TooDeep: naming the first flaw.
    """
    # One walk, level by level: no recursion, because that is what deep values attack.
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
            elif isinstance(item, int):
                if not least < item < largest:
                    raise NotJson(f"an integer of more than {MAX_BITS} bits")
            elif isinstance(item, float):
                if not isfinite(item):
                    raise NotJson(f"{item}, which is not JSON")
            elif item is not None:
                raise NotJson(f"a {type(item).__name__}, which is not JSON")
        if not deeper:
            return
        level = deeper


def _values(members: dict[Any, Any]) -> Iterable[Any]:
    for key in members:
        if not isinstance(key, str):
            raise NotJson(f"an object with a key {key!r}, not a string")
        if not key.isascii() and not is_text(key):
            raise NotJson("text with a lone surrogate")
    return members.values()


def is_text(text: str) -> bool:
    """Whether UTF-8 can say it: a lone surrogate is no character."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_number(value: float) -> bool:
    """Whether it is finite, or an integer of at most `MAX_BITS`."""
    return value.bit_length() <= MAX_BITS if isinstance(value, int) else isfinite(value)


def to_json(value: Any) -> Any:
    """A value, or several, as JSON that says every member. What is JSON already is given as it is."""
    if isinstance(value, Value):
        return {name: to_json(member) for name, member in value.members().items()}
    return [to_json(item) for item in cast("tuple[Any, ...]", value)] if isinstance(value, tuple) else value


def as_object(value: Any) -> JsonObject:
    """`value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def as_text(value: Any) -> str:
    """Return the value if it is a text, else an empty text."""
    return value if isinstance(value, str) else ""


def as_list(value: Any) -> list[Any]:
    """`value` if it is a list, else an empty one."""
    return value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType]


def objects_in(value: Any) -> list[JsonObject]:
    """The items of a list that are objects: none where `value` is no list."""
    return [each for each in as_list(value) if isinstance(each, dict)]


def is_identical(one: Any, other: Any) -> bool:
    """Whether two JSON values are written alike: 1 and 1.0 are not."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        known = cast("JsonObject", one)
        return known.keys() == other.keys() and all(is_identical(value, other[name]) for name, value in known.items())
    if isinstance(one, list):
        items = cast("list[Any]", one)
        return len(items) == len(other) and all(map(is_identical, items, other))
    return one == other


def is_equal(one: Any, other: Any) -> bool:
    """Whether two JSON values mean the same: 1 is 1.0. To Python `True` is 1, and to JSON it is no number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        known, told = cast("JsonObject", one), cast("JsonObject", other)
        return known.keys() == told.keys() and all(is_equal(value, told[name]) for name, value in known.items())
    if isinstance(one, list) and isinstance(other, list):
        items, others = cast("list[Any]", one), cast("list[Any]", other)
        return len(items) == len(others) and all(map(is_equal, items, others))
    return one == other


def has_members(whole: Any, part: Any) -> bool:
    """Whether the objects of `part` are within those of `whole`, all the way down."""
    if isinstance(part, dict):
        members = cast("JsonObject", part)
        return isinstance(whole, dict) and all(
            name in whole and has_members(whole[name], inner) for name, inner in members.items()
        )
    return is_equal(whole, part)
