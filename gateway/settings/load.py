"""Loading of the settings. Flags take precedence over BABELGATE_… variables, these over the file, and the file over the
defaults.

Each error is one line with its location (file and key, variable or flag) and the allowed values. No value is ever
printed, because it may be an API key or a password."""

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
from babelgate.gateway.settings.advice import find_bad_certificates, find_doubts, find_missing_files, find_wrong_keys
from babelgate.gateway.settings.certificates import sections_of
from babelgate.gateway.settings.model import Settings
from babelgate.gateway.settings.place import SourceFinder, format_location, keys_of
from babelgate.gateway.settings.references import FileReferences
from babelgate.gateway.settings.secret_files import SecretFileError, file_variables, locate, read_secret, read_variables

FILE: Final = Path("babelgate.yaml")
"""Default path of the file, in the working directory."""

_MAX_VALUES: Final = 100_000
"""Maximum number of values in a file, with aliases expanded. Chosen: an agent has at most about thirty."""
_UNREADABLE: Final = (
    "the value is not valid for the type that its YAML syntax gives it, such as a date or a number: put it in quotes"
)
_QUOTED: Final = re.compile(r"""'(?:[^'\\]|\\.)+'|"(?:[^"\\]|\\.)+\"""")
_VARIABLE: Final = re.compile(r"\$\$\{|\$\{file:([^}]*)(\}?)|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class ConfigError(Exception):
    """Errors in the settings. `problems` has one line of text for each."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def load(path: Path | None = None, flags: Mapping[str, Any] | None = None) -> Settings:
    """Return the settings from the file at `path` (None: no file), the environment and the flags.

    An agent in `flags` replaces one of the same name. If `flags` contain `agents`, even an empty mapping, the demo
    agents are not added. Raises ConfigError with all errors."""
    merged, place, references = _read(path, flags)
    try:
        settings = Settings.model_validate(merged).with_references(references)
        for _, files in sections_of(settings):
            files.note_files()
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
    ConfigError for invalid settings."""
    merged, place, _ = _read(path, flags)
    return [f"{place.of(loc)}: {text}" for loc, text in find_doubts(load(path, flags), merged)]


def find_sources(path: Path | None = None, flags: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Return the source of each setting that is set, by its key: for example `{"port": "--port"}`.

    A source is a flag, a variable, or the file and the key. The parameters are those of `load`. Raises ConfigError for
    invalid settings."""
    merged, place, _ = _read(path, flags)
    return {".".join(loc): place.of(loc) for loc in _leaves(merged, ())}


def _leaves(value: object, loc: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the location of each value that is not a section. One agent, one issuer, or the keys of one owner are one
    value."""
    is_value = len(loc) > (1 if loc[:1] in (("agents",), ("keys",), ("issuers",)) else 4)
    if isinstance(value, dict) and not is_value:
        for name, each in cast("JsonObject", value).items():
            yield from _leaves(each, (*loc, str(name)))
    else:
        yield loc


def check_files(path: Path | None = None, flags: Mapping[str, Any] | None = None) -> None:
    """Raise ConfigError with a line for each file that is missing or unusable: graphs and keys of agents, and
    certificates.

    The parameters are those of `load`."""
    place, settings = _read(path, flags)[1], load(path, flags)
    mistakes = [*find_missing_files(settings), *find_bad_certificates(settings)]
    if mistakes:
        raise ConfigError(*(f"{place.of(loc)}: {text}" for loc, text in mistakes))


def check_certificates(settings: Settings, path: Path | None = None, flags: Mapping[str, Any] | None = None) -> None:
    """Raise ConfigError with a line for each file of the gateway's own certificate that cannot be used.

    `settings` is the result of `load` for `path` and `flags`."""
    if mistakes := list(find_bad_certificates(settings, is_server=True)):
        place = _read(path, flags)[1]
        raise ConfigError(*(f"{place.of(loc)}: {text}" for loc, text in mistakes))


def _read(path: Path | None, flags: Mapping[str, Any] | None) -> tuple[JsonObject, SourceFinder, FileReferences]:
    """Return the merged values of all sources, a finder of the source of a value, and the references to files.

    Raises ConfigError for invalid settings."""
    flag_values = dict(flags or {})
    variables, references = _variables()
    file, of_file = _read_references(path) if path is not None else ({}, FileReferences())
    merged = _merge(_merge(file, variables), {key: value for key, value in flag_values.items() if key != "agents"})
    if "agents" in flag_values:
        merged["agents"] = {**(merged.get("agents") or {}), **flag_values["agents"]}
    elif not merged.get("agents"):
        merged.pop("agents", None)
    return merged, SourceFinder(path, file, variables, flag_values), references | of_file


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
        """Return the value of a node, as the base class does.

        Raises yaml.MarkedYAMLError for a value that is invalid for its YAML type, such as a date with the month 13."""
        try:
            return super().construct_object(node, deep)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        except (ValueError, LookupError, AttributeError):  # a date of month 13, `!!int x`, `!!bool x`
            raise yaml.constructor.ConstructorError(None, None, _UNREADABLE, node.start_mark) from None


def read_file(path: Path) -> JsonObject:
    """Return the content of a YAML file with its `${VAR}` and `${file:…}` replaced. Raises ConfigError if the file
    cannot be read, or a reference cannot be replaced."""
    return _read_references(path)[0]


def _read_references(path: Path) -> tuple[JsonObject, FileReferences]:
    """Return the content of a YAML file like `read_file`, and the locations and contents of its `${file:…}`.

    Raises ConfigError if the file cannot be read, or a reference cannot be replaced."""
    content, filler = _read_yaml(path), _Filler()
    filled = cast("JsonObject", filler.fill(content, ()))
    if filler.missing:
        raise ConfigError(*(f"{path}: {format_location(loc, content)}: {reason}" for loc, reason in filler.missing))
    return filled, FileReferences(frozenset(filler.locations), frozenset(filler.contents))


def _read_yaml(path: Path) -> JsonObject:
    """Return the content of a YAML file, without replacing `${VAR}` and `${file:…}`. Raises ConfigError if it cannot be
    read, or its content is no mapping in YAML."""
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
    content = cast("JsonObject", read)
    try:
        _check_aliases(content)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    return content


def _strip_quoted(problem: str) -> str:
    """Return the YAML parser's message with `…` instead of text that it quotes from the file, which may be a secret.

    Quoted single characters and names of tokens stay."""
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


class _Filler:
    """Replacement of `${VAR}` and `${file:…}` in the values of a file."""

    def __init__(self) -> None:
        self.missing: list[tuple[tuple[str, ...], str]] = []
        """Locations of the values with a reference that cannot be replaced, each with the reason."""
        self.locations: set[tuple[str, ...]] = set()
        """Locations of the values that contain a reference to a file."""
        self.contents: set[str] = set()
        """Contents of all files to which values refer."""

    def fill(self, value: Any, path: tuple[str, ...]) -> Any:
        """Return a value, and all values in it, with the references replaced. `path` is its location."""
        if isinstance(value, dict):
            return {key: self.fill(each, (*path, str(key))) for key, each in cast("dict[Any, Any]", value).items()}
        if isinstance(value, list):
            return [self.fill(item, (*path, str(index))) for index, item in enumerate(cast("list[Any]", value))]
        if not isinstance(value, str) or "${" not in value:
            return value
        return _VARIABLE.sub(lambda match: self._replace(match, path), value)

    def _replace(self, match: re.Match[str], path: tuple[str, ...]) -> str:
        file, end, variable = match.groups()
        if file is not None:
            return self._read_file(file, path, is_closed=bool(end))
        if variable is None:  # $${ is an escaped ${
            return "${"
        if variable not in os.environ:
            self.missing.append((path, f"the variable {variable} is not set"))
        return os.environ.get(variable, "")

    def _read_file(self, name: str, path: tuple[str, ...], *, is_closed: bool) -> str:
        self.locations.add(path)
        try:
            if not is_closed:  # the name is not shown: it has the rest of the value
                raise SecretFileError("a reference to a file ends with }, as in ${file:/run/secrets/name}")
            content = read_secret(name)
        except SecretFileError as error:
            self.missing.append((path, str(error)))
            return ""
        self.contents.add(content)
        return content


def list_files(path: Path | None) -> Sequence[Path]:
    """Return the files whose change may change the settings: the file at `path`, if any, and all secret files.

    Secret files are those to which `${file:…}` and variables such as `BABELGATE_KEYS_FILE` refer. Files that cannot be
    located are left out."""
    names = [name for _, _, name in file_variables(Settings.model_fields)]
    if path is not None:
        with suppress(OSError, UnicodeDecodeError):
            matches = _VARIABLE.finditer(path.read_text(encoding="utf-8"))
            names += [match[1] for match in matches if match[1] and match[2]]
    files = [] if path is None else [path]
    for name in names:
        with suppress(SecretFileError):
            files.append(locate(name))
    return files


# The environment


class _Variables(EnvSettingsSource):
    """Source of settings: environment variables. A variable such as `BABELGATE_KEYS_FILE` has the path of a file with
    the value."""

    def _load_env_vars(self) -> Mapping[str, str | None]:
        files = {name.lower() for name, _, _ in file_variables(Settings.model_fields)}
        values = {name: value for name, value in super()._load_env_vars().items() if name.lower() not in files}
        return {**values, **read_variables(Settings.model_fields)}


def _variables() -> tuple[JsonObject, FileReferences]:
    """Return the values of all environment variables, and the references to files among them. Raises ConfigError if a
    value is not JSON where JSON is expected, or its file cannot be read."""
    try:
        values: JsonObject = _Variables(Settings)()
        contents = read_variables(Settings.model_fields)
    except SecretFileError as error:
        raise ConfigError(str(error)) from None
    except SettingsError as error:
        match = re.search(r'field "(\w+)"', str(error))
        name = f"BABELGATE_{match[1].upper()}" if match else "a BABELGATE_ variable"
        raise ConfigError(f"{name}: it is not JSON") from None
    port = os.environ.get("PORT")  # set by platforms that start programs
    locations = frozenset(tuple(name.removeprefix("babelgate_").split("__")) for name in contents)
    references = FileReferences(locations, frozenset(contents.values()))
    return {"port": port, **values} if port else values, references


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
