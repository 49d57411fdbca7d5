"""Conversion between messages of chat completions and canonical messages, and the split of a conversation into history
and new messages."""

from base64 import b64decode
from binascii import Error as BinasciiError
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from babelgate.adapters.kit.data_url import decode_data_url
from babelgate.adapters.kit.json import ABSENT, is_text_schema, json_text, parse_text
from babelgate.adapters.openai.codec.call_id import decode_task_id
from babelgate.adapters.openai.codec.model import data_url
from babelgate.adapters.openai.wire import requests as w
from babelgate.canonical import (
    DataPart,
    FaultCode,
    FaultError,
    FilePart,
    Message,
    Part,
    RefusalPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from babelgate.canonical.message import Role
from babelgate.canonical.value import Extra, Json, JsonObject

_ROLES: Final[dict[str, Role]] = {
    # "With o1 models and newer, use `developer` messages for this purpose instead"
    # (SPEC/chat/chat_completion_system_message_param.py).
    "developer": "system",
    "system": "system",
    "user": "user",
    "assistant": "agent",
    "tool": "tool",
    "function": "tool",
}
_AUDIO: Final = {"wav": "audio/wav", "mp3": "audio/mpeg"}
_BYTES: Final = frozenset({"url", "data", "file_data", "filename", "format"})
"""Members of a content part with a file that are decoded to fields of the `FilePart`."""


def refuse(where: str, words: str) -> NoReturn:
    """Raise invalid for a request. `where` is the path of the field at fault, such as `messages.0.content`."""
    raise FaultError(FaultCode.INVALID, f"{where}: {words}", errors=[{"field": where, "description": words}])


# New messages of a conversation


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """Result of a tool call by which the gateway showed a question. `task_id` is the task that asked."""

    call_id: str
    task_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ChatConversation:
    """Messages of a request for a chat completion, split into history and new messages."""

    before: Sequence[w.ChatMessage]
    """History: all messages before `new_messages`. It ends with the assistant's last message, unless that is to be
    continued."""
    new_messages: Sequence[w.ChatMessage]
    """Messages after the history, to which the agent is to respond."""
    answers: Sequence[ToolAnswer]
    """Answers to questions that the gateway showed as tool calls; they are among the new messages, too."""

    @classmethod
    def of(cls, messages: Sequence[w.ChatMessage]) -> "ChatConversation":
        """Split a conversation into history and new messages. Raises invalid for a malformed message.

        If it ends with messages of the assistant that call no tool, these count as new: the agent is to continue them.
        """
        messages = _with_tool_calls(messages)
        last = max((number for number, each in enumerate(messages) if each.role == "assistant"), default=-1)
        if last == len(messages) - 1 and not messages[last].tool_calls:
            last = max((number for number, each in enumerate(messages) if each.role != "assistant"), default=-1)
        news = messages[last + 1 :]
        answers: list[ToolAnswer] = []
        for each in news:
            call_id = each.tool_call_id
            task_id = decode_task_id(call_id) if each.role == "tool" and call_id is not None else None
            if call_id is not None and task_id is not None:
                answers.append(ToolAnswer(call_id, task_id, _text_of(each)))
        if len({answer.task_id for answer in answers}) > 1:
            refuse("messages", "These are results of tool calls of several runs: send those of one run.")
        if len({answer.call_id for answer in answers}) < len(answers):
            refuse("messages", "A tool call has two results.")
        return cls(messages[: last + 1], news, answers)

    @property
    def others(self) -> Sequence[w.ChatMessage]:
        """New messages without those in `answers`."""
        answered = {answer.call_id for answer in self.answers}
        return [each for each in self.new_messages if each.role != "tool" or each.tool_call_id not in answered]


def _with_tool_calls(messages: Sequence[w.ChatMessage]) -> Sequence[w.ChatMessage]:
    """Convert deprecated `function_call` members and `function` messages to tool calls and their results."""
    if not any(each.function_call is not None or each.role == "function" for each in messages):
        return messages
    converted: list[w.ChatMessage] = []
    open_calls: dict[str, str] = {}
    for number, each in enumerate(messages):
        if each.function_call is not None:
            call_id = f"call_function_{number}"
            open_calls[each.function_call.name] = call_id
            call = w.ToolCall(id=call_id, function=each.function_call)
            each = each.model_copy(update={"function_call": None, "tool_calls": [*(each.tool_calls or ()), call]})
        elif each.role == "function":
            call_id = open_calls.get(each.name or "", f"call_function_{number}")
            each = each.model_copy(update={"role": "tool", "tool_call_id": call_id, "name": None})
        converted.append(each)
    return converted


def _text_of(message: w.ChatMessage) -> str:
    """Return the text of a message, from all of its content parts."""
    if isinstance(message.content, str) or message.content is None:
        return message.content or ""
    return "".join(part.text or "" for part in message.content)


def decode_answer(text: str, schema: JsonObject | None) -> tuple[Json, Message]:
    """Return the value of an answer for the agent, and a message that shows it to readers of other protocols.

    The value is the text of the tool call's result. If the question has a schema and the text is a JSON object or
    array, the value is that JSON.
    """
    if schema is not None and not is_text_schema(schema) and text.lstrip()[:1] in ("{", "["):
        value = parse_text(text)
        if value is not ABSENT:
            return value, Message(role="user", parts=(DataPart(data=value),))
    return text, Message.of(text, "user")


# Messages of callers, for requests that read a stored completion


def encode_messages(messages: Sequence[Message]) -> list[JsonObject]:
    """Return messages of callers as stored completions show them (SPEC/chat/chat_completion_store_message.py).

    A message with other parts than text also gets `content_parts`.
    """
    return [_encode_message(each) for each in messages]


def _encode_message(message: Message) -> JsonObject:
    extra: Mapping[str, Any] = message.extra.get("openai") or {}
    role = "assistant" if message.role == "agent" else extra.get("role") or message.role
    results = [part for part in message.parts if isinstance(part, ToolResultPart)]
    members: JsonObject = {
        "id": message.message_id or "",
        "role": role,
        "content": message.text or None,
        "refusal": None,
    }
    if results:
        output = results[0].output
        members |= {
            "tool_call_id": results[0].call_id,
            "content": output if isinstance(output, str) else json_text(output),
        }
    parts = [encoded for part in message.parts if (encoded := _encode_part(part)) is not None]
    if any(part["type"] != "text" for part in parts):
        members["content_parts"] = parts
    return members


def _encode_part(part: Part) -> JsonObject | None:
    """Return a text or an image as a content part. Return None for any other part, for which the API has no type."""
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, FilePart) and (part.media_type or "").startswith("image/"):
        return {"type": "image_url", "image_url": {"url": part.url if part.inline is None else data_url(part)}}
    return None


# Messages


def decode_messages(messages: Sequence[w.ChatMessage]) -> tuple[Message, ...]:
    """Return messages of a chat completion request as canonical messages. Raises invalid for a malformed message, and
    unsupported for content that the gateway cannot pass to the agent."""
    return tuple(_decode_message(each, f"messages.{number}") for number, each in enumerate(messages))


def _decode_message(message: w.ChatMessage, where: str) -> Message:
    role = _ROLES[message.role]
    extra = _extra_of(message)
    if role == "tool":
        call_id = message.tool_call_id or message.name or ""
        return Message(role=role, parts=(ToolResultPart(call_id=call_id, output=_text_of(message)),), extra=extra)
    parts = _decode_content(message.content, f"{where}.content")
    if message.refusal:
        parts.append(RefusalPart(text=message.refusal))
    for call in message.tool_calls or ():
        function = call.custom or call.function
        if function is None:
            refuse(f"{where}.tool_calls", f"A call of the type {call.type[:40]!r} needs the field {call.type[:40]}.")
        text = function.input if isinstance(function, w.Custom) else function.arguments
        part_extra: JsonObject = {"type": "custom"} if isinstance(function, w.Custom) else {}
        part_extra |= {"own": call.model_extra} if call.model_extra else {}
        part_extra |= {"inner": function.model_extra} if function.model_extra else {}
        parts.append(
            ToolCallPart(
                call_id=call.id,
                name=function.name,
                arguments=text,
                side="caller",
                extra={"openai": part_extra} if part_extra else {},
            )
        )
    return Message(role=role, name=message.name, parts=tuple(parts), extra=extra)


def _extra_of(message: w.ChatMessage) -> Extra:
    """Return the `extra` of a decoded message: members without a canonical form, which are passed on only to agents
    whose server speaks this API."""
    openai: JsonObject = {"role": message.role} if message.role in ("developer", "function") else {}
    if isinstance(message.content, list):
        openai["parts"] = True
    more: JsonObject = dict(message.model_extra or {})
    if message.refusal is not None:
        more["refusal"] = message.refusal
    if more:
        openai["own"] = more
    return {"openai": openai} if openai else {}


def _decode_content(content: str | list[w.Part] | None, where: str) -> list[Part]:
    if content is None:
        return []
    if isinstance(content, str):
        return [TextPart(text=content)]
    return [_with_unknown_members(_decode_part(part, f"{where}.{number}"), part) for number, part in enumerate(content)]


def _with_unknown_members(decoded: Part, part: w.Part) -> Part:
    """Return the decoded part with those members of the content part in `extra` that have no canonical form."""
    extra: JsonObject = {"own": part.model_extra} if part.model_extra else {}
    if isinstance(decoded, FilePart):
        extra |= {"type": "file"} if part.type == "file" else {}
        # Members next to the bytes, such as `detail`.
        file = part.image_url if part.type == "image_url" else part.file if part.type == "file" else part.input_audio
        inner = {n: v for n, v in file.items() if n not in _BYTES} if isinstance(file, dict) else {}
        extra |= {"inner": inner} if inner else {}
    return decoded.replace(extra={"openai": extra}) if extra else decoded


def _decode_part(part: w.Part, where: str) -> Part:
    match part.type:
        case "text" if part.text is not None:
            return TextPart(text=part.text)
        case "refusal" if part.refusal is not None:
            return RefusalPart(text=part.refusal)
        case "image_url" if part.image_url is not None:
            url = part.image_url if isinstance(part.image_url, str) else part.image_url.get("url")
            if not isinstance(url, str) or not url:
                refuse(f"{where}.image_url", "The field url is required.")
            return decode_url(url, None, "image/*", f"{where}.image_url.url")
        case "input_audio" if part.input_audio is not None:
            return decode_audio(part.input_audio, f"{where}.input_audio")
        case "file" if part.file is not None:
            return decode_file(part.file, f"{where}.file")
        case kind:
            refuse(where, f"The content part type {kind[:40]!r} is unknown, or the part lacks required fields.")


def decode_audio(audio: JsonObject, where: str) -> FilePart:
    """Return the audio of a content part as a file part. `where` names the field in errors. Raises invalid for another
    format than wav and mp3, or data that is not base64."""
    kind: object = audio.get("format")
    if not isinstance(kind, str) or kind not in _AUDIO or not isinstance(audio.get("data"), str):
        refuse(where, "It must have data, and the format wav or mp3.")
    data = _decode_base64(audio["data"], where)
    return FilePart(name=f"audio.{kind}", media_type=_AUDIO[kind], inline=data, size=len(data))


def decode_file(file: JsonObject, where: str) -> Part:
    """Return the file of a content part as a file part. A JSON file without a name becomes a `DataPart`. `where` names
    the field in errors. Raises invalid for a malformed file, and unsupported for a `file_id`."""
    if file.get("file_id") is not None:
        # The gateway stores the files of threads and runs only: callers cannot upload a file and get its id.
        raise FaultError(FaultCode.UNSUPPORTED, f"{where}.file_id: give the file's bytes as file_data.")
    data: object = file.get("file_data")
    name: object = file.get("filename")
    if not isinstance(data, str) or not isinstance(name, str | None):
        refuse(where, "It must have file_data, and a filename that is a string.")
    if not data.startswith(("data:", "http:", "https:")):
        raw = _decode_base64(data, f"{where}.file_data")
        return FilePart(name=name, media_type="application/octet-stream", inline=raw, size=len(raw))
    decoded = decode_url(data, name, "application/octet-stream", f"{where}.file_data")
    if name is None and decoded.media_type == "application/json" and decoded.inline is not None:
        value = parse_text(decoded.inline.decode(errors="replace"))
        if value is not ABSENT:
            return DataPart(data=value)
    return decoded


def decode_url(url: str, name: str | None, media_type: str, where: str) -> FilePart:
    """Return a file part for a URL. A `data:` URL (RFC 2397) is decoded to bytes, any other URL is kept. `name` and
    `media_type` are used if the URL has none. Raises invalid for a malformed `data:` URL."""
    if url[:5].lower() != "data:":
        return FilePart(name=name, media_type=media_type, url=url)
    decoded = decode_data_url(url)
    if decoded is None:
        refuse(where, "It must be a data: URL, with a comma before its data, which is base64 if the URL says so.")
    kind, data = decoded
    return FilePart(name=name, media_type=kind, inline=data, size=len(data))


def _decode_base64(text: str, where: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (BinasciiError, ValueError):
        refuse(where, "It must be base64.")
