"""Settings of a request ↔ the configuration of a run, in the form that agents of all protocols read."""

from collections.abc import Mapping
from typing import Any, Final

from babelgate.adapters.anthropic.codec.names import PROTOCOL
from babelgate.adapters.anthropic.codec.questions import ASK
from babelgate.adapters.anthropic.wire import NOT_SETTINGS
from babelgate.canonical import caller_tools
from babelgate.canonical.event import RunCreated
from babelgate.canonical.json import as_object, objects_in
from babelgate.canonical.value import Extra, JsonObject

_SETTINGS: Final = "settings"
_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}
_EXTRA_SETTINGS: Final = ("temperature", "top_p", "top_k", "max_tokens")
"""Settings that have the same name in the configuration of a run."""


def has_ask_tool(settings: JsonObject) -> bool:
    """Return True if the tools of a request include `ask_caller`."""
    return any(tool.get("name") == ASK for tool in objects_in(settings.get("tools")))


def without_ask(settings: JsonObject) -> JsonObject:
    """Return settings without the tool `ask_caller`. The gateway itself calls this tool, so the agent must not see
    it."""
    tools = [tool for tool in objects_in(settings.get("tools")) if tool.get("name") != ASK]
    rest = {name: value for name, value in settings.items() if name != "tools"}
    return {**rest, "tools": tools} if tools else rest


def decode_settings(settings: JsonObject) -> JsonObject:
    """Return the settings of a request as the configuration of a run. Functions and formats have the form of chat
    completions, which agents of other protocols know. All other settings stay as they are."""
    config = dict(settings)
    tools = [_decode_tool(tool) for tool in objects_in(settings.get("tools"))]
    if tools:
        config["tools"] = tools
    choice = as_object(settings.get("tool_choice"))
    if choice:
        named = {"type": "function", "name": choice.get("name")}
        config["tool_choice"] = named if choice.get("type") == "tool" else _CHOICES.get(str(choice.get("type")), "auto")
        if choice.get("disable_parallel_tool_use") is True:
            config["parallel_tool_calls"] = False
    if "stop_sequences" in config:
        config["stop"] = config.pop("stop_sequences")
    schema = schema_of(settings)
    if schema is not None:
        form = {"type": "json_schema", "json_schema": {"name": "output", "schema": schema}}
        config["response_format"] = form
    return config


def _decode_tool(tool: JsonObject) -> JsonObject:
    if tool.get("type") not in (None, "custom"):
        return tool
    declared: JsonObject = {"type": "function", "name": tool.get("name")}
    if tool.get("description") is not None:
        declared["description"] = tool["description"]
    return {**declared, "parameters": tool.get("input_schema") or {"type": "object"}}


def schema_of(settings: Mapping[str, Any]) -> JsonObject | None:
    """Return the JSON Schema that a request demands of the answer, or None for any text."""
    form = as_object(as_object(settings.get("output_config")).get("format"))
    schema = form.get("schema")
    return as_object(schema) if form.get("type") == "json_schema" and isinstance(schema, dict) else None


def settings_in(body: JsonObject) -> JsonObject:
    """Return the members of a valid request that configure the agent, such as `tools`, as the caller sent them."""
    return {name: value for name, value in body.items() if name not in NOT_SETTINGS and value is not None}


def settings_extra(settings: JsonObject | None, members: JsonObject) -> Extra:
    """Return the `extra` of a run's input: `members`, and `settings` unless they are None. `settings` are those of the
    request as the caller sent them, for agents whose server speaks this API."""
    return {PROTOCOL: members if settings is None else {_SETTINGS: settings, **members}}


def demanded_schema(created: RunCreated) -> JsonObject | None:
    """Return the JSON Schema that the request of a run demands of the answer, or None for any text, and for a run of
    another protocol."""
    if PROTOCOL not in created.extra:
        return None
    form = as_object(as_object(created.config.get("response_format")).get("json_schema"))
    return as_object(form["schema"]) if "schema" in form else None


def sent_settings(extra: Extra) -> JsonObject | None:
    """Return the settings of a run's input as a caller of this API sent them, or None if it came from another
    protocol."""
    members = as_object(extra.get(PROTOCOL))
    return as_object(members[_SETTINGS]) if _SETTINGS in members else None


def encode_settings(config: JsonObject) -> JsonObject:
    """Return the configuration of a run from another protocol as settings of a request."""
    settings: JsonObject = {name: config[name] for name in _EXTRA_SETTINGS if config.get(name) is not None}
    for name in ("max_completion_tokens", "max_output_tokens"):
        if config.get(name) is not None:
            settings.setdefault("max_tokens", config[name])
    stop = config.get("stop")
    if stop:
        settings["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    tools = [
        {
            "name": tool.name,
            **({"description": tool.description} if tool.description else {}),
            "input_schema": {"type": "object", **tool.parameters},
        }
        for tool in caller_tools(config)
    ]
    if tools:
        settings["tools"] = tools
        settings |= _encode_choice(config)
    return settings


def _encode_choice(config: JsonObject) -> JsonObject:
    choice = config.get("tool_choice")
    encoded: JsonObject = {}
    if isinstance(choice, str) and choice in _CHOICES.values():
        encoded = {"type": next(name for name, other in _CHOICES.items() if other == choice)}
    elif isinstance(choice, dict):
        members = as_object(choice)
        name = members.get("name") or as_object(members.get("function")).get("name")
        encoded = {"type": "tool", "name": name} if isinstance(name, str) else {}
    if config.get("parallel_tool_calls") is False:
        encoded = {**(encoded or {"type": "auto"}), "disable_parallel_tool_use": True}
    return {"tool_choice": encoded} if encoded else {}
