"""Tools that a caller offers to the agent, in any of the common forms of declaration."""

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from babelgate.canonical.value import Json, JsonObject, Value


class CallerTool(Value):
    """Function that the caller executes when the agent calls it (`UseTool`)."""

    name: str
    description: str = ""
    parameters: JsonObject = msgspec.field(default_factory=dict[str, object])
    """JSON Schema of the function's arguments."""


def caller_tools(config: JsonObject) -> Sequence[CallerTool]:
    """Return the functions among `tools` in a run's configuration, or in its member `configurable`.

    A declaration may have the form of chat completions (nested in `function`), of responses (flat), or of AG-UI
    (without `type`). Entries that are not functions or have no name are left out.
    """
    return [tool for tool in map(_tool, declared_tools(config) or ()) if tool is not None]


def declared_tools(config: JsonObject) -> list[Json] | None:
    """Return the list of tools that the caller declares in a run's configuration, verbatim, including entries that are
    not functions. Return None if there is no list."""
    tools: object = config.get("tools")
    if tools is None and isinstance(configurable := config.get("configurable"), dict):
        tools = cast("JsonObject", configurable).get("tools")
    return cast("list[Json]", tools) if isinstance(tools, list) else None


def _tool(declaration: object) -> CallerTool | None:
    if not isinstance(declaration, dict):
        return None
    function = cast("JsonObject", declaration)
    if function.get("type", "function") != "function":
        return None
    nested: Any = function.get("function")
    function = cast("JsonObject", nested) if isinstance(nested, dict) else function
    name, description, parameters = function.get("name"), function.get("description"), function.get("parameters")
    if not isinstance(name, str) or not name:
        return None
    return CallerTool(
        name=name,
        description=description if isinstance(description, str) else "",
        parameters=cast("JsonObject", parameters) if isinstance(parameters, dict) else {},
    )
