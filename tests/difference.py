"""Differences between JSON documents, which measure how transparent a gateway is."""

from collections.abc import Iterator
from typing import Any, cast


def differences(expected: Any, actual: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of different members: `-path` is missing in `actual`, `+path` is new, `!path` differs."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        yield from _of_objects(cast("dict[str, Any]", expected), cast("dict[str, Any]", actual), path)
    elif isinstance(expected, list) and isinstance(actual, list):
        yield from _of_lists(cast("list[Any]", expected), cast("list[Any]", actual), path)
    elif not _is_same(cast("object", expected), actual):
        yield f"!{path}"


def _is_same(expected: object, actual: object) -> bool:
    return type(expected) is type(actual) and expected == actual


def _of_lists(expected: list[Any], actual: list[Any], path: str) -> Iterator[str]:
    for i in range(max(len(expected), len(actual))):
        if i >= len(actual):
            yield f"-{path}[{i}]"
        elif i >= len(expected):
            yield f"+{path}[{i}]"
        else:
            yield from differences(expected[i], actual[i], f"{path}[{i}]")


def _of_objects(expected: dict[str, Any], actual: dict[str, Any], path: str) -> Iterator[str]:
    for name in dict.fromkeys((*expected, *actual)):
        below = f"{path}.{name}" if path else name
        if name not in actual:
            yield f"-{below}"
        elif name not in expected:
            yield f"+{below}"
        else:
            yield from differences(expected[name], actual[name], below)
