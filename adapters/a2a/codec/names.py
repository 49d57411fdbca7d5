"""Conversion of member names: A2A has camelCase (specification 1.0, 5.5), the canonical model snake_case."""

import re
from collections.abc import Callable
from typing import Final, cast

from babelgate.canonical.value import Json, JsonObject

_UNDERSCORE: Final = re.compile(r"_([a-z0-9])")
_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])([A-Z])")


def to_camel_case(value: JsonObject) -> JsonObject:
    """Return the value with all names of its objects in camelCase."""
    return cast("JsonObject", _rename_keys(value, lambda name: _UNDERSCORE.sub(lambda match: match[1].upper(), name)))


def to_snake_case(value: JsonObject) -> JsonObject:
    """Return the value with all names of its objects in snake_case. Names that are in snake_case already, as older
    gateways wrote them, stay unchanged."""
    return cast(
        "JsonObject", _rename_keys(value, lambda name: _CAPITAL.sub(lambda match: f"_{match[1].lower()}", name))
    )


def _rename_keys(value: Json, rename: Callable[[str], str]) -> Json:
    if isinstance(value, dict):
        return {rename(name): _rename_keys(each, rename) for name, each in value.items()}
    return [_rename_keys(each, rename) for each in value] if isinstance(value, list) else value
