"""LangChain messages ↔ canonical: everything that LangChain takes for a message, in, and its own dicts, out."""

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
"""langchain-core 1.7.2 (messages/utils.py): the words of `_create_message_from_message_type`, and the classes that it
serializes (`_LC_CONSTRUCTOR_NAME_TO_TYPE`). It does not take `agent`."""
TYPES: Final[Mapping[Role, str]] = {"user": "human", "agent": "ai", "system": "system", "tool": "tool"}
_FUNCTIONS: Final = frozenset({"function", "FunctionMessage", "FunctionMessageChunk"})
_REMOVES: Final = frozenset({"remove", "RemoveMessage"})

_KNOWN: Final = frozenset({"role", "type", "content", "id", "name", "tool_calls", "invalid_tool_calls", "metadata"})
_KNOWN_OF_TOOL: Final = _KNOWN | {"tool_call_id", "status"}
_DEFAULTS: Final = frozenset(
    {"additional_kwargs", "response_metadata", "usage_metadata", "artifact", "example", "tool_call_chunks"}
    | {"chunk_position"}
)
"""Fields that every dump has, and that say nothing where they are empty."""


# Decoding


def is_message(value: Json) -> bool:
    """Whether a member of a list would be taken for a message, and not for data."""
    if isinstance(value, str):
        return True
    if isinstance(value, list):
        return len(value) == 2 and isinstance(value[0], str) and value[0] in ROLES and isinstance(value[1], str | list)
    if not isinstance(value, dict):
        return False
    value = _unwrap_envelope(value)
    role = _role(value)
    return role in _REMOVES or (role in ROLES and "content" in value)


def _role(wire: JsonObject) -> str:
    role: Any = wire.get("role", wire.get("type"))
    return role if isinstance(role, str) else ""


def _unwrap_envelope(wire: JsonObject) -> JsonObject:
    """The message in an envelope: LangChain's serialized form, or that of its message histories."""
    # langchain-core 1.7.2: `_convert_to_message` (messages/utils.py), and `message_to_dict` (messages/base.py).
    kwargs, path = wire.get("kwargs"), wire.get("id")
    if wire.get("lc") == 1 and isinstance(kwargs, dict) and isinstance(path, list) and path:
        return {"type": path[-1], **kwargs}
    data = wire.get("data")
    if "content" not in wire and isinstance(data, dict) and "content" in data:
        return {"type": wire.get("type"), **data}
    return wire


def removed_id(value: Json) -> str | None:
    """The id in a message that takes an earlier one away. Raises invalid."""
    if not isinstance(value, dict):
        return None
    wire = _unwrap_envelope(value)
    if _role(wire) not in _REMOVES:
        return None
    if not isinstance(wire.get("id"), str):
        raise FaultError(FaultCode.INVALID, "A remove message names the id of the message that it removes.")
    return wire["id"]


def decode_messages(value: Json) -> tuple[Message, ...]:
    """A list of messages, or one. Raises invalid."""
    if value is None:
        return ()
    return tuple(decode_message(each) for each in (value if isinstance(value, list) else [value]))


def decode_message(wire: Json) -> Message:
    """Whatever `convert_to_messages` (langchain-core 1.7.2, messages/utils.py) takes for a message. Raises invalid."""
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
    said = _role(wire)
    if said in _REMOVES:
        raise FaultError(FaultCode.INVALID, "A remove message is taken by an update of the state, not here.")
    role = ROLES.get(said)
    if role is None:
        known = "user, human, assistant, ai, system, developer, tool, function"
        raise FaultError(FaultCode.INVALID, f"A message needs a role or type, one of {known}.")
    if "content" not in wire and not wire.get("tool_calls"):
        raise FaultError(FaultCode.INVALID, "A message needs a content.")
    own = _own(wire, _KNOWN_OF_TOOL if role == "tool" else _KNOWN)
    parts: tuple[Part, ...]
    if role == "tool":
        parts = (_decode_result(wire, said),)
        if said in _FUNCTIONS:
            own["type"] = "function"
    else:
        calls = _decode_calls(wire, own) if role == "agent" else []
        spoken = decode_content(wire.get("content"), (call.call_id for call in calls))
        if isinstance(wire.get("content"), list) and _needs_mark(spoken):
            own["content"] = "blocks"
        parts = (*spoken, *calls)
    if said == "developer":
        # As langchain-core 1.7.2 marks it (messages/utils.py, `_create_message_from_message_type`).
        own["additional_kwargs"] = {**as_object(own.get("additional_kwargs")), "__openai_role__": "developer"}
    metadata = {**as_object(own.pop("response_metadata", None)), **as_object(wire.get("metadata"))}
    return Message(
        message_id=_identifier(wire.get("id"), "id"),
        role=role,
        name=_identifier(wire.get("name"), "name"),
        parts=parts,
        metadata=metadata,
        extra={"langchain": own} if own else {},
    )


def _own(wire: JsonObject, known: frozenset[str]) -> JsonObject:
    own: JsonObject = {}
    for key, value in wire.items():
        if key in known or (key in _DEFAULTS and (value is None or value is False or value == {} or value == [])):
            continue
        own[key] = value
    return own


def _needs_mark(parts: Sequence[Part]) -> bool:
    """Of a list of blocks that would leave as a string, or as fewer blocks."""
    plain = [is_plain(part) for part in parts]
    return all(plain) or any(a and b for a, b in pairwise(plain))


def _identifier(value: Any, what: str) -> str | None:
    if value is None or value == "":
        return None
    # langchain-core 1.7.2 takes numbers (messages/base.py, `coerce_numbers_to_str`).
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or "\0" in value:
        raise FaultError(FaultCode.INVALID, f"The {what} of a message is a string.")
    return value


def _decode_calls(wire: JsonObject, own: JsonObject) -> list[ToolCallPart]:
    # Older messages of langchain-core have OpenAI's there (1.7.2, messages/ai.py, `_backwards_compat_tool_calls`).
    given: Any = wire.get("tool_calls") or as_object(own.get("additional_kwargs")).get("tool_calls") or []
    broken: Any = wire.get("invalid_tool_calls") or []
    if not isinstance(given, list) or not isinstance(broken, list):
        raise FaultError(FaultCode.INVALID, "The tool calls of a message are a list.")
    calls: list[Any] = [*given, *broken]
    return [_decode_call(call) for call in calls]


def _decode_call(call: Json) -> ToolCallPart:
    """LangChain's form, or OpenAI's, as langchain-core 1.7.2 takes either (messages/utils.py)."""
    wire = as_object(call)
    function = as_object(wire.get("function"))
    name = function.get("name") if function else wire.get("name")
    arguments = function.get("arguments") if function else wire.get("args")
    call_id = wire.get("id")
    if not isinstance(name, str | None) or not isinstance(call_id, str | None) or not wire:
        raise FaultError(FaultCode.INVALID, "A tool call is an object with a name, args and an id.")
    return ToolCallPart(call_id=call_id or "", name=name or "", arguments=arguments_text(arguments))


def _decode_result(wire: JsonObject, said: str) -> ToolResultPart:
    call_id = wire.get("tool_call_id")
    if said in _FUNCTIONS:
        call_id = call_id or ""
    if not isinstance(call_id, str):
        raise FaultError(FaultCode.INVALID, "A tool message needs a tool_call_id.")
    return ToolResultPart(call_id=call_id, output=wire.get("content"), error=wire.get("status") == "error")


# Encoding


def encode_message(message: Message) -> JsonObject:
    own = extra_of(message.extra)
    made: JsonObject = {
        "content": encode_content_of(message),
        "additional_kwargs": as_object(own.get("additional_kwargs")),
        "response_metadata": message.metadata,
        "type": TYPES[message.role],
        "name": message.name,
        "id": message.message_id,
    }
    if message.role == "agent":
        made["tool_calls"], made["invalid_tool_calls"] = encode_calls(message.parts)
        made["usage_metadata"] = own.get("usage_metadata")
    elif own.get("type") == "function" and message.role == "tool":
        made["type"] = "function"
    elif message.role == "tool":
        result = _result(message)
        made["tool_call_id"] = "" if result is None else result.call_id
        made["artifact"] = own.get("artifact")
        made["status"] = "error" if result is not None and result.error else "success"
    return {**made, **{key: value for key, value in unknown_fields(message).items() if key not in made}}


_SPEAKERS: Final[Mapping[Role, str]] = {"user": "user", "agent": "assistant", "system": "system", "tool": "tool"}


def encode_said(message: Message) -> JsonObject:
    """The Agent Protocol's own form (OpenAPI 0.1.6, components.schemas.Message): a role, and whatever else has no
    place in it as further members."""
    made: JsonObject = {
        "role": _SPEAKERS[message.role],
        "content": encode_content_of(message),
        "id": message.message_id or "",
        "metadata": message.metadata,
    }
    if message.name is not None:
        made["name"] = message.name
    if message.role == "tool" and (result := _result(message)) is not None:
        made["tool_call_id"] = result.call_id
        made["status"] = "error" if result.error else "success"
    elif message.role == "agent":
        calls, broken = encode_calls(message.parts)
        made.update({"tool_calls": calls} if calls else {}, **({"invalid_tool_calls": broken} if broken else {}))
    return {**made, **{key: value for key, value in unknown_fields(message).items() if key not in made}}


def encode_request(messages: Sequence[Message], encode: Callable[[Message], JsonObject]) -> list[JsonObject]:
    """What a run was asked, told again beside it. There its files are named by their hashes whatever their size: that
    is no loss, because the message is in the state."""
    made = [encode(message) for message in messages]
    return [{**message, "content": _without_losses(message["content"])} for message in made]


def _without_losses(content: Json) -> Json:
    return list(map(_without_loss, content)) if isinstance(content, list) else content


def _without_loss(block: Json) -> Json:
    extras = as_object(as_object(block).get("extras"))
    if "babelgate" not in extras:
        return block
    kept = {key: value for key, value in extras.items() if key != "babelgate"}
    own = {key: value for key, value in as_object(block).items() if key != "extras"}
    return {**own, "extras": kept} if kept else own


def unknown_fields(message: Message) -> JsonObject:
    """Verbatim, what a peer's message said beside all that has a place."""
    own = extra_of(message.extra)
    return {key: value for key, value in own.items() if key not in _KNOWN and key not in _DEFAULTS}


def encode_content_of(message: Message) -> Any:
    parts = message.parts
    if message.role == "tool" and len(parts) == 1 and isinstance(parts[0], ToolResultPart):
        return _encode_output(parts[0].output)
    blocks = extra_of(message.extra).get("content") == "blocks"
    return encode_content([part for part in _without_calls(parts) if not _is_beside(part)], blocks=blocks)


def _without_calls(parts: Sequence[Part]) -> list[Part]:
    """Calls whose result stands in the same message are part of what it says."""
    answered = {part.call_id for part in parts if isinstance(part, ToolResultPart)}
    return [part for part in parts if not isinstance(part, ToolCallPart) or part.call_id in answered]


def _is_beside(part: Part) -> bool:
    """It stands in `additional_kwargs`."""
    return isinstance(part, ReasoningPart) and extra_of(part.extra).get("type") == REASONING_CONTENT


def _encode_output(output: Json) -> Any:
    if output is None or isinstance(output, str):
        return output or ""
    if isinstance(output, list) and all(isinstance(each, str) or "type" in as_object(each) for each in output):
        return output
    return json_text(output)


def _result(message: Message) -> ToolResultPart | None:
    return next((part for part in message.parts if isinstance(part, ToolResultPart)), None)


def encode_calls(parts: Sequence[Part]) -> tuple[list[JsonObject], list[JsonObject]]:
    """`tool_calls` and `invalid_tool_calls`: those whose arguments are no JSON object."""
    answered = {part.call_id for part in parts if isinstance(part, ToolResultPart)}
    calls: list[JsonObject] = []
    broken: list[JsonObject] = []
    for part in parts:
        if not isinstance(part, ToolCallPart) or part.call_id in answered:
            continue
        args, call_id = decode_arguments(part.arguments), part.call_id or None
        if args is None:
            broken.append(
                {"name": part.name, "args": part.arguments, "id": call_id, "error": None, "type": "invalid_tool_call"}
            )
        else:
            calls.append({"name": part.name, "args": args, "id": call_id, "type": "tool_call"})
    return calls, broken


def encode_usage(usage: JsonObject) -> JsonObject | None:
    """`usage_metadata`: its three counts are always there (langchain-core 1.7.2, messages/ai.py, UsageMetadata)."""
    if not usage:
        return None
    counts = {key: usage.get(key, 0) for key in ("input_tokens", "output_tokens")}
    numbers = [count for count in counts.values() if isinstance(count, int)]
    return {**usage, **counts, "total_tokens": usage.get("total_tokens", sum(numbers))}
