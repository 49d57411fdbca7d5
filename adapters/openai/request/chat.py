"""Conversion of a conversation to a request of chat completions. The API is stateless, so each request contains the
whole conversation."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from babelgate.adapters.openai.codec.model import (
    BOTH,
    Losses,
    data_url,
    declared_objects,
    encode_call,
    encode_content,
    format_of,
    object_in,
    openai_extra,
    pick_members,
    shown_text,
    text_of_json,
    tools_of,
)
from babelgate.canonical import (
    Feature,
    FilePart,
    Message,
    Part,
    ReasoningPart,
    RefusalPart,
    ToolCallPart,
    ToolResultPart,
)
from babelgate.canonical.value import JsonObject

_PASSED: Final = (
    *BOTH,
    "frequency_penalty",
    "logit_bias",
    "max_completion_tokens",
    "max_tokens",
    "prediction",
    "presence_penalty",
    "reasoning_effort",
    "seed",
    "stop",
    "verbosity",
    "web_search_options",
)
_AUDIO: Final[Mapping[str, str]] = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
}


def encode_chat(
    model: str,
    messages: Sequence[Message],
    config: JsonObject,
    schema: JsonObject | None,
    losses: Losses,
    *,
    same: bool = False,
) -> JsonObject:
    """Return the JSON body of a streamed POST /chat/completions.

    `config` is the caller's configuration. `schema`: the agent's output schema, used if `config` requests no format.
    `same`: the caller used this API, too, so `config` is sent unchanged.
    """
    encoded = list(encode_messages(messages, losses))
    if same:
        return _encode_same(model, encoded, config, schema, losses)
    if isinstance(config.get("instructions"), str):
        encoded.insert(0, {"role": "system", "content": config["instructions"]})
    body: JsonObject = {
        "model": model,
        "messages": encoded,
        "stream": True,
        # Without this option a stream has no usage (SPEC/chat/chat_completion_stream_options_param.py).
        "stream_options": {"include_usage": True},
        **pick_members(config, _PASSED),
    }
    if "max_output_tokens" in config and not body.keys() & {"max_tokens", "max_completion_tokens"}:
        # `max_tokens` is deprecated, and o-series models refuse it (SPEC/chat/completion_create_params.py).
        body["max_completion_tokens"] = config["max_output_tokens"]
    if (effort := object_in(config, "reasoning").get("effort")) is not None:
        body.setdefault("reasoning_effort", effort)
    if (verbosity := object_in(config, "text").get("verbosity")) is not None:
        body.setdefault("verbosity", verbosity)
    if tools := list(_encode_tools(config, losses)):
        body["tools"] = tools
        if (choice := _encode_choice(config)) is not None:
            body["tool_choice"] = choice
    if (form := format_of(config, schema)) is not None:
        body["response_format"] = _encode_format(form)
    return body


def _encode_same(
    model: str, encoded: list[JsonObject], config: JsonObject, schema: JsonObject | None, losses: Losses
) -> JsonObject:
    body: JsonObject = {**config, "model": model, "messages": encoded, "stream": True}
    body["stream_options"] = {"include_usage": True}
    if "tools" in config:
        body["tools"] = list(_encode_tools(config, losses, same=True))
    if "response_format" not in config and schema is not None and (form := format_of({}, schema)) is not None:
        body["response_format"] = _encode_format(form)
    return body


def _encode_tools(config: JsonObject, losses: Losses, *, same: bool = False) -> Iterator[JsonObject]:
    for declared, tool in zip(declared_objects(config), tools_of(config), strict=True):
        kind = tool["type"]
        if same and (kind in declared or kind not in ("function", "custom")):
            yield declared
            continue
        if kind not in ("function", "custom"):
            losses.note(Feature.CALLER_TOOLS, "chat completions accept only functions")
            continue
        # SPEC/chat/chat_completion_function_tool_param.py and …/chat_completion_custom_tool_param.py nest the members
        # under the type.
        yield {"type": kind, kind: {key: value for key, value in tool.items() if key != "type"}}


def _encode_choice(config: JsonObject) -> object:
    choice = object_in(config, "tool_choice")
    kind = choice.get("type")
    if "name" in choice and kind in ("function", "custom"):
        # SPEC/chat/chat_completion_named_tool_choice_param.py nests the name; the Responses API does not.
        return {"type": kind, kind: {"name": choice["name"]}}
    return config.get("tool_choice")


def _encode_format(form: JsonObject) -> JsonObject:
    if form.get("type") != "json_schema":
        return form
    return {"type": "json_schema", "json_schema": {key: value for key, value in form.items() if key != "type"}}


def encode_messages(messages: Iterable[Message], losses: Losses) -> Iterator[JsonObject]:
    """Yield messages in the form of chat completions. Input items that only the Responses API has are left out and
    noted in `losses`."""
    for message in messages:
        if not message.parts and (item := object_in(message.extra.get("openai") or {}, "item")):
            losses.note(Feature.CUSTOM, f"an input item of the type {str(item.get('type'))[:40]}")
            continue
        match message.role:
            case "tool":
                for part in message.parts:
                    if isinstance(part, ToolResultPart):
                        encoded: JsonObject = {"role": "tool", "tool_call_id": part.call_id}
                        yield {**_unknown_members(message), **encoded, "content": text_of_json(part.output)}
            case "agent":
                encoded = _encode_agent(message, losses)
                if len(encoded) > 1:
                    yield encoded
            case role:
                extra: JsonObject = message.extra.get("openai") or {}
                content = encode_content(
                    message.parts, losses, _encode_file, "text", as_parts=extra.get("parts") is True
                )
                named = {"name": message.name} if message.name else {}
                role = "developer" if extra.get("role") == "developer" else role
                yield {**_unknown_members(message), "role": role, **named, "content": content}


def _unknown_members(message: Message) -> JsonObject:
    """Return the members of a message that this API does not define, as a caller of this API sent them."""
    extra: JsonObject = message.extra.get("openai") or {}
    return extra.get("own") or {}


def _encode_agent(message: Message, losses: Losses) -> JsonObject:
    others = _unknown_members(message)
    encoded: JsonObject = {**others, "role": "assistant", **({"name": message.name} if message.name and others else {})}
    text = "".join(
        shown_text(part, losses)
        for part in message.parts
        if not (isinstance(part, RefusalPart) and "refusal" in others)
    )
    calls = [encode_call(part.call_id, part) for part in message.parts if isinstance(part, ToolCallPart)]
    if text:
        encoded["content"] = text
    if calls:
        # "Required unless `tool_calls` or `function_call` is specified"
        # (SPEC/chat/chat_completion_assistant_message_param.py): null is legal for a message without content.
        encoded.setdefault("content", None)
        encoded["tool_calls"] = calls
        encoded |= _thoughts(message.parts)
    return encoded


def _thoughts(parts: Sequence[Part]) -> dict[str, str]:
    """Return the reasoning in the parts, by the name of the member in which the model's server had sent it, such as
    `reasoning_content`.

    Some reasoning models require it back in that member of the message with the call.
    """
    texts: dict[str, str] = {}
    for part in parts:
        if isinstance(part, ReasoningPart) and isinstance(name := openai_extra(part).get("field"), str):
            texts[name] = texts.get(name, "") + part.text
    return texts


def _encode_file(part: FilePart, losses: Losses) -> JsonObject | None:
    media_type, extra = part.media_type or "", openai_extra(part)
    others, inner = extra.get("own", {}), extra.get("inner", {})
    if media_type.startswith("image/") and (part.inline is not None or part.url is not None):
        url = part.url if part.inline is None else data_url(part)
        return {**others, "type": "image_url", "image_url": {**inner, "url": url}}
    if part.inline is None:
        return None
    if extra.get("type") == "file":  # a caller of this API sent it as a file
        named = {"filename": part.name} if part.name else {}
        return {**others, "type": "file", "file": {**inner, **named, "file_data": data_url(part)}}
    if media_type in _AUDIO:
        data = data_url(part).partition(",")[2]
        # Only wav and mp3, and no URL (SPEC/chat/chat_completion_content_part_input_audio_param.py).
        audio = {**inner, "data": data, "format": _AUDIO[media_type]}
        return {**others, "type": "input_audio", "input_audio": audio}
    if media_type.startswith("text/") or media_type == "application/json":
        losses.note(Feature.FILE_BYTES, "a text file is sent as text")
        return {"type": "text", "text": f"{part.name or 'file'}:\n{part.inline.decode(errors='replace')}\n"}
    return {"type": "file", "file": {"filename": part.name or "file", "file_data": data_url(part)}}
