"""Comparison of settings: what a reload applies, and what needs a restart."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from pydantic import BaseModel

from babelgate.gateway.settings.model import Settings

NEEDS_RESTART: Final = frozenset(
    {
        "host",
        "port",
        "database",
        "pooler",
        "durability",
        "standby",
        "cluster",
        "workers",
        "node",
        "blobs",
        "artifacts",
        "shutdown",
        "log_format",
        "telemetry",
        "watch",
    }
)
"""Keys of the settings that take effect only at a start."""
_BY_NAME: Final = frozenset({"agents", "issuers"})
"""Keys whose members are named one by one. The names in `keys` are not, because a key may be written as a name."""


def find_changes(before: Settings, after: Settings) -> Iterator[str]:
    """Yield the keys that differ, such as `limits.run` or `agents.planner`, in the order of the settings."""
    for name in Settings.model_fields:
        yield from _compare(name, getattr(before, name), getattr(after, name))


def _compare(name: str, before: object, after: object) -> Iterator[str]:
    if name in _BY_NAME:
        old, new = cast("Mapping[str, Any]", before), cast("Mapping[str, Any]", after)
        yield from (f"{name}.{each}" for each in {**old, **new} if old.get(each) != new.get(each))
        if [*old] != [*new] and {*old} == {*new}:  # the first agent is the default one
            yield name
    elif isinstance(before, BaseModel) and type(before) is type(after):
        for field in type(before).model_fields:
            yield from _compare(f"{name}.{field}", getattr(before, field), getattr(after, field))
    elif before != after:
        yield name


def is_fixed(key: str) -> bool:
    """Return True if the change of a key takes effect only at a start."""
    return key.partition(".")[0] in NEEDS_RESTART


def without_restart(before: Settings, after: Settings) -> Settings:
    """Return the settings that apply without a restart: those of `after`, apart from what only a start can change."""
    return after.model_copy(update={name: getattr(before, name) for name in NEEDS_RESTART})
