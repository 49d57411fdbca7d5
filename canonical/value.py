"""Value objects: the base of every canonical value, frozen, closed, comparable, and stored as JSON."""

from collections.abc import Mapping
from typing import Any, Self, cast

from pydantic import BaseModel, ConfigDict, JsonValue

Json = JsonValue
JsonObject = dict[str, Any]
"""A JSON object. The values are JSON; the type checker is not asked to prove it at every use."""

Extra = Mapping[str, Any]
"""Fields that the canonical model has no word for, verbatim, under the name of the protocol they came from:
`{"a2a": {"artifactId": "x"}}`. Only an adapter of the same protocol reads them."""


class Value(BaseModel):
    """An immutable value. Canonical is closed: an unknown field is a mistake of ours, so only wire models allow
    extras."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Nobody changes it, nor the data in it, which may be large."""
        return self


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON. To Python 1, 1.0 and True are equal."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        known = cast("JsonObject", one)
        return known.keys() == other.keys() and all(same(value, other[name]) for name, value in known.items())
    if isinstance(one, list):
        items = cast("list[Any]", one)
        return len(items) == len(other) and all(map(same, items, other))
    return one == other


def contains(whole: Any, part: Any) -> bool:
    """Whether the objects of `part` are within those of `whole`, all the way down."""
    if isinstance(part, dict):
        members = cast("JsonObject", part)
        return isinstance(whole, dict) and all(
            name in whole and contains(whole[name], inner) for name, inner in members.items()
        )
    return whole == part and isinstance(whole, bool) == isinstance(part, bool)
