"""Size limit of one input. An input is encoded, stored, folded and sent as one value, and each step blocks other
work."""

from typing import Any

from msgspec.structs import astuple

from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.value import Value


def check_size(limit: int, *values: object) -> None:
    """Raise too_large if JSON or canonical values together contain more than `limit` bytes of text.

    The bytes of files are not counted, because they are stored separately."""
    left = limit
    todo: list[Any] = list(values)
    while todo:
        value = todo.pop()
        if value is None:  # first: most fields of most values
            continue
        if isinstance(value, str):
            left -= len(value) if value.isascii() or len(value) > limit else len(value.encode("utf-8", "replace"))
        elif isinstance(value, dict):
            todo += value
            todo += value.values()
        elif isinstance(value, list | tuple):
            todo += value
        elif isinstance(value, Value):
            todo += astuple(value)
        if left < 0:
            raise FaultError(
                FaultCode.TOO_LARGE, f"The input is larger than {limit} bytes, not counting files.", limit=limit
            )
