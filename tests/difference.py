"""What of a JSON document is not in another one: the measure for gateways that ought not to be seen."""

from collections.abc import Iterator
from typing import Any, cast


def differences(theirs: Any, ours: Any, path: str = "") -> Iterator[str]:
    """Paths of members: `-path` is missing in ours, `+path` is new, `!path` says something else."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        yield from _of_objects(cast("dict[str, Any]", theirs), cast("dict[str, Any]", ours), path)
    elif isinstance(theirs, list) and isinstance(ours, list):
        yield from _of_lists(cast("list[Any]", theirs), cast("list[Any]", ours), path)
    elif not _is_same(cast("object", theirs), ours):
        yield f"!{path}"


def _is_same(theirs: object, ours: object) -> bool:
    return type(theirs) is type(ours) and theirs == ours


def _of_lists(theirs: list[Any], ours: list[Any], path: str) -> Iterator[str]:
    for i in range(max(len(theirs), len(ours))):
        if i >= len(ours):
            yield f"-{path}[{i}]"
        elif i >= len(theirs):
            yield f"+{path}[{i}]"
        else:
            yield from differences(theirs[i], ours[i], f"{path}[{i}]")


def _of_objects(theirs: dict[str, Any], ours: dict[str, Any], path: str) -> Iterator[str]:
    for name in dict.fromkeys((*theirs, *ours)):
        below = f"{path}.{name}" if path else name
        if name not in ours:
            yield f"-{below}"
        elif name not in theirs:
            yield f"+{below}"
        else:
            yield from differences(theirs[name], ours[name], below)
