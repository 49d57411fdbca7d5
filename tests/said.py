"""Canonical values as goldens have them."""

from typing import Any, cast

from msgspec import NODEFAULT, convert
from msgspec.structs import FieldInfo, fields

from babelgate.canonical import Event
from babelgate.canonical.value import Value


def event_of(told: Any) -> Event:
    """The event that JSON, said in full or not, tells of."""
    return convert(told, Event)


def said(value: Any) -> Any:
    """A value as JSON, with the members alone that say more than their defaults."""
    if isinstance(value, Value):
        told = {field.name: getattr(value, field.name) for field in fields(type(value)) if field.name != "inline"}
        return {
            field.name: said(told[field.name])
            for field in fields(type(value))
            if field.name in told and told[field.name] != _default(field)
        }
    return [said(item) for item in cast("tuple[Any, ...]", value)] if isinstance(value, tuple) else value


def _default(field: FieldInfo) -> Any:
    return field.default_factory() if field.default_factory is not NODEFAULT else field.default
