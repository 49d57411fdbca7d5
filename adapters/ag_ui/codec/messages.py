"""Messages of the conversation: wire ↔ canonical."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from babelgate.adapters.ag_ui import wire as w
from babelgate.adapters.ag_ui.codec.files import decode_message_part, encode_message_part
from babelgate.adapters.kit.json import json_text
from babelgate.canonical import (
    DataPart,
    FaultCode,
    FaultError,
    FilePart,
    Message,
    Part,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Json, JsonObject

ROLES: Final = {"user": "user", "agent": "assistant", "system": "system", "tool": "tool"}
"""Role of a message in AG-UI, by its canonical role."""
_DATA: Final = "data"
"""Member of the gateway's own metadata of a text part. It holds the JSON value that the text shows, so that another
gateway can restore the data part."""


def decode_messages(messages: Sequence[w.ThreadMessage]) -> list[Message]:
    """Return the canonical messages of a request. Messages of the role `activity` are omitted, because they are for the
    screen only. Raises invalid, unsupported."""
    found = (_decode(message, f"messages.{number}") for number, message in enumerate(messages))
    return [message for message in found if message is not None]


def _decode(message: w.ThreadMessage, field: str) -> Message | None:
    match message.role:
        case "activity":
            return None
        case "reasoning":
            return _make(message, "agent", (ReasoningPart(text=_text(message, field)),))
        case "tool":
            if message.tool_call_id is None:
                raise FaultError(FaultCode.INVALID, f"{field}.toolCallId: Field required")
            output = result_of(message, field)
            failed = message.error is not None
            part = ToolResultPart(
                call_id=message.tool_call_id, output=message.error if failed else output, error=failed
            )
            return _make(message, "tool", (part,))
        case "assistant":
            return _make(message, "agent", (*_content(message, field), *map(_decode_call, message.tool_calls or ())))
        case "user":
            return _make(message, "user", _content(message, field))
        case _:
            extra: JsonObject = {} if message.role == "system" else {"ag-ui": {"role": message.role}}
            return _make(message, "system", (TextPart(text=_text(message, field)),), extra)


def _make(message: w.ThreadMessage, role: Any, parts: Iterable[Part], extra: JsonObject | None = None) -> Message:
    metadata = {name: value for name, value in (message.metadata or {}).items() if name not in (w.OWN, w.RESERVED)}
    return Message(
        message_id=message.id, role=role, name=message.name, parts=tuple(parts), metadata=metadata, extra=extra or {}
    )


def _text(message: w.ThreadMessage, field: str) -> str:
    if not isinstance(message.content, str):
        raise FaultError(
            FaultCode.INVALID, f"{field}.content: must be a string in a message of the role {message.role}"
        )
    return message.content


def _content(message: w.ThreadMessage, field: str) -> Sequence[Part]:
    content = message.content
    if content is None or content == "":
        return ()
    if isinstance(content, str):
        return (TextPart(text=content),)
    if isinstance(content, dict):
        raise FaultError(FaultCode.INVALID, f"{field}.content: must be a string or a list of parts")
    parts = [decode_message_part(part, f"{field}.content.{number}") for number, part in enumerate(content)]
    return [_unmark(part) for part in parts]


def _unmark(part: TextPart | FilePart) -> Part:
    """Return the data part that another gateway has encoded as this text part, or the part itself if it is not such a
    text."""
    if isinstance(part, FilePart) or _DATA not in as_object(part.metadata.get(w.OWN)):
        return part
    return DataPart(data=as_object(part.metadata.get(w.OWN))[_DATA])


def _decode_call(call: w.MessageCall) -> ToolCallPart:
    return ToolCallPart(call_id=call.id, name=call.function.name, arguments=call.function.arguments)


def result_of(message: w.ThreadMessage, field: str = "content") -> Json:
    """Return the result in a message of the role `tool`: its text, or its parts as JSON. `field` names the message in
    errors. Raises invalid."""
    if isinstance(message.content, list):
        return [part.model_dump(by_alias=True, exclude_none=True) for part in message.content]
    if not isinstance(message.content, str):
        raise FaultError(FaultCode.INVALID, f"{field}.content: must be a string or a list of parts")
    return message.content


# Canonical → wire


def encode_message(message: Message) -> JsonObject:
    """Return a canonical message in the form of AG-UI. It is used for callers' messages and for the history. Messages
    that an agent produces in a run are written as events instead."""
    role = as_object(message.extra.get("ag-ui")).get("role") or ROLES[message.role]
    wire: JsonObject = {"id": message.message_id or "", "role": role}
    if message.name is not None:
        wire["name"] = message.name
    if message.role == "tool":
        return {**wire, **_encode_result(message)}
    if message.role == "user":
        wire["content"] = _encode_content(message.parts)
    else:
        wire["content"] = "".join(map(_words, message.parts))
    calls = [encode_call(part) for part in message.parts if isinstance(part, ToolCallPart)]
    if calls and message.role == "agent":
        wire["toolCalls"] = calls
        if not wire["content"]:
            del wire["content"]
    return {**wire, "metadata": message.metadata} if message.metadata else wire


def encode_call(part: ToolCallPart) -> JsonObject:
    """Return a tool call as an item of the list `toolCalls` in a message of the assistant."""
    return {
        "id": part.call_id,
        "type": "function",
        "function": {"name": part.name, "arguments": part.arguments or "{}"},
    }


def _encode_result(message: Message) -> JsonObject:
    part = next((part for part in message.parts if isinstance(part, ToolResultPart)), None)
    if part is None:
        return {"toolCallId": "", "content": message.text}
    text = result_text(part.output)
    return {"toolCallId": part.call_id, "content": text, **({"error": text} if part.error else {})}


def result_text(value: Json) -> str:
    """Return the result of a tool as text: a string unchanged, and any other value as JSON."""
    return value if isinstance(value, str) else json_text(value)


def _encode_content(parts: Sequence[Part]) -> str | list[JsonObject]:
    """Return the content of a user's message: one string if all parts are texts without metadata, and otherwise a list
    of parts."""
    if all(isinstance(part, TextPart) and not part.metadata for part in parts):
        return "".join(map(_words, parts))
    return [encoded for part in parts if (encoded := _encode_part(part)) is not None]


def _encode_part(part: Part) -> JsonObject | None:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text, **({"metadata": part.metadata} if part.metadata else {})}
        case FilePart():
            return encode_message_part(part)
        case DataPart():
            return {"type": "text", "text": json_text(part.data), "metadata": {w.OWN: {_DATA: part.data}}}
        case _:
            words = _words(part)
            return {"type": "text", "text": words} if words else None


def _words(part: Part) -> str:
    match part:
        case TextPart() | RefusalPart():
            return part.text
        case DataPart():
            return json_text(part.data)
        case _:
            return ""
