"""Where settings come from: flags before BABELGATE_… variables before the file before the defaults.

Each mistake is one line that says where it is (file and key, variable or flag) and what is allowed there. No value is
ever printed: it may be a key.
"""

import os
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_settings import EnvSettingsSource
from pydantic_settings.exceptions import SettingsError

from canonical.value import JsonObject
from gateway.config import Settings

__all__ = ("FILE", "ConfigError", "load", "read_file")

FILE: Final = Path("babelgate.yaml")
"""Read from the working directory where no other is named."""

_VARIABLE: Final = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class ConfigError(Exception):
    """Mistakes in the settings, one line each."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def load(path: Path | None = None, flags: Mapping[str, Any] | None = None) -> Settings:
    """The settings. `path` = the file, None = no file. An agent in `flags` replaces one of the same name, and where
    `flags` have `agents`, though empty, there are no demo agents. Raises ConfigError with all mistakes."""
    given = dict(flags or {})
    variables = _variables()
    file = read_file(path) if path is not None else {}
    merged = _merge(_merge(file, variables), {key: value for key, value in given.items() if key != "agents"})
    if "agents" in given:
        merged["agents"] = {**(merged.get("agents") or {}), **given["agents"]}
    elif not merged.get("agents"):
        merged.pop("agents", None)
    try:
        settings = Settings.model_validate(merged)
    except ValidationError as error:
        place = _Place(path, file, variables, given)
        raise ConfigError(*(f"{place.of(loc)}: {said}" for loc, said in _mistakes(error))) from None
    if settings.default_agent not in (None, *settings.agents) and "agents" not in given:
        where = _Place(path, file, variables, given).of(("default_agent",))
        raise ConfigError(f"{where}: there is no such agent; there are {', '.join(settings.agents)}")
    return settings


# The file


class _Loader(yaml.SafeLoader):
    """YAML lets a key stand twice, and the last one wins without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            key: object = self.construct_object(key_node, deep=True)  # pyright: ignore[reportUnknownMemberType]
            if isinstance(key, Hashable) and key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key} stands twice", key_node.start_mark)
            if isinstance(key, Hashable):
                seen.add(key)
        return super().construct_mapping(node, deep)


def read_file(path: Path) -> JsonObject:
    """A file with its `${VAR}` filled in. Raises ConfigError."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{path}: it cannot be read: {reason}") from None
    try:
        read: Any = yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{path}{where}: {error.problem}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{path}: it is not YAML: {str(error).splitlines()[0]}") from None
    if read is None:
        return {}
    if not isinstance(read, dict):
        raise ConfigError(f"{path}: the file is a mapping of keys, such as agents: …")
    problems: list[str] = []
    filled = _filled(read, f"{path}: ", (), problems)
    if problems:
        raise ConfigError(*problems)
    return cast("JsonObject", filled)


def _filled(value: Any, where: str, path: tuple[str, ...], problems: list[str]) -> Any:
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {key: _filled(each, where, (*path, str(key)), problems) for key, each in items}
    if isinstance(value, list):
        each = enumerate(cast("list[Any]", value))
        return [_filled(item, where, (*path, str(index)), problems) for index, item in each]
    if not isinstance(value, str) or "${" not in value:
        return value

    def fill(match: re.Match[str]) -> str:
        if match[1] is None:  # $${ is a plain ${
            return "${"
        if match[1] not in os.environ:
            problems.append(f"{where}{'.'.join(path)}: the variable {match[1]} is not set")
        return os.environ.get(match[1], "")

    return _VARIABLE.sub(fill, value)


# The environment


def _variables() -> JsonObject:
    try:
        found: JsonObject = EnvSettingsSource(Settings)()
    except SettingsError as error:
        match = re.search(r'field "(\w+)"', str(error))
        name = f"BABELGATE_{match[1].upper()}" if match else "a BABELGATE_ variable"
        raise ConfigError(f"{name}: it is not JSON") from None
    port = os.environ.get("PORT")  # what platforms that start programs set
    return {"port": port, **found} if port else found


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> JsonObject:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        merged[key] = _merge(cast("JsonObject", old), cast("JsonObject", value)) if both else value
    return merged


# Mistakes


def _mistakes(error: ValidationError) -> Iterator[tuple[tuple[str, ...], str]]:
    for each in error.errors(include_url=False, include_input=False):
        loc = tuple(str(step) for step in each["loc"])
        if loc and loc[-1] == "[key]":
            loc = loc[:-1]
        message = each["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
        match each["type"]:
            case "extra_forbidden":
                message = f"there is no such key; there are {', '.join(_keys(loc[:-1]))}"
            case "literal_error":
                message = f"allowed: {each.get('ctx', {}).get('expected', '')}"
            case "string_pattern_mismatch" if loc[-1:] == ("database",):
                message = "allowed: sqlite:/// and a file, such as sqlite:///babelgate.db"
            case "string_pattern_mismatch":
                message = "allowed: module:name, such as my_agents.support:graph"
            case "model_type" | "model_attributes_type" | "dict_type":
                keys = ", ".join(_keys(loc))
                message = f"a mapping of keys is expected{': ' + keys if keys else ''}"
            case _:
                message = message[:1].lower() + message[1:]
        yield loc, message


def _keys(loc: Sequence[str]) -> Sequence[str]:
    """The keys that a section of the settings has."""
    model: Any = Settings
    for step in loc:
        fields = model.model_fields if isinstance(model, type) and issubclass(model, BaseModel) else {}
        annotation = fields[step].annotation if step in fields else next(iter(get_args(model)[1:]), None)
        model = annotation
    return tuple(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else ()


class _Place:
    """Who said a wrong thing: the first source that has the key, asked in the order of precedence."""

    def __init__(self, path: Path | None, file: JsonObject, variables: JsonObject, flags: JsonObject) -> None:
        self._path = path
        self._file = file
        self._variables = variables
        self._flags = flags

    def of(self, loc: tuple[str, ...]) -> str:
        dotted = ".".join(loc)
        if _depth(self._flags, loc) == len(loc) and loc:
            return dotted if loc[0] == "agents" else f"--{loc[0].replace('_', '-')}"
        if _depth(self._variables, loc) == len(loc) and loc:
            if loc == ("port",) and "BABELGATE_PORT" not in os.environ:
                return "PORT"
            return "BABELGATE_" + "__".join(loc).upper()
        if _depth(self._file, loc) > 0 or self._path is not None:
            return f"{self._path}: {dotted}" if dotted else str(self._path)
        return dotted


def _depth(value: object, loc: Sequence[str]) -> int:
    """How many steps of a path are there."""
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
