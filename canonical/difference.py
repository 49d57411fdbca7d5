"""Delta encoding of states: a state as what is new in it. The log of a long conversation grows with what is said, and
not with all that was said before each time that it goes on.

Most of what changes in a state is at the end of its lists and beside the members that its objects had, so that is what
a difference can say:

- of an object `set` (members with their new values), `in` (members with the difference to their old ones) and `drop`
  (names of members that are gone);
- of a list `keep` (how many of its first items stay) and `add` (what stands behind them).
"""

from itertools import takewhile
from typing import Any, Final, cast

import msgspec

from babelgate.canonical.json import MAX_DEPTH, is_identical
from babelgate.canonical.value import JsonObject, Value

_LEVELS: Final = 3
"""Of objects that are looked into: a state, its members, and what these hold by name."""
DIFFERENCE_DEPTH: Final = MAX_DEPTH + _LEVELS + 1
"""Levels of a difference of values of `MAX_DEPTH`: each that is looked into has one more."""


class StateChange(Value):
    """A value as its difference to the values of a revision."""

    since: str
    """Id of the revision."""
    new: JsonObject
    member: str = ""
    """Where the values stand in what is told; empty = they are all of it."""


def state_change(since: str, before: JsonObject, after: JsonObject) -> StateChange | None:
    """`before` = the values of the revision `since`. None where the difference is not much shorter than the values:
    then these are told, and nobody has to go back for them."""
    new = difference(before, after)
    if new is None or 2 * len(msgspec.json.encode(new)) > len(msgspec.json.encode(after)):
        return None
    return StateChange(since=since, new=new)


def difference(before: Any, after: Any, levels: int = _LEVELS) -> JsonObject | None:
    """None where the two have nothing in common: `after` is told whole."""
    if type(before) is not type(after):
        return None
    if isinstance(before, list):
        return _list_difference(cast("list[Any]", before), after)
    if isinstance(before, dict) and levels > 0:
        return _object_difference(cast("JsonObject", before), after, levels)
    return None


def _list_difference(before: list[Any], after: list[Any]) -> JsonObject | None:
    kept = sum(1 for _ in takewhile(bool, map(is_identical, before, after)))
    return {"keep": kept, "add": after[kept:]} if kept else None


def _object_difference(before: JsonObject, after: JsonObject, levels: int) -> JsonObject | None:
    new: JsonObject = {}
    within: JsonObject = {}
    for name, value in after.items():
        if name not in before:
            new[name] = value
        elif not is_identical(before[name], value):
            inner = difference(before[name], value, levels - 1)
            if inner is None:
                new[name] = value
            else:
                within[name] = inner
    gone = [name for name in before if name not in after]
    if len(gone) + sum(1 for name in new if name in before) == len(before):
        return None
    told = (("set", new), ("in", within), ("drop", gone))
    return {name: value for name, value in told if value}


def apply_difference(before: Any, told: JsonObject) -> Any:
    """The value that differs so from `before`, of which it shares what stays."""
    if "keep" in told:
        known = cast("list[Any]", before) if isinstance(before, list) else []
        return [*known[: told["keep"]], *told["add"]]
    made: JsonObject = dict(cast("JsonObject", before)) if isinstance(before, dict) else {}
    for name in told.get("drop", ()):
        made.pop(name, None)
    for name, inner in told.get("in", {}).items():
        made[name] = apply_difference(made.get(name), inner)
    return made | told.get("set", {})
