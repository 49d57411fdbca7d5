"""Loading of settings. Flags take precedence over BABELGATE_… variables, these over the file, and the file over the
defaults.

Each error is one line with its location (file and key, variable or flag) and the allowed values. No value is ever
printed, because it may be a key.
"""

import os
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

import yaml
from pydantic import ValidationError
from pydantic_settings import EnvSettingsSource
from pydantic_settings.exceptions import SettingsError

from babelgate.canonical.value import JsonObject
from babelgate.gateway.settings.advice import find_doubts, find_missing_files, find_wrong_keys
from babelgate.gateway.settings.model import Settings
from babelgate.gateway.settings.place import SourceFinder, format_location, keys_of
from babelgate.gateway.settings.secret_files import SecretFileError, file_variables, locate, read_secret, read_variables

FILE: Final = Path("babelgate.yaml")
"""Default path of the file, in the working directory."""

_MAX_VALUES: Final = 100_000
"""Maximum number of values in a file, with aliases expanded. Chosen: an agent has at most about thirty."""
_UNREADABLE: Final = (
    "the value is not valid for the type that its YAML syntax gives it, such as a date or a number: put it in quotes"
)
_QUOTED: Final = re.compile(r"""'(?:[^'\\]|\\.)+'|"(?:[^"\\]|\\.)+\"""")
_VARIABLE: Final = re.compile(r"\$\$\{|\$\{file:([^}]*)\}|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class ConfigError(Exception):
    """Errors in the settings, one line each."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def load(path: Path | None = None, flags: Mapping[str, Any] | None = None) -> Settings:
    """Return the settings. `path` is the file; None means no file.

    An agent in `flags` replaces one of the same name. If `flags` contain `agents`, even an empty mapping, the demo
    agents are not added. Raises ConfigError with all errors.
    """
    merged, place = _read(path, flags)
    try:
        settings = Settings.model_validate(merged)
    except ValidationError as error:
        mistakes = ((place.of(loc), message) for loc, message in _mistakes(error))
        # An error between options that only flags can set has no location.
        raise ConfigError(*(f"{where}: {message}" if where else message for where, message in mistakes)) from None
    if settings.default_agent not in (None, *settings.agents) and "agents" not in (flags or {}):
        where = place.of(("default_agent",))
        raise ConfigError(f"{where}: there is no such agent; there are {', '.join(settings.agents)}")
    if wrong_keys := [f"{place.of(loc)}: {text}" for loc, text in find_wrong_keys(settings)]:
        raise ConfigError(*wrong_keys)
    return settings


def advise(path: Path | None = None, flags: Mapping[str, Any] | None = None) -> list[str]:
    """Return a line for each setting that is valid but probably wrong. The parameters are those of `load`. Raises
    ConfigError."""
    merged, place = _read(path, flags)
    return [f"{place.of(loc)}: {text}" for loc, text in find_doubts(load(path, flags), merged)]


def find_sources(path: Path | None = None, flags: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Return the source of each setting that has no default value, by its key: a flag, a variable, or the file.

    The parameters are those of `load`. Raises ConfigError.
    """
    merged, place = _read(path, flags)
    return {".".join(loc): place.of(loc) for loc in _leaves(merged, ())}


def _leaves(value: object, loc: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the location of each value that is no section. An owner of keys, an issuer and an agent are values."""
    is_value = len(loc) > (1 if loc[:1] in (("agents",), ("keys",), ("issuers",)) else 4)
    if isinstance(value, dict) and not is_value:
        for name, each in cast("JsonObject", value).items():
            yield from _leaves(each, (*loc, str(name)))
    else:
        yield loc


def check_files(path: Path | None = None, flags: Mapping[str, Any] | None = None) -> None:
    """Raise ConfigError with a line for each missing file of an agent. The parameters are those of `load`."""
    place = _read(path, flags)[1]
    missing = [f"{place.of(loc)}: {text}" for loc, text in find_missing_files(load(path, flags))]
    if missing:
        raise ConfigError(*missing)


def _read(path: Path | None, flags: Mapping[str, Any] | None) -> tuple[JsonObject, SourceFinder]:
    flag_values = dict(flags or {})
    variables = _variables()
    file = read_file(path) if path is not None else {}
    merged = _merge(_merge(file, variables), {key: value for key, value in flag_values.items() if key != "agents"})
    if "agents" in flag_values:
        merged["agents"] = {**(merged.get("agents") or {}), **flag_values["agents"]}
    elif not merged.get("agents"):
        merged.pop("agents", None)
    return merged, SourceFinder(path, file, variables, flag_values)


# The file


class _Loader(yaml.SafeLoader):
    """YAML loader that rejects duplicate keys. The YAML standard loader silently keeps the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return the mapping of a node, as the base class does. Raises yaml.MarkedYAMLError for a duplicate key."""
        keys: set[object] = set()
        for key_node, _ in node.value:
            key: object = self.construct_object(key_node, deep=True)  # pyright: ignore[reportUnknownMemberType]
            if isinstance(key, Hashable) and key in keys:
                raise yaml.constructor.ConstructorError(None, None, "this key occurs twice", key_node.start_mark)
            if isinstance(key, Hashable):
                keys.add(key)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Return the value of a node, as the base class does. Raises yaml.MarkedYAMLError for a value that cannot be
        constructed."""
        try:
            return super().construct_object(node, deep)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        except (ValueError, LookupError, AttributeError):  # a date of month 13, `!!int x`, `!!bool x`
            raise yaml.constructor.ConstructorError(None, None, _UNREADABLE, node.start_mark) from None


def read_file(path: Path) -> JsonObject:
    """Return the content of a file with its `${VAR}` and `${file:…}` filled in. Raises ConfigError."""
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
        raise ConfigError(f"{path}{where}: {_strip_quoted(error.problem or 'it is not YAML')}") from None
    except RecursionError:
        raise ConfigError(f"{path}: it is not YAML: it is nested too deeply") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: it is not YAML: {str(error).splitlines()[0]}") from None
    if read is None:
        return {}
    if not isinstance(read, dict):
        raise ConfigError(f"{path}: the file is a mapping of keys, such as agents: …")
    content, missing = cast("JsonObject", read), list[_Missing]()
    try:
        _check_aliases(content)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    filled = _fill_variables(content, (), missing)
    if missing:
        raise ConfigError(*(f"{path}: {format_location(loc, content)}: {reason}" for loc, reason in missing))
    return cast("JsonObject", filled)


def _strip_quoted(problem: str) -> str:
    """Return the parser's message without the content that it quotes from the file. Quoted single characters and token
    names stay."""
    return _QUOTED.sub(lambda match: match[0] if len(match[0]) == 3 or match[0][1] == "<" else "…", problem)


def _check_aliases(content: JsonObject) -> None:
    """Raise ValueError for a value that contains itself, or that is too large once its aliases are expanded.

    Iterative, because aliases can be nested without a bound.
    """
    open_, budget = set[int](), _MAX_VALUES
    left: list[tuple[object, bool]] = [(content, True)]
    while left:
        value, begins = left.pop()
        if not begins:
            open_.discard(id(value))
            continue
        budget -= 1
        if budget < 0:
            raise ValueError(f"with its aliases (*name) it has more than {_MAX_VALUES} values: write fewer")
        if not isinstance(value, (dict, list)):
            continue
        place = id(cast("object", value))
        if place in open_:
            raise ValueError("a value contains itself by an alias (*name): write the value out")
        open_.add(place)
        left.append((cast("object", value), False))
        inner = cast("JsonObject", value).values() if isinstance(value, dict) else cast("list[object]", value)
        left += [(each, True) for each in inner]


_Missing = tuple[tuple[str, ...], str]
"""Location of a value that cannot be filled in, and the reason."""


def _fill_variables(value: Any, path: tuple[str, ...], missing: list[_Missing]) -> Any:
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {key: _fill_variables(each, (*path, str(key)), missing) for key, each in items}
    if isinstance(value, list):
        each = enumerate(cast("list[Any]", value))
        return [_fill_variables(item, (*path, str(index)), missing) for index, item in each]
    if not isinstance(value, str) or "${" not in value:
        return value

    def fill(match: re.Match[str]) -> str:
        file, variable = match.groups()
        if file is not None:
            try:
                return read_secret(file)
            except SecretFileError as error:
                missing.append((path, str(error)))
                return ""
        if variable is None:  # $${ is an escaped ${
            return "${"
        if variable not in os.environ:
            missing.append((path, f"the variable {variable} is not set"))
        return os.environ.get(variable, "")

    return _VARIABLE.sub(fill, value)


def list_files(path: Path | None) -> Sequence[Path]:
    """Return the files that the settings are read from: the file at `path` (None: no file), and those that it and
    variables name.

    Files that cannot be located are left out.
    """
    names = [name for _, _, name in file_variables(Settings.model_fields)]
    if path is not None:
        with suppress(OSError, UnicodeDecodeError):
            names += [match[1] for match in _VARIABLE.finditer(path.read_text(encoding="utf-8")) if match[1]]
    files = [] if path is None else [path]
    for name in names:
        with suppress(SecretFileError):
            files.append(locate(name))
    return files


# The environment


class _Variables(EnvSettingsSource):
    """Variables, and those whose values are in files."""

    def _load_env_vars(self) -> Mapping[str, str | None]:
        files = {name.lower() for name, _, _ in file_variables(Settings.model_fields)}
        values = {name: value for name, value in super()._load_env_vars().items() if name.lower() not in files}
        return {**values, **read_variables(Settings.model_fields)}


def _variables() -> JsonObject:
    try:
        values: JsonObject = _Variables(Settings)()
    except SecretFileError as error:
        raise ConfigError(str(error)) from None
    except SettingsError as error:
        match = re.search(r'field "(\w+)"', str(error))
        name = f"BABELGATE_{match[1].upper()}" if match else "a BABELGATE_ variable"
        raise ConfigError(f"{name}: it is not JSON") from None
    port = os.environ.get("PORT")  # set by platforms that start programs
    return {"port": port, **values} if port else values


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> JsonObject:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        merged[key] = _merge(cast("JsonObject", old), cast("JsonObject", value)) if both else value
    return merged


# Errors


def _mistakes(error: ValidationError) -> Iterator[tuple[tuple[str, ...], str]]:
    for each in error.errors(include_url=False, include_input=False):
        loc = tuple(str(step) for step in each["loc"])
        if loc and loc[-1] == "[key]":
            loc = loc[:-1]
        message = each["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
        match each["type"]:
            case "extra_forbidden":
                message = f"there is no such key; there are {', '.join(keys_of(loc[:-1]))}"
            case "missing" | "too_short" if loc[:1] == ("issuers",) and loc[-1] == "audience":
                message = "needed, as tokens for other services would be accepted without it"
            case "literal_error":
                message = f"allowed: {each.get('ctx', {}).get('expected', '')}"
            case "string_pattern_mismatch" if loc[-1:] == ("database",):
                message = (
                    "allowed: sqlite:/// and a file, such as sqlite:///babelgate.db, or postgresql://user@host/name"
                )
            case "string_pattern_mismatch" if loc[-1:] == ("pooler",):
                message = "allowed: postgresql://user@host/name"
            case "string_pattern_mismatch" if loc[-1:] == ("artifacts",):
                message = "allowed: s3://bucket or s3://bucket/prefix, with the name of a bucket as S3 allows it"
            case "string_pattern_mismatch":
                message = "allowed: module:name, such as my_agents.support:graph"
            case "model_type" | "model_attributes_type" | "dict_type":
                keys = ", ".join(keys_of(loc))
                message = f"a mapping of keys is expected{': ' + keys if keys else ''}"
            case _:
                message = message[:1].lower() + message[1:]
        yield loc, message
