"""Validator for the messages of a protocol, by the definitions in `schemas/<set>.yaml` (JSON Schema 2020-12).

Each definition describes a message or a part of one. A violation belongs to the innermost definition in which it lies,
so that an empty part is reported as a violation of the part and not of the task. Validation also returns the names of
all definitions that it used.
"""

import re
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any, Final, cast

import yaml
from jsonschema import Draft202012Validator, FormatChecker, ValidationError
from jsonschema.validators import extend  # pyright: ignore[reportUnknownVariableType]

_PREFIX: Final = "#/$defs/"
_USED: ContextVar[set[str]] = ContextVar("used")
_DEFINED: ContextVar[Mapping[str, Any]] = ContextVar("defined")
"""Validators of the definitions in use, by name."""
_PARTS: ContextVar[dict[int, Any]] = ContextVar("parts")
"""Validators of the subschemas within definitions, by the `id()` of the subschema. The validator refers to the
subschema, so the id stays valid."""
_MAX_TEXT: Final = 200


@dataclass(frozen=True, slots=True)
class Violation:
    definitions: tuple[str, ...]
    """Names of the definitions that contain the violated rule: the innermost first, that of the whole message last."""
    path: str
    """Path of the invalid value within its message, such as `parts[0].text`."""
    text: str


def _reference(_validator: Any, ref: str, instance: Any, _schema: Mapping[str, Any]) -> Iterator[ValidationError]:
    """Yield the violations of the definition to which a `$ref` refers, and record its name. It replaces jsonschema's
    keyword `$ref`.

    Every `$ref` refers to a definition, whose validator exists. jsonschema's general lookup by URI takes longer than
    many validations.
    """
    name = ref.removeprefix(_PREFIX)
    _USED.get().add(name)
    for error in _DEFINED.get()[name].iter_errors(instance):
        error.definitions = (*getattr(error, "definitions", ()), name)
        yield error


def _descend(
    validator: Any, instance: Any, schema: Any, path: Any = None, schema_path: Any = None, resolver: Any = None
) -> Iterator[ValidationError]:
    """Yield the violations of a subschema. It replaces jsonschema's method `descend`, which creates a validator for
    each value, by one that creates one validator for each subschema. Measured: creating one takes longer than the
    validation.

    `path` and `schema_path` are the last steps to the value and to the subschema; None if there is none.
    """
    parts = _PARTS.get()
    part = parts.get(id(schema))
    if part is None:
        part = parts[id(schema)] = validator.evolve(schema=schema)
    for error in part.iter_errors(instance):
        if path is not None:
            error.path.appendleft(path)
        if schema_path is not None:
            error.schema_path.appendleft(schema_path)
        yield error


_Validator: Final = cast("Any", extend(Draft202012Validator, {"$ref": _reference}))
_Validator.descend = _descend


_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def _is_time(value: Any) -> bool:
    """Return True if a text is a time with a time zone (RFC 3339, section 5.6), or if the value is not a text. Raises
    ValueError for a date that does not exist."""
    if not isinstance(value, str):
        return True
    if _TIME.fullmatch(value) is None:
        return False
    datetime.fromisoformat(value.upper())
    return True


_FORMATS: Final = FormatChecker()
# jsonschema checks `date-time` only where another package is installed.
_FORMATS.checkers = {**Draft202012Validator.FORMAT_CHECKER.checkers, "date-time": (_is_time, (ValueError,))}


class Schemas:
    """Definitions of one schema file, each of which can validate a value."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        """Create the validators of all definitions. Raises SchemaError if `document` is not a JSON Schema, and
        ValueError if a `$ref` refers to no definition."""
        Draft202012Validator.check_schema(document)
        self._definitions: Mapping[str, Any] = document["$defs"]
        for ref in _references(document):
            if ref.removeprefix(_PREFIX) not in self._definitions:
                raise ValueError(f"{ref} does not exist")
        self._validators: Mapping[str, Any] = {
            name: _Validator(each, format_checker=_FORMATS) for name, each in self._definitions.items()
        }
        self._parts: dict[int, Any] = {}

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._definitions)

    def holds(self, name: str, value: Any) -> tuple[tuple[Violation, ...], frozenset[str]]:
        """Validate a value against a definition. Return the violations, and the names of all definitions that were
        used.

        Raises KeyError if there is no such definition.
        """
        used: set[str] = set()
        tokens = _USED.set(used), _DEFINED.set(self._validators), _PARTS.set(self._parts)
        try:
            # Validation starts with a reference, so that the definition is recorded and owns its violations.
            found = tuple(_violation(error) for error in _reference(None, name, value, {}))
        finally:
            _USED.reset(tokens[0])
            _DEFINED.reset(tokens[1])
            _PARTS.reset(tokens[2])
        return found, frozenset(used)

    def uses(self, name: str) -> frozenset[str]:
        """Return the names of all definitions that a definition uses, directly or indirectly, including itself."""
        found: set[str] = set()
        waiting = [name]
        while waiting:
            here = waiting.pop()
            if here not in found:
                found.add(here)
                waiting += [ref.removeprefix(_PREFIX) for ref in _references(self._definitions[here])]
        return frozenset(found)


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, value in cast("dict[str, Any]", schema).items():
            if key == "$ref":
                yield value
            else:
                yield from _references(value)
    elif isinstance(schema, list):
        for each in cast("list[Any]", schema):
            yield from _references(each)


def _violation(error: Any) -> Violation:
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path)
    text: str = error.message
    if len(text) > _MAX_TEXT:
        # The message begins with the whole value and ends with the rule, so the middle is cut.
        text = f"{text[: _MAX_TEXT // 2]} … {text[-_MAX_TEXT // 2 :]}"
    return Violation(error.definitions, path.lstrip(".") or "(the whole)", text)


LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Class that PyYAML loads files with: that of libyaml, if PyYAML was built with it. Measured: it is six times as fast;
without it, all files take two thirds of a second."""


@cache
def load_schemas(set_name: str) -> Schemas:
    text = (files("babelgate.conformance") / "schemas" / f"{set_name}.yaml").read_text(encoding="utf-8")
    return Schemas(yaml.load(text, LOADER))
