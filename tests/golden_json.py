"""Canonical values in the JSON form of the goldens."""

from typing import Any, cast

from msgspec import NODEFAULT, convert
from msgspec.structs import FieldInfo, fields

from babelgate.canonical import Event
from babelgate.canonical.value import Value


def event_from_json(value: Any) -> Event:
    """Return the event of a JSON value, with or without default members."""
    return convert(value, Event)


def value_to_json(value: Any) -> Any:
    """Return a value as JSON, without members that equal their defaults."""
    if isinstance(value, Value):
        members = {field.name: getattr(value, field.name) for field in fields(type(value)) if field.name != "inline"}
        return {
            field.name: value_to_json(members[field.name])
            for field in fields(type(value))
            if field.name in members and members[field.name] != _default(field)
        }
    return [value_to_json(item) for item in cast("tuple[Any, ...]", value)] if isinstance(value, tuple) else value


def _default(field: FieldInfo) -> Any:
    return field.default_factory() if field.default_factory is not NODEFAULT else field.default
