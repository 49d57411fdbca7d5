"""What both of OpenAI's APIs say alike: how files and JSON reach a model, what callers configure, what was used."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, cast

from babelgate.adapters.kit.json import ABSENT, parse_text
from babelgate.canonical import DataPart, Feature, FilePart, Part, RefusalPart, TextPart, ToolCallPart, declared_tools
from babelgate.canonical.thread import Loss
from babelgate.canonical.value import Json, JsonObject

BOTH: Final = (
    "parallel_tool_calls",
    "prompt_cache_key",
    "safety_identifier",
    "service_tier",
    "temperature",
    "top_p",
    "user",
)
"""Keys of a caller's configuration that go into a request of either API as they are."""


class Losses:
    """What of a request the API cannot say, each loss once."""

    def __init__(self) -> None:
        self._noted: dict[Loss, None] = {}

    def note(self, feature: Feature, how: str) -> None:
        self._noted[Loss(feature=feature, how=how)] = None

    def __iter__(self) -> Iterator[Loss]:
        return iter(self._noted)


def own_of(part: Part) -> Mapping[str, Any]:
    """What only this protocol knows of a part."""
    return part.extra.get("openai") or {}


def encode_call(call_id: str, part: ToolCallPart) -> JsonObject:
    """SPEC/chat/chat_completion_message_function_tool_call.py, or …_custom_tool_call.py, with what the server that made
    it said beside it."""
    own, kind = own_of(part), "custom" if call_kind(part) == "custom" else "function"
    inner: JsonObject = {"input": part.arguments} if kind == "custom" else {"arguments": part.arguments or "{}"}
    called = {**own.get("inner", {}), "name": part.name, **inner}
    return {**own.get("own", {}), "id": call_id, "type": kind, kind: called}


def call_kind(part: Part) -> str:
    """`function`, `custom`, or `mcp_approval_request`: three things that a model asks its caller for."""
    return str(own_of(part).get("type", "function"))


# Messages


def encode_content(
    parts: Iterable[Part],
    losses: Losses,
    file: Callable[[FilePart, Losses], JsonObject | None],
    text_type: str,
    *,
    as_parts: bool = False,
) -> str | list[JsonObject]:
    """The content of a user's or the system's message: text alone as text, which every server takes, unless the caller
    gave it in parts."""
    found: list[JsonObject] = []
    for part in parts:
        made = file(part, losses) if isinstance(part, FilePart) else None
        if made is not None:
            found.append(made)
        elif text := shown_text(part, losses):
            found.append({**own_of(part).get("own", {}), "type": text_type, "text": text})
    if not as_parts and all(each["type"] == text_type for each in found):
        return "".join(cast("str", each["text"]) for each in found)
    return found


def shown_text(part: Part, losses: Losses) -> str:
    """A part in words; nothing of what is no part of the conversation."""
    match part:
        case TextPart() | RefusalPart():
            return part.text
        case DataPart():
            return text_of_json(part.data)
        case FilePart():
            losses.note(Feature.FILE_BYTES, "named in the text, not sent")
            return f"[file: {part.name or part.url or part.media_type or 'unnamed'}]"
        case _:
            return ""


def text_of_json(value: Json) -> str:
    """What a model reads where JSON was said: text as it is."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def data_url(part: FilePart) -> str:
    media_type = part.media_type or "application/octet-stream"
    return f"data:{media_type};base64,{b64encode(part.inline or b'').decode()}"


def arguments_of(value: Json) -> str:
    """The arguments of a call as text, also from a server that gives the object itself."""
    if value is None:
        return ""
    return text_of_json(value)


def is_approved(value: Json) -> bool:
    """Whether an answer to "may this tool be called?" is a yes."""
    if isinstance(value, dict):
        value = next((value[key] for key in ("approve", "approved") if key in value), None)
    if isinstance(value, str):
        return value.strip().lower() in ("yes", "y", "true", "ok", "approve", "approved")
    return value is True


# What a caller configures


def object_in(config: JsonObject, name: str) -> JsonObject:
    """A member that is an object; an empty one where it is not."""
    found: object = config.get(name)
    return cast("JsonObject", found) if isinstance(found, dict) else {}


def pick_members(config: JsonObject, names: Iterable[str]) -> JsonObject:
    return {name: config[name] for name in names if config.get(name) is not None}


def declared_objects(config: JsonObject) -> list[JsonObject]:
    """The caller's tools as they were written."""
    return [cast("JsonObject", tool) for tool in declared_tools(config) or () if isinstance(tool, dict)]


def tools_of(config: JsonObject) -> list[JsonObject]:
    """The caller's tools, whatever API they are written for: functions as `{"type": "function", name, parameters, …}`.

    A function of chat completions is not strict unless it says so; one of responses is.
    """
    tools: list[JsonObject] = []
    for found in declared_objects(config):
        kind = str(found.get("type", "function"))
        # Nested in SPEC/shared_params/function_definition.py (chat), flat in SPEC/responses/function_tool.py.
        if nested := object_in(found, kind):
            found = {"type": kind, **nested, **({"strict": bool(nested.get("strict"))} if kind == "function" else {})}
        tools.append({"type": kind, **found})
    return tools


def format_of(config: JsonObject, schema: JsonObject | None) -> JsonObject | None:
    """The form of the answer as responses write it: `{"type": "json_schema", name, schema, …}`. `schema` = what the
    agent always answers in, unless the caller wants something else."""
    form = object_in(config, "response_format") or object_in(object_in(config, "text"), "format")
    # Nested in SPEC/shared_params/response_format_json_schema.py (chat), flat in
    # SPEC/responses/response_format_text_json_schema_config.py.
    if nested := object_in(form, "json_schema"):
        return {"type": "json_schema", "name": "output", **nested}
    if isinstance(form.get("type"), str):
        return form
    return None if schema is None else {"type": "json_schema", "name": "output", "schema": schema}


def schema_of(config: JsonObject) -> JsonObject | None:
    """What the answer has to fit, by the caller's wish, which was looked at when it was uttered."""
    form = format_of(config, None) or {}
    if form.get("type") == "json_object":
        return {"type": "object"}
    return object_in(form, "schema") if form.get("type") == "json_schema" else None


# What came back


def output_of(text: str) -> Json:
    """Structured output from the text of an answer; None where it is no JSON after all: the text is said anyway."""
    value = parse_text(text)
    return None if value is ABSENT else value


def decode_usage(usage: JsonObject | None) -> JsonObject:
    """Tokens, in the words of the Responses API: SPEC/completion_usage.py → SPEC/responses/response_usage.py."""
    if not usage:
        return {}
    names = {
        "prompt_tokens": "input_tokens",
        "completion_tokens": "output_tokens",
        "prompt_tokens_details": "input_tokens_details",
        "completion_tokens_details": "output_tokens_details",
    }
    return {names.get(name, name): value for name, value in usage.items() if value is not None}


def encode_usage(usage: JsonObject) -> JsonObject:
    """The way back, for callers of chat completions. Zeros where nobody has counted: the official clients' users read
    the members without asking whether there are any."""
    told: JsonObject = {
        "prompt_tokens": _count(usage, "input_tokens", "prompt_tokens"),
        "completion_tokens": _count(usage, "output_tokens", "completion_tokens"),
    }
    told["total_tokens"] = _count(usage, "total_tokens") or told["prompt_tokens"] + told["completion_tokens"]
    for name, own in (
        ("prompt_tokens_details", "input_tokens_details"),
        ("completion_tokens_details", "output_tokens_details"),
    ):
        if details := object_in(usage, own):
            told[name] = details
    return told


def encode_response_usage(usage: JsonObject) -> JsonObject:
    """For callers of responses, as SPEC/responses/response_usage.py has it, where no member may be left out. Zeros
    where nobody has counted: Open Responses' clients expect the usage of a response that has ended."""
    given, output = _count(usage, "input_tokens", "prompt_tokens"), _count(usage, "output_tokens", "completion_tokens")
    details, thoughts = object_in(usage, "input_tokens_details"), object_in(usage, "output_tokens_details")
    return {
        "input_tokens": given,
        "input_tokens_details": {
            **details,
            "cached_tokens": _count(details, "cached_tokens"),
            "cache_write_tokens": _count(details, "cache_write_tokens"),
        },
        "output_tokens": output,
        "output_tokens_details": {**thoughts, "reasoning_tokens": _count(thoughts, "reasoning_tokens")},
        "total_tokens": _count(usage, "total_tokens") or given + output,
    }


def _count(usage: JsonObject, *names: str) -> int:
    found = (usage.get(name) for name in names)
    return next((count for count in found if isinstance(count, int) and not isinstance(count, bool) and count >= 0), 0)
