"""JSON Schema validation against an untrusted schema: fetches no references, and limits the work.

The module is also a program, for checks that cannot be limited in the gateway's process. A `pattern`, for example, is a
single step of the interpreter that may take years. The program reads `[schema, value]` from its standard input and
prints the result of `find_error`. It starts often, so it imports little.
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
"""Empty registry. Without it, jsonschema fetches the URL of a `$ref`."""
_COSTLY: Final = frozenset({"pattern", "patternProperties", "uniqueItems"})
"""Keywords whose check may take very long in a single step, which the step limit cannot interrupt."""
_MAX_MEMORY: Final = 2**30
"""Memory limit of the program, in bytes. Chosen: an error about a thousand alternatives quotes the value a thousand
times."""
_MAX_CPU_SECONDS: Final = 10
"""CPU time limit of the program, in seconds, in case the process that started it has ended. Chosen."""
_remaining_steps = [0]


class StepLimitExceeded(Exception):
    """Check that needs more than its maximum number of steps."""


def _with_bound(check: Keyword) -> Keyword:
    def step(validator: Any, value: Any, instance: Any, schema: Any) -> Iterable[Any] | None:
        _remaining_steps[0] -= 1
        if _remaining_steps[0] < 0:
            raise StepLimitExceeded
        return check(validator, value, instance, schema)

    return step


_BOUNDED: Final[dict[str, Keyword]] = {
    name: _with_bound(check) for name, check in Draft202012Validator.VALIDATORS.items()
}
_Validator = cast("Any", extend(Draft202012Validator, _BOUNDED))


def find_error(schema: Any, value: Any, steps: int) -> str | None:
    """Return the first mismatch between a value and a schema, in one line, or None if the value matches.

    Raises:
        StepLimitExceeded: The check needs more than `steps` keywords, or a `$ref` refers to itself.
        referencing.exceptions.Unresolvable: The target of a `$ref` is not in the schema.
    """
    _remaining_steps[0] = steps
    try:
        error: Any = next(_Validator(schema, registry=_EMPTY).iter_errors(value), None)
    except RecursionError as loop:
        raise StepLimitExceeded from loop
    if error is None:
        return None
    where = f" at {error.json_path}" if error.json_path != "$" else ""
    return f"{where}: {error.message[:300]}"


def is_costly(schema: Any) -> bool:
    """Return True if a schema has a member with the name of a costly keyword, at any depth."""
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
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (_MAX_CPU_SECONDS, _MAX_CPU_SECONDS))
    schema, value = json.load(sys.stdin)
    print(json.dumps(find_error(schema, value, sys.maxsize)))
