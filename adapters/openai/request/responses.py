"""Conversion of a conversation, or of its new messages, to a request of the Responses API."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from babelgate.adapters.kit.client.transcript import Results
from babelgate.adapters.openai.codec.model import (
    BOTH,
    Losses,
    call_kind,
    data_url,
    declared_objects,
    encode_content,
    format_of,
    is_approved,
    object_in,
    openai_extra,
    pick_members,
    shown_text,
    text_of_json,
    tools_of,
)
from babelgate.canonical import FilePart, Message, ToolCallPart, ToolResultPart
from babelgate.canonical.value import JsonObject

_PASSED: Final = (
    *BOTH,
    "context_management",
    "include",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "prompt",
    "reasoning",
    "truncation",
)


def encode_response(
    model: str,
    items: Sequence[JsonObject],
    config: JsonObject,
    schema: JsonObject | None,
    previous: str | None = None,
    *,
    same: bool = False,
) -> JsonObject:
    """Return the JSON body of a streamed POST /responses.

    `config` is the caller's configuration. `schema`: the agent's output schema, used if `config` requests no format.
    `previous`: id of the response to continue, or None. `same`: the caller used this API, too, so `config` is sent
    unchanged.
    """
    if same:
        return _encode_same(model, items, config, schema, previous)
    body: JsonObject = {
        "model": model,
        "input": list(items),
        "stream": True,
        # A later request can continue only a stored response (SPEC/responses/response_create_params.py,
        # previous_response_id).
        "store": True,
        **pick_members(config, _PASSED),
    }
    if previous is not None:
        # Instructions do not carry over, and are sent each time (SPEC/responses/response_create_params.py,
        # instructions).
        body["previous_response_id"] = previous
    # The names in chat completions (max_tokens is the older one), for callers that configure in terms of that API.
    for name in ("max_completion_tokens", "max_tokens"):
        if config.get(name) is not None:
            body.setdefault("max_output_tokens", config[name])
    if config.get("reasoning_effort") is not None:
        body.setdefault("reasoning", {"effort": config["reasoning_effort"]})
    if tools := tools_of(config):
        body["tools"] = tools
        if (choice := _encode_choice(config)) is not None:
            body["tool_choice"] = choice
    text: JsonObject = {}
    if (form := format_of(config, schema)) is not None:
        text["format"] = form
    for holder in (object_in(config, "text"), config):
        if holder.get("verbosity") is not None:
            text["verbosity"] = holder["verbosity"]
    if text:
        body["text"] = text
    return body


def _encode_same(
    model: str, items: Sequence[JsonObject], config: JsonObject, schema: JsonObject | None, previous: str | None
) -> JsonObject:
    body: JsonObject = {**config, "model": model, "input": list(items), "stream": True, "store": True}
    if previous is not None:
        body["previous_response_id"] = previous
    if "tools" in config:
        # Tools that came by the extension may be written for the other API.
        pairs = zip(declared_objects(config), tools_of(config), strict=True)
        body["tools"] = [tool if tool["type"] in declared else declared for declared, tool in pairs]
    if (form := format_of(config, schema)) is not None and "format" not in object_in(config, "text"):
        body["text"] = {**object_in(config, "text"), "format": form}
    return body


def _encode_choice(config: JsonObject) -> object:
    choice = object_in(config, "tool_choice")
    kind = choice.get("type")
    if kind in ("function", "custom") and (nested := object_in(choice, kind)):
        return {"type": kind, "name": nested.get("name")}
    return config.get("tool_choice")


def encode_results(results: Results) -> list[JsonObject]:
    """Return the results of calls as input items without the calls, for a server that has stored the calls."""
    return [_encode_result(call, result) for call, result in results]


def encode_items(messages: Iterable[Message], losses: Losses) -> Iterator[JsonObject]:
    """Yield messages as input items. A message that was decoded from an item of this API, and stored it in `extra`,
    yields that item."""
    calls: dict[str, ToolCallPart] = {}
    for message in messages:
        extra: JsonObject = message.extra.get("openai") or {}
        if item := object_in(extra, "item"):
            yield item
            continue
        match message.role:
            case "tool":
                for part in message.parts:
                    if isinstance(part, ToolResultPart) and part.call_id in calls:
                        yield _encode_result(calls[part.call_id], part)
            case "agent":
                if text := "".join(shown_text(part, losses) for part in message.parts):
                    # SPEC/responses/easy_input_message_param.py: as a string, because `output_text` parts require the
                    # id of the original item.
                    yield {**extra.get("own", {}), "role": "assistant", "content": text}
                for part in message.parts:
                    if isinstance(part, ToolCallPart):
                        calls[part.call_id] = part
                        yield _encode_call(part)
            case role:
                content = encode_content(
                    message.parts, losses, _encode_file, "input_text", as_parts=extra.get("parts") is True
                )
                role = "developer" if extra.get("role") == "developer" else role
                yield {**extra.get("own", {}), "role": role, "content": content}


def _encode_call(part: ToolCallPart) -> JsonObject:
    return {**openai_extra(part).get("item", {}), **_call_of(part)}


def _call_of(part: ToolCallPart) -> JsonObject:
    match call_kind(part):
        case "custom":
            return {"type": "custom_tool_call", "call_id": part.call_id, "name": part.name, "input": part.arguments}
        case "mcp_approval_request":
            extra = part.extra["openai"]
            members: JsonObject = {"type": "mcp_approval_request", "id": part.call_id, "name": part.name}
            return {**members, "arguments": part.arguments, "server_label": extra.get("server_label") or ""}
        case _:
            arguments = part.arguments or "{}"
            return {"type": "function_call", "call_id": part.call_id, "name": part.name, "arguments": arguments}


def _encode_result(call: ToolCallPart, result: ToolResultPart) -> JsonObject:
    kind = call_kind(call)
    if kind == "mcp_approval_request":
        yes = not result.error and is_approved(result.output)
        # SPEC/responses/response_input_item_param.py, McpApprovalResponse.
        return {"type": "mcp_approval_response", "approval_request_id": call.call_id, "approve": yes}
    name = "custom_tool_call_output" if kind == "custom" else "function_call_output"
    others = openai_extra(result).get("item", {})
    return {"output": text_of_json(result.output), **others, "type": name, "call_id": call.call_id}


def _encode_file(part: FilePart, losses: Losses) -> JsonObject | None:
    """Return an image or a file as a content part, with its bytes or its URL. Return None if it has neither."""
    others = openai_extra(part).get("own", {})
    if (part.media_type or "").startswith("image/") and (part.inline is not None or part.url is not None):
        url = part.url if part.inline is None else data_url(part)
        # `detail` is required here (SPEC/responses/response_input_image_param.py), and not in chat.
        return {"detail": "auto", **others, "type": "input_image", "image_url": url}
    if part.inline is not None:
        return {**others, "type": "input_file", "filename": part.name or "file", "file_data": data_url(part)}
    if part.url is not None:
        return {**others, "type": "input_file", "file_url": part.url}
    return None
