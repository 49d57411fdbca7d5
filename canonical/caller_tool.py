"""Tools of a caller: what it declares that an agent may call, in whichever of the common forms."""

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from babelgate.canonical.value import Json, JsonObject, Value


class CallerTool(Value):
    """A function that the caller carries out when the agent asks for it (`UseTool`)."""

    name: str
    description: str = ""
    parameters: JsonObject = msgspec.field(default_factory=dict[str, object])
    """JSON Schema of its arguments."""


def caller_tools(config: JsonObject) -> Sequence[CallerTool]:
    """The functions among `tools` of a run's configuration, or of its member `configurable`: nested as chat completions
    have them, flat as responses do, or without a type as AG-UI does. What is no function, or has no name, is left
    out."""
    return [tool for tool in map(_tool, declared_tools(config) or ()) if tool is not None]


def declared_tools(config: JsonObject) -> list[Json] | None:
    """What stands there, as it was written, functions or not; None if there is no list."""
    given: object = config.get("tools")
    if given is None and isinstance(configurable := config.get("configurable"), dict):
        given = cast("JsonObject", configurable).get("tools")
    return cast("list[Json]", given) if isinstance(given, list) else None


def _tool(given: object) -> CallerTool | None:
    if not isinstance(given, dict):
        return None
    told = cast("JsonObject", given)
    if told.get("type", "function") != "function":
        return None
    nested: Any = told.get("function")
    told = cast("JsonObject", nested) if isinstance(nested, dict) else told
    name, description, parameters = told.get("name"), told.get("description"), told.get("parameters")
    if not isinstance(name, str) or not name:
        return None
    return CallerTool(
        name=name,
        description=description if isinstance(description, str) else "",
        parameters=cast("JsonObject", parameters) if isinstance(parameters, dict) else {},
    )
