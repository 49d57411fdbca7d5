"""Nested JSON values."""

from typing import Any


def nested(levels: int) -> Any:
    """Return a number in this many lists."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value
