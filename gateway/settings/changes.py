"""Comparison of two versions of the settings: which changes a reload applies, and which need a restart."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType
from typing import Any, Final, TypeVar, cast

from pydantic import BaseModel, SecretStr

from babelgate.gateway.settings.model import Settings
from babelgate.gateway.settings.tls import CertificateFiles

_Model = TypeVar("_Model", bound=BaseModel)

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
        "admin.listen",
        "grpc",
    }
)
"""Settings, and sections with all their settings, whose changes take effect only after a restart."""
_ON_OR_OFF: Final = frozenset({"tls"})
"""Sections whose settings a reload can change, but which only a restart can add or remove."""
_OF_ONE_NODE: Final = frozenset({"host", "port", "node", "admin.listen", "telemetry.metrics.listen", "grpc"})
"""Settings that may differ between the nodes of a cluster."""
_BY_NAME: Final = frozenset({"agents", "issuers"})
"""Settings whose members are reported by name, as in `agents.planner`. The members of `keys` are not: a name there may
be a misplaced API key."""


def compute_digest(settings: Settings) -> str:
    """Return a digest of the settings that should be equal on all nodes of a cluster, in hex digits.

    It is stored in the database. It is short and slow to compute, so that it cannot be used to guess secrets in the
    settings."""
    for key in _OF_ONE_NODE:
        settings = _copy_key(key, Settings(), settings)
    text = json.dumps([[*settings.agents], _plain(settings)], sort_keys=True)
    return hashlib.scrypt(text.encode(), salt=b"babelgate configuration", n=2**12, r=8, p=1, dklen=6).hex()


def _plain(value: Any) -> Any:
    """Convert a value of the settings to JSON types, with secrets in plain text."""
    if isinstance(value, BaseModel):
        return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (tuple, list)):
        return [_plain(each) for each in cast("Sequence[Any]", value)]
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return value if isinstance(value, (int, float, str, NoneType)) else str(value)


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
    elif isinstance(before, CertificateFiles) and isinstance(after, CertificateFiles):
        for field in type(before).model_fields:
            if (getattr(before, field), before.digests.get(field)) != (getattr(after, field), after.digests.get(field)):
                yield f"{name}.{field}"
    elif isinstance(before, BaseModel) and type(before) is type(after):
        for field in type(before).model_fields:
            yield from _compare(f"{name}.{field}", getattr(before, field), getattr(after, field))
    elif before != after:
        yield name


def is_fixed(key: str) -> bool:
    """Return True if a change of this setting takes effect only after a restart."""
    return key in _ON_OR_OFF or any(key == name or key.startswith(f"{name}.") for name in NEEDS_RESTART)


def without_restart(before: Settings, after: Settings) -> Settings:
    """Return the settings that a reload may apply: `after`, but with the values of `before` for all that needs a
    restart."""
    for key in NEEDS_RESTART:
        after = _copy_key(key, before, after)
    for key in _ON_OR_OFF:
        if (getattr(before, key) is None) != (getattr(after, key) is None):
            after = _copy_key(key, before, after)
    return after.with_references(before.references | after.references)


def _copy_key(key: str, before: _Model, after: _Model) -> _Model:
    """Return a copy of `after` in which one setting, such as `admin.listen`, has the value that it has in `before`."""
    name, _, rest = key.partition(".")
    value = getattr(before, name)
    if rest:
        value = _copy_key(rest, value, getattr(after, name))
    return after.model_copy(update={name: value})
