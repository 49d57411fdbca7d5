"""Locations of errors in the configuration, such as `babelgate.yaml: limits.run`, without any secret.

Values are never shown. The name of a member is replaced by its number if it may be a misplaced value:

- a name in `keys`, because key and owner are easily swapped;
- a name that does not look like one: `{Authorization:Bearer x}` lacks a space, and is one name without a value;
- a name without a value.

Rules of `access` are numbered, as in `access, rule 2`."""

import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, cast, get_args, get_origin

from pydantic import BaseModel

from babelgate.canonical.value import JsonObject
from babelgate.gateway.settings.model import Settings

_NAME: Final = re.compile(r"[\w.-]{1,63}")


class SourceFinder:
    """Finder of the source of a setting: the first of flags, variables and file that sets it."""

    def __init__(self, path: Path | None, file: JsonObject, variables: JsonObject, flags: JsonObject) -> None:
        self._path = path
        self._file = file
        self._variables = variables
        self._flags = flags

    def of(self, loc: tuple[str, ...]) -> str:
        if _depth(self._flags, loc) == len(loc) and loc:
            return format_location(loc, self._flags) if loc[0] == "agents" else f"--{loc[0].replace('_', '-')}"
        if _depth(self._variables, loc) == len(loc) and loc:
            if loc == ("port",) and "BABELGATE_PORT" not in os.environ:
                return "PORT"
            name = "BABELGATE_" + format_location(loc, self._variables, variable=True)
            return f"{name}_FILE" if f"{name}_FILE" in os.environ else name
        where = format_location(loc, self._file)
        if _depth(self._file, loc) > 0 or self._path is not None:
            return f"{self._path}: {where}" if where else str(self._path)
        return where


def format_location(loc: Sequence[str], source: object, *, variable: bool = False) -> str:
    """Return a location as text: `agents.a.url`, or `AGENTS__A__URL` for a variable. Members may be shown as in `keys,
    entry 2`.

    `source` is the configuration in which the location is, to find the number of a redacted member."""
    text = ""
    above = ""
    for step in loc:
        members = [str(name) for name in cast("JsonObject", source)] if isinstance(source, dict) else []
        inner = _member(cast("object", source), step)
        if above == "access" and step.isdigit():
            text += f", rule {int(step) + 1}"
        elif _is_shown(step, above, inner, listed=isinstance(source, (list, tuple))):
            between = ", " if ", rule " in text else "__" if variable else "."
            text += (between if text else "") + (step.upper() if variable and between == "__" else step)
        else:
            text += f"{', ' if text else ''}entry {members.index(step) + 1 if step in members else '?'}"
        source, above = inner, step
    return text


def _is_shown(step: str, above: str, value: object, *, listed: bool) -> bool:
    if listed or step in _fields():
        return True
    # the variable is not filled in yet, so the text before it is a name
    is_variable = isinstance(value, str) and "${" in value
    return (above != "keys" or is_variable) and value is not None and _NAME.fullmatch(step) is not None


def _member(source: object, step: str) -> Any:
    if isinstance(source, dict):
        members = {str(name): value for name, value in cast("dict[Any, Any]", source).items()}
        return members.get(step)
    if isinstance(source, (list, tuple)) and step.isdigit():
        items = cast("Sequence[Any]", source)
        return items[int(step)] if int(step) < len(items) else None
    return None


def _depth(value: object, loc: Sequence[str]) -> int:
    """Return how many of the first steps of a location (member names and list indexes) exist in a value."""
    depth = 0
    for step in loc:
        if isinstance(value, dict) and step in value:
            value = cast("dict[str, Any]", value)[step]
        elif isinstance(value, (list, tuple)) and step.isdigit() and int(step) < len(cast("Sequence[Any]", value)):
            value = cast("Sequence[Any]", value)[int(step)]
        else:
            break
        depth += 1
    return depth


def keys_of(loc: Sequence[str]) -> Sequence[str]:
    """Return the names of the settings in the section at a location. Empty if no section is there."""
    model: Any = Settings
    for step in loc:
        fields = model.model_fields if isinstance(model, type) and issubclass(model, BaseModel) else {}
        arguments = get_args(model)
        item = arguments[0] if get_origin(model) is tuple else next(iter(arguments[1:]), None)
        model = _section_of(fields[step].annotation if step in fields else item)
    return tuple(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else ()


def _section_of(annotation: Any) -> Any:
    """Return the type of a setting without its alternative None, if it has one."""
    kinds = [each for each in get_args(annotation) if each is not type(None)]
    is_optional = len(kinds) < len(get_args(annotation)) and len(kinds) == 1
    return kinds[0] if is_optional else annotation


@cache
def _fields() -> frozenset[str]:
    schema = Settings.model_json_schema()
    return frozenset(name for model in (schema, *schema["$defs"].values()) for name in model.get("properties", ()))
