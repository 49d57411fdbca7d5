"""Conversion of a graph's state to JSON.

A state may contain any object, and is not designed for callers, so the conversion never fails. Messages become
LangChain's dicts, models and dataclasses become objects, and anything that JSON cannot represent becomes its text.
"""

import base64
from collections.abc import Iterable, Mapping, Set
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from enum import Enum
from pathlib import PurePath
from typing import Any, Final, cast
from uuid import UUID

from pydantic import BaseModel

from babelgate.canonical.json import is_number
from babelgate.canonical.value import Json, JsonObject

ROOT: Final = "__root__"
_MAX_DEPTH: Final = 50
"""Maximum nesting of the result, in levels. Chosen: the log accepts 64, and the event around a state needs some of
them."""
_PLAIN: Final = (dict, list)
_MAX_TEXT: Final = 10_000
"""Maximum length of the text that replaces an object which JSON cannot represent, in characters. Chosen."""


def plain_text(text: str) -> str:
    """Return a text in which lone surrogates are replaced, because UTF-8 cannot encode them."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def plain_object(value: object) -> JsonObject:
    """Return a graph's state as a JSON object. A state of another type becomes the only member, under the name
    `ROOT`."""
    state = plain(value)
    return state if isinstance(state, dict) else {} if state is None else {ROOT: state}


def plain(value: object, depth: int = 0) -> Json:
    """Return any value as JSON. An object that JSON cannot represent, or that is nested deeper than 50 levels, becomes
    its text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return plain(value.value, depth)
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, int):
        return int(value) if is_number(value) else hex(value)
    if isinstance(value, float):
        return float(value) if is_number(value) else None
    if depth >= _MAX_DEPTH:
        return _text(value)
    try:
        return _convert_nested(value, depth)
    except Exception:  # the code of the author's type can raise anything
        return _text(value)


def _convert_nested(value: object, depth: int) -> Json:
    if type(value) in _PLAIN and not value:  # fast path for most members of a message chunk
        return [] if type(value) is list else {}
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, date | time):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, UUID | PurePath):
        return plain_text(str(value))
    if isinstance(value, BaseException):
        return plain_text(f"{type(value).__name__}: {value}"[:_MAX_TEXT])
    if isinstance(value, type):
        return value.__name__
    members = _members(value)
    if members is not None:
        return {plain_text(str(key)): plain(member, depth + 1) for key, member in members.items()}
    if isinstance(value, Iterable):
        return _sequence(cast("Iterable[object]", value), depth)
    return _text(value)


def _members(value: object) -> Mapping[Any, Any] | None:
    if isinstance(value, Mapping):
        return cast("Mapping[Any, Any]", value)
    if isinstance(value, BaseModel):
        # `model_dump` would fail at the first member that pydantic cannot serialize.
        members = {name: getattr(value, name) for name in type(value).model_fields if name in value.__dict__}
        return {**members, **(value.model_extra or {})}
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    named: Any = getattr(value, "_asdict", None)
    if callable(named) and isinstance(value, tuple):
        return cast("Mapping[Any, Any]", named())
    slots: Any = getattr(type(value), "__slots__", ())
    if isinstance(slots, tuple) and not isinstance(value, Iterable):
        names = [name for name in cast("tuple[str, ...]", slots) if not name.startswith("_") and hasattr(value, name)]
        return {name: getattr(value, name) for name in names} or None
    return None


def _sequence(value: Iterable[object], depth: int) -> Json:
    if isinstance(value, list | tuple):
        return [plain(member, depth + 1) for member in cast("Iterable[object]", value)]
    listed: Any = getattr(value, "tolist", None)
    if callable(listed):  # an array
        return plain(listed(), depth + 1)
    if isinstance(value, Set):
        items = [plain(member, depth + 1) for member in cast("Iterable[object]", value)]
        return sorted(items, key=repr)  # sets have no order, but equal states must have equal JSON
    if hasattr(value, "__len__"):
        return [plain(member, depth + 1) for member in value]
    return _text(value)  # an iterator: reading it would exhaust it


def _text(value: object) -> str:
    try:
        return plain_text(str(value)[:_MAX_TEXT])
    except Exception:
        return type(value).__name__
