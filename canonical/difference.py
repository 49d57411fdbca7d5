"""Delta encoding of states: a state as its difference to an earlier one.

The log of a long conversation then grows with the new messages only, and not with the whole conversation at each run.
Most changes of a state append to lists and add members to objects, so a difference has these forms:

- for an object: `set` (members with their new values), `in` (members with the difference to their old values) and
  `drop` (names of removed members);
- for a list: `keep` (number of first items that stay) and `add` (items after them).
"""

from itertools import takewhile
from typing import Any, Final, cast

import msgspec

from babelgate.canonical.json import MAX_DEPTH, is_identical
from babelgate.canonical.value import JsonObject, Value

_LEVELS: Final = 3
"""Number of nested levels at which objects are compared member by member: a state, its members, and their members."""
DIFFERENCE_DEPTH: Final = MAX_DEPTH + _LEVELS + 1
"""Maximum depth of a difference between values of depth `MAX_DEPTH`. Each compared level adds one, and so does the
object that holds a value that is stored whole."""


class StateChange(Value):
    """State values of a revision, stored as their difference from those of an earlier revision."""

    since: str
    """Id of the revision that the difference refers to."""
    new: JsonObject
    member: str = ""
    """Name of the member that holds the state values, if the value to encode is an object that contains them. Empty if
    the value to encode is the state itself."""


def state_change(since: str, before: JsonObject, after: JsonObject) -> StateChange | None:
    """Return the change from `before`, the state values of the revision `since`, to `after`. Return None if the change,
    as JSON, is longer than half of `after`. Then `after` should be stored whole, which saves readers from reading the
    earlier revision."""
    new = difference(before, after)
    if new is None or 2 * len(msgspec.json.encode(new)) > len(msgspec.json.encode(after)):
        return None
    return StateChange(since=since, new=new)


def difference(before: Any, after: Any, levels: int = _LEVELS) -> JsonObject | None:
    """Return the difference from `before` to `after`, in the form that the module's docstring describes.

    Objects are compared member by member, down to `levels` nested objects; a deeper object that changed is stored
    whole. Return None if the difference would reuse nothing of `before`, so that `after` must be stored whole.
    """
    if type(before) is not type(after):
        return None
    if isinstance(before, list):
        return _list_difference(cast("list[Any]", before), after)
    if isinstance(before, dict) and levels > 0:
        return _object_difference(cast("JsonObject", before), after, levels)
    return None


def _list_difference(before: list[Any], after: list[Any]) -> JsonObject | None:
    prefix = sum(1 for _ in takewhile(bool, map(is_identical, before, after)))
    return {"keep": prefix, "add": after[prefix:]} if prefix else None


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
    dropped = [name for name in before if name not in after]
    if len(dropped) + sum(1 for name in new if name in before) == len(before):
        return None
    sections = (("set", new), ("in", within), ("drop", dropped))
    return {name: value for name, value in sections if value}


def apply_difference(before: Any, change: JsonObject) -> Any:
    """Return the value that results if `change`, the result of `difference`, is applied to `before`. The result shares
    unchanged values with `before`."""
    if "keep" in change:
        items = cast("list[Any]", before) if isinstance(before, list) else []
        return [*items[: change["keep"]], *change["add"]]
    result: JsonObject = dict(cast("JsonObject", before)) if isinstance(before, dict) else {}
    for name in change.get("drop", ()):
        result.pop(name, None)
    for name, inner in change.get("in", {}).items():
        result[name] = apply_difference(result.get(name), inner)
    return result | change.get("set", {})
