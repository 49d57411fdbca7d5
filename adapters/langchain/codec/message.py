"""Conversion between LangChain messages and canonical messages. Decodes every form that LangChain accepts as a message,
and encodes LangChain's own dicts."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from babelgate.adapters.kit.json import json_text
from babelgate.adapters.langchain.codec.content import (
    REASONING_CONTENT,
    arguments_text,
    decode_arguments,
    decode_content,
    encode_content,
    extra_of,
    is_plain,
)
from babelgate.canonical import FaultCode, FaultError, Message, Part, ReasoningPart, ToolCallPart, ToolResultPart
from babelgate.canonical.json import as_object
from babelgate.canonical.message import Role
from babelgate.canonical.value import Json, JsonObject

ROLES: Final[Mapping[str, Role]] = {
    "user": "user",
    "human": "user",
    "HumanMessage": "user",
    "HumanMessageChunk": "user",
    "assistant": "agent",
    "ai": "agent",
    "agent": "agent",
    "AIMessage": "agent",
    "AIMessageChunk": "agent",
    "system": "system",
    "developer": "system",
    "SystemMessage": "system",
    "SystemMessageChunk": "system",
    "tool": "tool",
    "function": "tool",
    "ToolMessage": "tool",
    "ToolMessageChunk": "tool",
    "FunctionMessage": "tool",
    "FunctionMessageChunk": "tool",
}
"""Canonical role by the role or type of a message. langchain-core 1.7.2 (messages/utils.py): the words of
`_create_message_from_message_type`, and the classes that it serializes (`_LC_CONSTRUCTOR_NAME_TO_TYPE`). It does not
accept `agent`."""
TYPES: Final[Mapping[Role, str]] = {"user": "human", "agent": "ai", "system": "system", "tool": "tool"}
"""LangChain's type of a message, by canonical role."""
_FUNCTIONS: Final = frozenset({"function", "FunctionMessage", "FunctionMessageChunk"})
"""Roles and types of function messages, a legacy form of tool messages."""
_REMOVES: Final = frozenset({"remove", "RemoveMessage"})
"""Roles and types of a remove message, which deletes an earlier message from the state."""

_KNOWN: Final = frozenset({"role", "type", "content", "id", "name", "tool_calls", "invalid_tool_calls", "metadata"})
"""Fields of a message that are decoded to canonical fields. All others are stored in `extra`."""
_KNOWN_OF_TOOL: Final = _KNOWN | {"tool_call_id", "status"}
"""Fields of a tool message that are decoded to canonical fields."""
_DEFAULTS: Final = frozenset(
    {"additional_kwargs", "response_metadata", "usage_metadata", "artifact", "example", "tool_call_chunks"}
    | {"chunk_position"}
)
"""Fields that every serialized message has. They are dropped if their value is empty."""


# Decoding


def is_message(value: Json) -> bool:
    """Return True if a value has the form of a message: a string, a pair of role and content, or an object. Other items
    of a list are data."""
    if isinstance(value, str):
        return True
    if isinstance(value, list):
        return len(value) == 2 and isinstance(value[0], str) and value[0] in ROLES and isinstance(value[1], str | list)
    if not isinstance(value, dict):
        return False
    value = _unwrap_envelope(value)
    role = role_of(value)
    return role in _REMOVES or (role in ROLES and "content" in value)


def role_of(wire: JsonObject) -> str:
    """Return the role of a message, else its type, else an empty string."""
    role: Any = wire.get("role", wire.get("type"))
    return role if isinstance(role, str) else ""


def _unwrap_envelope(wire: JsonObject) -> JsonObject:
    """Return the message inside an envelope, as an object with `type` and `content`. An envelope is LangChain's
    serialized form (`lc`), or that of its message histories (`data`). Other messages are returned unchanged."""
    # langchain-core 1.7.2: `_convert_to_message` (messages/utils.py), and `message_to_dict` (messages/base.py).
    kwargs, path = wire.get("kwargs"), wire.get("id")
    if wire.get("lc") == 1 and isinstance(kwargs, dict) and isinstance(path, list) and path:
        return {"type": path[-1], **kwargs}
    data = wire.get("data")
    if "content" not in wire and isinstance(data, dict) and "content" in data:
        return {"type": wire.get("type"), **data}
    return wire


def removed_id(value: Json) -> str | None:
    """Return the id in a remove message, which is that of the message to delete. Return None for any other message.
    Raises invalid for a remove message without an id."""
    if not isinstance(value, dict):
        return None
    wire = _unwrap_envelope(value)
    if role_of(wire) not in _REMOVES:
        return None
    if not isinstance(wire.get("id"), str):
        raise FaultError(FaultCode.INVALID, "A remove message names the id of the message that it removes.")
    return wire["id"]


def decode_messages(value: Json) -> tuple[Message, ...]:
    """Decode one message or a list of messages; None is an empty list. Raises invalid for a malformed message."""
    if value is None:
        return ()
    return tuple(decode_message(each) for each in (value if isinstance(value, list) else [value]))


def decode_message(wire: Json) -> Message:
    """Decode a message in any form that `convert_to_messages` (langchain-core 1.7.2, messages/utils.py) accepts. Raises
    invalid for any other form."""
    if isinstance(wire, str):
        return Message(role="user", parts=tuple(decode_content(wire)))
    if isinstance(wire, list):
        if len(wire) != 2 or not isinstance(wire[0], str):
            raise FaultError(FaultCode.INVALID, "A message that is a list is a role and a content.")
        return _decode({"role": wire[0], "content": wire[1]})
    if not isinstance(wire, dict):
        raise FaultError(FaultCode.INVALID, "A message is an object, a pair of role and content, or a string.")
    return _decode(_unwrap_envelope(wire))


def _decode(wire: JsonObject) -> Message:
    wire_role = role_of(wire)
    if wire_role in _REMOVES:
        raise FaultError(FaultCode.INVALID, "A remove message is allowed only in an update of the state.")
    role = ROLES.get(wire_role)
    if role is None:
        accepted = "user, human, assistant, ai, system, developer, tool, function"
        raise FaultError(FaultCode.INVALID, f"A message needs a role or type, one of {accepted}.")
    if "content" not in wire and not wire.get("tool_calls"):
        raise FaultError(FaultCode.INVALID, "A message needs a content.")
    extra = _unknown_members(wire, _KNOWN_OF_TOOL if role == "tool" else _KNOWN)
    parts: tuple[Part, ...]
    if role == "tool":
        parts = (_decode_result(wire, wire_role),)
        if wire_role in _FUNCTIONS:
            extra["type"] = "function"
    else:
        calls = _decode_calls(wire, extra) if role == "agent" else []
        content = decode_content(wire.get("content"), (call.call_id for call in calls))
        if isinstance(wire.get("content"), list) and _needs_mark(content):
            extra["content"] = "blocks"
        parts = (*content, *calls)
    if wire_role == "developer":
        # langchain-core 1.7.2 marks it the same way (messages/utils.py, `_create_message_from_message_type`).
        extra["additional_kwargs"] = {**as_object(extra.get("additional_kwargs")), "__openai_role__": "developer"}
    metadata = {**as_object(extra.pop("response_metadata", None)), **as_object(wire.get("metadata"))}
    return Message(
        message_id=_identifier(wire.get("id"), "id"),
        role=role,
        name=_identifier(wire.get("name"), "name"),
        parts=parts,
        metadata=metadata,
        extra={"langchain": extra} if extra else {},
    )


def _unknown_members(wire: JsonObject, mapped: frozenset[str]) -> JsonObject:
    """Return the members of a message that are not in `mapped`, for its `extra`. Standard members with an empty value
    are left out."""
    extra: JsonObject = {}
    for key, value in wire.items():
        if key in mapped or (key in _DEFAULTS and (value is None or value is False or value == {} or value == [])):
            continue
        extra[key] = value
    return extra


def _needs_mark(parts: Sequence[Part]) -> bool:
    """Return True if the parts come from a list of blocks that `encode_content` would merge into a string or fewer
    blocks. `extra` then records that the content was a list."""
    plain = [is_plain(part) for part in parts]
    return all(plain) or any(a and b for a, b in pairwise(plain))


def _identifier(value: Any, what: str) -> str | None:
    """Return a message's id or name as a string, or None if it is missing or empty. `what` names it in the error.
    Raises invalid if it is neither a string nor an integer."""
    if value is None or value == "":
        return None
    # langchain-core 1.7.2 takes numbers (messages/base.py, `coerce_numbers_to_str`).
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or "\0" in value:
        raise FaultError(FaultCode.INVALID, f"The {what} of a message is a string.")
    return value


def _decode_calls(wire: JsonObject, extra: JsonObject) -> list[ToolCallPart]:
    # Older messages of langchain-core have OpenAI's tool calls there (1.7.2, messages/ai.py,
    # `_backwards_compat_tool_calls`).
    valid: Any = wire.get("tool_calls") or as_object(extra.get("additional_kwargs")).get("tool_calls") or []
    invalid: Any = wire.get("invalid_tool_calls") or []
    if not isinstance(valid, list) or not isinstance(invalid, list):
        raise FaultError(FaultCode.INVALID, "The tool calls of a message are a list.")
    calls: list[Any] = [*valid, *invalid]
    return [_decode_call(call) for call in calls]


def _decode_call(call: Json) -> ToolCallPart:
    """Decode a tool call in LangChain's form or OpenAI's. langchain-core 1.7.2 accepts both (messages/utils.py). Raises
    invalid for any other form."""
    wire = as_object(call)
    function = as_object(wire.get("function"))
    name = function.get("name") if function else wire.get("name")
    arguments = function.get("arguments") if function else wire.get("args")
    call_id = wire.get("id")
    if not isinstance(name, str | None) or not isinstance(call_id, str | None) or not wire:
        raise FaultError(FaultCode.INVALID, "A tool call is an object with a name, args and an id.")
    return ToolCallPart(call_id=call_id or "", name=name or "", arguments=arguments_text(arguments))


def _decode_result(wire: JsonObject, wire_role: str) -> ToolResultPart:
    call_id = wire.get("tool_call_id")
    if wire_role in _FUNCTIONS:
        call_id = call_id or ""
    if not isinstance(call_id, str):
        raise FaultError(FaultCode.INVALID, "A tool message needs a tool_call_id.")
    return ToolResultPart(call_id=call_id, output=wire.get("content"), error=wire.get("status") == "error")


# Encoding


def encode_message(message: Message) -> JsonObject:
    """Return a message as the object that LangChain serializes it to, with `type` and `content`."""
    extra = extra_of(message.extra)
    wire: JsonObject = {
        "content": encode_content_of(message),
        "additional_kwargs": as_object(extra.get("additional_kwargs")),
        "response_metadata": message.metadata,
        "type": TYPES[message.role],
        "name": message.name,
        "id": message.message_id,
    }
    if message.role == "agent":
        wire["tool_calls"], wire["invalid_tool_calls"] = encode_calls(message.parts)
        wire["usage_metadata"] = extra.get("usage_metadata")
    elif extra.get("type") == "function" and message.role == "tool":
        wire["type"] = "function"
    elif message.role == "tool":
        result = _result(message)
        wire["tool_call_id"] = "" if result is None else result.call_id
        wire["artifact"] = extra.get("artifact")
        wire["status"] = "error" if result is not None and result.error else "success"
    return {**wire, **{key: value for key, value in unknown_fields(message).items() if key not in wire}}


_AGENT_PROTOCOL_ROLES: Final[Mapping[Role, str]] = {
    "user": "user",
    "agent": "assistant",
    "system": "system",
    "tool": "tool",
}
"""Role of a message in the Agent Protocol, by canonical role."""


def encode_agent_protocol_message(message: Message) -> JsonObject:
    """Return a message in the Agent Protocol's form (OpenAPI 0.1.6, components.schemas.Message), which has a `role`.
    Members that this schema does not define are added, such as `name`."""
    wire: JsonObject = {
        "role": _AGENT_PROTOCOL_ROLES[message.role],
        "content": encode_content_of(message),
        "id": message.message_id or "",
        "metadata": message.metadata,
    }
    if message.name is not None:
        wire["name"] = message.name
    if message.role == "tool" and (result := _result(message)) is not None:
        wire["tool_call_id"] = result.call_id
        wire["status"] = "error" if result.error else "success"
    elif message.role == "agent":
        calls, invalid = encode_calls(message.parts)
        wire.update({"tool_calls": calls} if calls else {}, **({"invalid_tool_calls": invalid} if invalid else {}))
    return {**wire, **{key: value for key, value in unknown_fields(message).items() if key not in wire}}


def encode_request(messages: Sequence[Message], encode: Callable[[Message], JsonObject]) -> list[JsonObject]:
    """Return the input messages of a run, each encoded by `encode`, for the description of the run. Marks that report a
    file as too large are removed, because the thread's state has the same message with the mark."""
    wire = [encode(message) for message in messages]
    return [{**message, "content": _without_losses(message["content"])} for message in wire]


def _without_losses(content: Json) -> Json:
    return list(map(_without_loss, content)) if isinstance(content, list) else content


def _without_loss(block: Json) -> Json:
    """Return a content block without the member `babelgate` of its `extras`, which reports a loss."""
    extras = as_object(as_object(block).get("extras"))
    if "babelgate" not in extras:
        return block
    rest = {key: value for key, value in extras.items() if key != "babelgate"}
    members = {key: value for key, value in as_object(block).items() if key != "extras"}
    return {**members, "extras": rest} if rest else members


def unknown_fields(message: Message) -> JsonObject:
    """Return the members of a peer's message that the canonical model and LangChain do not define, unchanged."""
    extra = extra_of(message.extra)
    return {key: value for key, value in extra.items() if key not in _KNOWN and key not in _DEFAULTS}


def encode_content_of(message: Message) -> Any:
    """Return the content of a message in LangChain's form: a string, or a list of content blocks."""
    parts = message.parts
    if message.role == "tool" and len(parts) == 1 and isinstance(parts[0], ToolResultPart):
        return _encode_output(parts[0].output)
    blocks = extra_of(message.extra).get("content") == "blocks"
    return encode_content([part for part in _without_calls(parts) if not _is_in_additional_kwargs(part)], blocks=blocks)


def _without_calls(parts: Sequence[Part]) -> list[Part]:
    """Return the parts without tool calls, except calls whose result is in the same message: those are part of the
    content."""
    answered = {part.call_id for part in parts if isinstance(part, ToolResultPart)}
    return [part for part in parts if not isinstance(part, ToolCallPart) or part.call_id in answered]


def _is_in_additional_kwargs(part: Part) -> bool:
    """Return True if the part is encoded in `additional_kwargs` and not in the content."""
    return isinstance(part, ReasoningPart) and extra_of(part.extra).get("type") == REASONING_CONTENT


def _encode_output(output: Json) -> Any:
    """Return the result of a tool as the content of its message. Strings and lists of blocks are returned unchanged,
    None becomes an empty string, and other values become JSON text."""
    if output is None or isinstance(output, str):
        return output or ""
    if isinstance(output, list) and all(isinstance(item, str) or "type" in as_object(item) for item in output):
        return output
    return json_text(output)


def _result(message: Message) -> ToolResultPart | None:
    return next((part for part in message.parts if isinstance(part, ToolResultPart)), None)


def encode_calls(parts: Sequence[Part]) -> tuple[list[JsonObject], list[JsonObject]]:
    """Return two lists for a message: `tool_calls`, and `invalid_tool_calls` with the calls whose arguments are not a
    JSON object. Calls whose result is in the same message are left out."""
    answered = {part.call_id for part in parts if isinstance(part, ToolResultPart)}
    calls: list[JsonObject] = []
    invalid: list[JsonObject] = []
    for part in parts:
        if not isinstance(part, ToolCallPart) or part.call_id in answered:
            continue
        args, call_id = decode_arguments(part.arguments), part.call_id or None
        if args is None:
            invalid.append(
                {"name": part.name, "args": part.arguments, "id": call_id, "error": None, "type": "invalid_tool_call"}
            )
        else:
            calls.append({"name": part.name, "args": args, "id": call_id, "type": "tool_call"})
    return calls, invalid


def encode_usage(usage: JsonObject) -> JsonObject | None:
    """Return `usage_metadata` from counts of tokens, or None for an empty usage. `input_tokens`, `output_tokens` and
    `total_tokens` are always present (langchain-core 1.7.2, messages/ai.py, UsageMetadata)."""
    if not usage:
        return None
    counts = {key: usage.get(key, 0) for key in ("input_tokens", "output_tokens")}
    numbers = [count for count in counts.values() if isinstance(count, int)]
    return {**usage, **counts, "total_tokens": usage.get("total_tokens", sum(numbers))}
