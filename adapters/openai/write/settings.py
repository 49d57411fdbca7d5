"""Settings of the request that a response object repeats, from the configuration of the run."""

from typing import Any, Final

from babelgate.adapters.openai.codec.model import format_of, object_in, tools_of
from babelgate.canonical.value import JsonObject

_NUMBERS: Final[dict[str, float]] = {"top_p": 1, "presence_penalty": 0, "frequency_penalty": 0, "temperature": 1}
_TEXT_SETTINGS: Final = ("instructions", "safety_identifier", "prompt_cache_key")
_EFFORTS: Final = frozenset({"none", "low", "medium", "high", "xhigh"})


def encode_settings(config: JsonObject) -> JsonObject:
    """Return the members of a response that repeat settings of its request. Open Responses requires every member, and
    allows null only where it says so (components.schemas.ResponseResource).

    Runs of other protocols can have any configuration, so a value of another type is replaced by the default.
    """
    settings: JsonObject = {name: _number(config, name, default) for name, default in _NUMBERS.items()}
    for name in _TEXT_SETTINGS:
        value: object = config.get(name)
        settings[name] = value if isinstance(value, str) else None
    choice: object = config.get("tool_choice")
    truncation, parallel = config.get("truncation"), config.get("parallel_tool_calls")
    tier = config.get("service_tier")
    return {
        **settings,
        "tools": [_encode_tool(tool) for tool in tools_of(config)],
        "tool_choice": choice if isinstance(choice, str | dict) else "auto",
        "truncation": truncation if truncation in ("auto", "disabled") else "disabled",
        "parallel_tool_calls": parallel if isinstance(parallel, bool) else True,
        "text": _encode_text(config),
        "top_logprobs": _count(config, "top_logprobs") or 0,
        "reasoning": _encode_reasoning(config),
        "max_output_tokens": _count(config, "max_output_tokens"),
        "max_tool_calls": _count(config, "max_tool_calls"),
        "service_tier": tier if isinstance(tier, str) else "default",
    }


def _encode_tool(tool: JsonObject) -> JsonObject:
    if tool.get("type") != "function":
        return tool
    return {**dict.fromkeys(("name", "description", "parameters", "strict")), **tool}


def _encode_text(config: JsonObject) -> JsonObject:
    text: JsonObject = {"format": format_of(config, None) or {"type": "text"}}
    verbosity: Any = object_in(config, "text").get("verbosity")
    if isinstance(verbosity, str):
        text["verbosity"] = verbosity
    return text


def _encode_reasoning(config: JsonObject) -> JsonObject | None:
    reasoning = object_in(config, "reasoning")
    effort, summary = reasoning.get("effort"), reasoning.get("summary")
    if not isinstance(effort, str) or effort not in _EFFORTS:
        return None
    return {"effort": effort, "summary": summary if isinstance(summary, str) else None}


def _number(config: JsonObject, name: str, default: float) -> float:
    value: object = config.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else default


def _count(config: JsonObject, name: str) -> int | None:
    value: object = config.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
