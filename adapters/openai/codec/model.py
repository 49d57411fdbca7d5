"""Conversions that both of OpenAI's APIs need: content parts, files, tools, output formats, and token counts."""

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
"""Keys of a run's configuration that requests of either API contain unchanged."""


class Losses:
    """Collector of the losses of one request to a model's server. Equal losses are stored once."""

    def __init__(self) -> None:
        self._noted: dict[Loss, None] = {}

    def note(self, feature: Feature, how: str) -> None:
        self._noted[Loss(feature=feature, how=how)] = None

    def __iter__(self) -> Iterator[Loss]:
        return iter(self._noted)


def openai_extra(part: Part) -> Mapping[str, Any]:
    """Return the members in a part's `extra` that only OpenAI's APIs have."""
    return part.extra.get("openai") or {}


def encode_call(call_id: str, part: ToolCallPart) -> JsonObject:
    """Return a canonical tool call as a tool call of chat completions, with the further members that its server had
    sent.

    See SPEC/chat/chat_completion_message_function_tool_call.py and …_custom_tool_call.py.
    """
    extra, kind = openai_extra(part), "custom" if call_kind(part) == "custom" else "function"
    payload: JsonObject = {"input": part.arguments} if kind == "custom" else {"arguments": part.arguments or "{}"}
    call = {**extra.get("inner", {}), "name": part.name, **payload}
    return {**extra.get("own", {}), "id": call_id, "type": kind, kind: call}


def call_kind(part: Part) -> str:
    """Return the kind of a canonical tool call: `function`, `custom`, or `mcp_approval_request`."""
    return str(openai_extra(part).get("type", "function"))


# Messages


def encode_content(
    parts: Iterable[Part],
    losses: Losses,
    file: Callable[[FilePart, Losses], JsonObject | None],
    text_type: str,
    *,
    as_parts: bool = False,
) -> str | list[JsonObject]:
    """Return the content of a user or system message for a model's server.

    Content that is only text is one string, which every server accepts. `file` encodes a file, or returns None to show
    only its name. `text_type` is the API's type of text parts. `as_parts`: always return a list.
    """
    content: list[JsonObject] = []
    for part in parts:
        encoded = file(part, losses) if isinstance(part, FilePart) else None
        if encoded is not None:
            content.append(encoded)
        elif text := shown_text(part, losses):
            content.append({**openai_extra(part).get("own", {}), "type": text_type, "text": text})
    if not as_parts and all(each["type"] == text_type for each in content):
        return "".join(cast("str", each["text"]) for each in content)
    return content


def shown_text(part: Part, losses: Losses) -> str:
    """Return a part as text for a model: JSON for data, the name for a file, which is noted in `losses`. Return "" for
    parts that are not shown, such as reasoning."""
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
    """Return JSON as text for a model. A string is returned unchanged."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def data_url(part: FilePart) -> str:
    """Return the inline bytes of a file as a `data:` URL in Base64."""
    media_type = part.media_type or "application/octet-stream"
    return f"data:{media_type};base64,{b64encode(part.inline or b'').decode()}"


def arguments_of(value: Json) -> str:
    """Return the arguments of a call as JSON text, even if the server sent an object instead of text."""
    if value is None:
        return ""
    return text_of_json(value)


def is_approved(value: Json) -> bool:
    """Return True if a caller's answer to a request for approval is positive: true, a word such as `yes`, or an object
    with `approve`."""
    if isinstance(value, dict):
        value = next((value[key] for key in ("approve", "approved") if key in value), None)
    if isinstance(value, str):
        return value.strip().lower() in ("yes", "y", "true", "ok", "approve", "approved")
    return value is True


# Configuration of a caller


def object_in(config: JsonObject, name: str) -> JsonObject:
    """Return the member `name` if it is an object, else an empty object."""
    value: object = config.get(name)
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def pick_members(config: JsonObject, names: Iterable[str]) -> JsonObject:
    """Return those members of `config` that have one of the names and are not None."""
    return {name: config[name] for name in names if config.get(name) is not None}


def declared_objects(config: JsonObject) -> list[JsonObject]:
    """Return the tools that the caller declared in the configuration, unchanged. Declarations that are no objects are
    left out."""
    return [cast("JsonObject", tool) for tool in declared_tools(config) or () if isinstance(tool, dict)]


def tools_of(config: JsonObject) -> list[JsonObject]:
    """Return the tools that the caller declared for either API, in the flat form `{"type": "function", name,
    parameters, …}` of responses.

    A function of chat completions is strict only if it says so; one of responses is strict by default.
    """
    tools: list[JsonObject] = []
    for tool in declared_objects(config):
        kind = str(tool.get("type", "function"))
        # Nested in SPEC/shared_params/function_definition.py (chat), flat in SPEC/responses/function_tool.py.
        if nested := object_in(tool, kind):
            tool = {"type": kind, **nested, **({"strict": bool(nested.get("strict"))} if kind == "function" else {})}
        tools.append({"type": kind, **tool})
    return tools


def format_of(config: JsonObject, schema: JsonObject | None) -> JsonObject | None:
    """Return the output format that the caller requested, in the form of responses: `{"type": "json_schema", name,
    schema, …}`. Return None for plain text.

    `schema`: the agent's own output schema, used if the caller requests no format.
    """
    form = object_in(config, "response_format") or object_in(object_in(config, "text"), "format")
    # Nested in SPEC/shared_params/response_format_json_schema.py (chat), flat in
    # SPEC/responses/response_format_text_json_schema_config.py.
    if nested := object_in(form, "json_schema"):
        return {"type": "json_schema", "name": "output", **nested}
    if isinstance(form.get("type"), str):
        return form
    return None if schema is None else {"type": "json_schema", "name": "output", "schema": schema}


def schema_of(config: JsonObject) -> JsonObject | None:
    """Return the JSON Schema that the caller requested for the answer, or None for plain text. It was validated with
    the request."""
    form = format_of(config, None) or {}
    if form.get("type") == "json_object":
        return {"type": "object"}
    return object_in(form, "schema") if form.get("type") == "json_schema" else None


# Output and usage


def output_of(text: str) -> Json:
    """Return a text parsed as JSON, or None if it is not JSON. Used for the structured output of an answer."""
    value = parse_text(text)
    return None if value is ABSENT else value


def decode_usage(usage: JsonObject | None) -> JsonObject:
    """Return token counts of either API under the names of the Responses API (SPEC/completion_usage.py →
    SPEC/responses/response_usage.py). Return {} if the server reports none."""
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
    """Return token counts under the names of chat completions.

    Missing counts are 0, because users of the official clients read the members without checking for None.
    """
    encoded: JsonObject = {
        "prompt_tokens": _count(usage, "input_tokens", "prompt_tokens"),
        "completion_tokens": _count(usage, "output_tokens", "completion_tokens"),
    }
    encoded["total_tokens"] = _count(usage, "total_tokens") or encoded["prompt_tokens"] + encoded["completion_tokens"]
    for name, source in (
        ("prompt_tokens_details", "input_tokens_details"),
        ("completion_tokens_details", "output_tokens_details"),
    ):
        if details := object_in(usage, source):
            encoded[name] = details
    return encoded


def encode_response_usage(usage: JsonObject) -> JsonObject:
    """Return token counts for callers of responses, with every member that SPEC/responses/response_usage.py requires.

    Missing counts are 0, because clients of Open Responses expect the usage of a response that has ended.
    """
    input_tokens, output_tokens = (
        _count(usage, "input_tokens", "prompt_tokens"),
        _count(usage, "output_tokens", "completion_tokens"),
    )
    input_details, output_details = object_in(usage, "input_tokens_details"), object_in(usage, "output_tokens_details")
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {
            **input_details,
            "cached_tokens": _count(input_details, "cached_tokens"),
            "cache_write_tokens": _count(input_details, "cache_write_tokens"),
        },
        "output_tokens": output_tokens,
        "output_tokens_details": {**output_details, "reasoning_tokens": _count(output_details, "reasoning_tokens")},
        "total_tokens": _count(usage, "total_tokens") or input_tokens + output_tokens,
    }


def _count(usage: JsonObject, *names: str) -> int:
    """Return the first of these members that is an integer of 0 or more, or 0 if there is none."""
    counts = (usage.get(name) for name in names)
    return next((count for count in counts if isinstance(count, int) and not isinstance(count, bool) and count >= 0), 0)
