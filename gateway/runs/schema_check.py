"""JSON Schema validation against a schema that somebody else wrote: nothing is fetched, and the work is bounded.

Also a program, for what cannot be bounded in the gateway's own process: a `pattern` is one step of the interpreter, and
may take years. It reads `[schema, value]` from its input, and prints what `find_error` gives. It imports little, as it
is started often.
"""

import json
import resource
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from jsonschema import Draft202012Validator
from jsonschema.validators import extend  # pyright: ignore[reportUnknownVariableType]
from referencing import Registry
from referencing.jsonschema import SchemaRegistry

Keyword = Callable[[Any, Any, Any, Any], Iterable[Any] | None]

_EMPTY: Final[SchemaRegistry] = Registry()
"""Without it, jsonschema fetches what a `$ref` names."""
_COSTLY: Final = frozenset({"pattern", "patternProperties", "uniqueItems"})
"""Keywords of which a single one may take very long."""
_MEMORY: Final = 2**30
"""Bytes: what is wrong with each of a thousand alternatives quotes the value each time."""
_SECONDS: Final = 10
"""Of computing, for when whoever started it is gone."""
_left = [0]


class TooLong(Exception):
    """It takes more steps than were given."""


def _with_bound(check: Keyword) -> Keyword:
    def step(validator: Any, value: Any, instance: Any, schema: Any) -> Iterable[Any] | None:
        _left[0] -= 1
        if _left[0] < 0:
            raise TooLong
        return check(validator, value, instance, schema)

    return step


_BOUNDED: Final[dict[str, Keyword]] = {
    name: _with_bound(check) for name, check in Draft202012Validator.VALIDATORS.items()
}
_Validator = cast("Any", extend(Draft202012Validator, _BOUNDED))


def find_error(schema: Any, value: Any, steps: int) -> str | None:
    """What does not fit, in one line; None if all does.

    Raises:
        TooLong: after so many steps, a keyword each, or where a `$ref` leads back to itself.
        referencing.exceptions.Unresolvable: for a `$ref` to what is not in the schema.
    """
    _left[0] = steps
    try:
        error: Any = next(_Validator(schema, registry=_EMPTY).iter_errors(value), None)
    except RecursionError as loop:
        raise TooLong from loop
    if error is None:
        return None
    where = f" at {error.json_path}" if error.json_path != "$" else ""
    return f"{where}: {error.message[:300]}"


def is_costly(schema: Any) -> bool:
    """Whether it has a member that is called as one of the costly keywords are."""
    todo: list[Any] = [schema]
    while todo:
        item: Any = todo.pop()
        if isinstance(item, dict):
            members = cast("dict[str, Any]", item)
            if not _COSTLY.isdisjoint(members):
                return True
            todo += members.values()
        elif isinstance(item, list):
            todo += cast("list[Any]", item)
    return False


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    schema, value = json.load(sys.stdin)
    print(json.dumps(find_error(schema, value, sys.maxsize)))
