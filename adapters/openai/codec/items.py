"""Conversion between items of the Responses API and canonical messages, and the split of an input into history and new
items."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from babelgate.adapters.kit.json import json_text
from babelgate.adapters.openai.codec.call_id import decode_task_id
from babelgate.adapters.openai.codec.messages import decode_answer, decode_audio, decode_file, decode_url, refuse
from babelgate.adapters.openai.codec.model import data_url, object_in
from babelgate.adapters.openai.codec.names import encode_item_id
from babelgate.adapters.openai.wire import responses as w
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
from babelgate.canonical.message import Role
from babelgate.canonical.value import Json, JsonObject

_ROLES: Final[Mapping[str, Role]] = {"user": "user", "system": "system", "developer": "system", "assistant": "agent"}
"""Canonical role by item role (SPEC/responses/easy_input_message_param.py, role)."""
_CALLS: Final[Mapping[str, str]] = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "mcp_approval_request": "mcp_approval_response",
}
"""Item types that request something from the caller, each with the type that answers it
(SPEC/responses/response_input_item_param.py)."""
_CALL_MEMBERS: Final = frozenset({"type", "call_id", "name", "arguments", "input"})
"""Members of an item with a call that are decoded to canonical fields. All others are stored in `extra`."""
_OUTPUT_MEMBERS: Final = frozenset({"type", "call_id", "output"})
"""Members of an item with a call's output that are decoded to canonical fields. All others are stored in `extra`."""
_ANSWER_TYPES: Final = frozenset(_CALLS.values())
_ASSISTANT_TYPES: Final = frozenset({*_CALLS, "mcp_call", "reasoning"})
"""Types of items that the assistant produces, besides messages."""


# New items of an input


@dataclass(frozen=True, slots=True)
class ItemAnswer:
    """Input item with the answer to a question that the gateway showed as a call. `task_id` is the task that asked."""

    item: w.Item
    call_id: str
    task_id: str


@dataclass(frozen=True, slots=True)
class ItemConversation:
    """Input of a request for a response, split into history, new items, and answers to questions."""

    before: Sequence[w.Item]
    """History: the items up to and including the assistant's last one."""
    others: Sequence[w.Item]
    """New items of the caller, without those in `answers`."""
    answers: Sequence[ItemAnswer]
    """New items with answers to questions that the gateway showed as calls."""

    @classmethod
    def of(cls, request_input: str | Sequence[w.Item] | None, *, same: bool = False) -> "ItemConversation":
        """Split the input of a request into history, new items, and answers to questions. Raises invalid for a
        malformed item, and for an output whose call is not in the input.

        If an input without new items ends with an assistant's message, the last items of the assistant count as new:
        the agent is to continue them. `same`: the agent's own server speaks the Responses API, so that items it knows
        are accepted.
        """
        if isinstance(request_input, str):
            return cls((), (w.Item(role="user", content=request_input),), ())
        items = request_input or ()
        for number, item in enumerate(items):
            _check(item, f"input.{number}", same=same)
        last = max((number for number, item in enumerate(items) if _is_by_assistant(item)), default=-1)
        call_ids = {_call_id_of(item) for item in items[: last + 1] if item.type in _CALLS}
        answers: list[ItemAnswer] = []
        others: list[w.Item] = []
        for number, item in enumerate(items[last + 1 :], last + 1):
            call_id = _answered_call(item) if item.type in _ANSWER_TYPES else None
            task_id = None if call_id is None else decode_task_id(call_id, "input")
            if call_id is not None and task_id is not None:
                answers.append(ItemAnswer(item, call_id, task_id))
                continue
            if call_id is not None and call_id not in call_ids:
                raise unknown_call(call_id, f"input.{number}.call_id")
            others.append(item)
        if len({answer.task_id for answer in answers}) > 1:
            refuse("input", "These are outputs of calls of several responses: send those of one response.")
        if len({answer.call_id for answer in answers}) < len(answers):
            refuse("input", "A call has two outputs.")
        if not others and not answers and items and _continues(items[-1]):
            last = max((number for number, item in enumerate(items) if not _is_by_assistant(item)), default=-1)
            others = list(items[last + 1 :])
        return cls(items[: last + 1], others, answers)


def unknown_call(call_id: str, where: str) -> FaultError:
    """Return the fault invalid for an answer that names a call which does not exist. `where` is the field of the
    request."""
    words = f"No call was made with the id {call_id[:80]!r}."
    return FaultError(
        FaultCode.INVALID,
        words,
        errors=[{"field": where, "description": words}],
        openai={"code": "invalid_function_call_output"},
    )


def _is_by_assistant(item: w.Item) -> bool:
    """Return True if the assistant, and not the caller, produced the item."""
    if item.verbatim is not None:
        return not _is_by_caller(item)
    return item.role == "assistant" or item.type in _ASSISTANT_TYPES


def _continues(item: w.Item) -> bool:
    """Return True if this last item of an input means that the agent is to continue: an assistant's message, or
    `compaction_trigger`."""
    return item.role == "assistant" or item.type == "compaction_trigger"


def _is_by_caller(item: w.Item) -> bool:
    """Return True if an item of a type without a canonical form has the name of a caller's result, such as
    `shell_call_output`."""
    # All outputs, and the one response, in SPEC/responses/response_input_item_param.py have types that end like this.
    return (item.type or "").endswith(("_output", "_response"))


def _call_id_of(item: w.Item) -> str | None:
    """Return the id that the answer to a call must name: its `call_id`, or else its `id`. None if the item has
    neither."""
    # An McpApprovalRequest has an `id`, and no `call_id` (SPEC/responses/response_input_item_param.py).
    return item.call_id or item.id


def _answered_call(item: w.Item) -> str:
    """Return the id of the call that an item with a result answers, or ""."""
    return item.call_id or item.approval_request_id or ""


def _check(item: w.Item, where: str, *, same: bool) -> None:
    """Raise a fault if an item cannot be used: invalid if it lacks members that its type requires, or has an unknown
    type, and unsupported for an `item_reference`.

    `same`: the agent's own server speaks the Responses API, so that unknown types and references are accepted.
    """
    match item.type or "message":
        # Each guard names the members that SPEC/responses/response_input_item_param.py requires and messages need.
        case "message" if item.role is not None and item.content is not None:
            pass
        case "function_call" if item.call_id and item.name and item.arguments is not None:
            pass
        case "custom_tool_call" if item.call_id and item.name and item.input is not None:
            pass
        case "function_call_output" | "custom_tool_call_output" if item.call_id and item.output is not None:
            pass
        case "mcp_approval_request" if item.id and item.name:
            pass
        case "mcp_approval_response" if item.approval_request_id and item.approve is not None:
            pass
        case "mcp_call" if item.id and item.name:
            pass
        case "reasoning":
            pass
        # ItemReference of the same file: "An internal identifier for an item".
        case "item_reference" if not same:
            raise FaultError(FaultCode.UNSUPPORTED, f"{where}: send the item itself, or go on by previous_response_id.")
        case kind if item.verbatim is not None and (same or kind in w.BESIDE):
            pass
        case kind:
            refuse(where, f"The item type {kind[:40]!r} is unknown, or the item lacks required fields.")


# Items → messages


def decode_items(items: Sequence[w.Item], where: str = "input", *, same: bool = False) -> tuple[Message, ...]:
    """Return the items of an input as messages. `where` names the field in errors. Raises invalid for a malformed item,
    and unsupported for one that the gateway cannot pass to the agent.

    `same`: the agent's own server speaks the Responses API, so the messages also keep members without a canonical form,
    in `extra`.
    """
    messages: list[Message] = []
    for number, item in enumerate(items):
        _check(item, f"{where}.{number}", same=same)
        messages += (_decode_same if same else _decode_item)(item, f"{where}.{number}")
    return tuple(messages)


def _decode_same(item: w.Item, where: str) -> list[Message]:
    """Return the messages of an item for an agent whose own server speaks the Responses API. Members without a
    canonical form are stored in `extra`."""
    if item.verbatim is not None:
        role: Role = "user" if _is_by_caller(item) else "agent"
        return [Message(role=role, extra={"openai": {"item": item.verbatim}})]
    members: JsonObject = item.model_dump(exclude_unset=True)
    kind = item.type or "message"
    if kind in ("mcp_call", "reasoning"):
        parts = next(iter(_decode_item(item, where)), Message()).parts if kind == "reasoning" else ()
        return [Message(role="agent", parts=parts, extra={"openai": {"item": members}})]
    [message] = _decode_item(item, where)
    if kind == "message":
        return [_with_unknown_members(message, item, members)]
    if kind == "mcp_approval_response":
        return [message]
    [part] = message.parts
    canonical = _CALL_MEMBERS if kind in _CALLS else _OUTPUT_MEMBERS
    others = {name: value for name, value in members.items() if name not in canonical}
    if kind in _ANSWER_TYPES and isinstance(item.output, list):
        others["output"] = members["output"]
    if not others:
        return [message]
    extra: JsonObject = {**(part.extra.get("openai") or {}), "item": others}
    return [message.replace(parts=(part.replace(extra={"openai": extra}),))]


def _with_unknown_members(message: Message, item: w.Item, members: JsonObject) -> Message:
    """Return the message with the members without a canonical form, of its item and of the item's content parts, in
    `extra`."""
    if item.role == "assistant" and isinstance(item.content, list):
        return message.replace(extra={"openai": {"item": members}})
    extra: JsonObject = dict(message.extra.get("openai") or {})
    if more := {name: value for name, value in members.items() if name not in ("role", "content")}:
        extra["own"] = more
    if not isinstance(item.content, list):
        return message.replace(extra={"openai": extra} if extra else {})
    extra["parts"] = True
    parts = [
        part.replace(extra={"openai": {"own": content.model_extra}}) if content.model_extra else part
        for part, content in zip(message.parts, item.content, strict=True)
    ]
    return message.replace(parts=tuple(parts), extra={"openai": extra})


def _decode_item(item: w.Item, where: str) -> list[Message]:
    if item.verbatim is not None:
        return []
    match item.type or "message":
        case "message":
            extra = {"openai": {"role": item.role}} if item.role == "developer" else {}
            # SPEC/responses/easy_input_message_param.py, phase: "intermediate commentary", or "the final answer".
            phase = "progress" if item.phase == "commentary" else "answer"
            parts = tuple(_decode_content(item.content, f"{where}.content"))
            return [Message(role=_ROLES[item.role or "user"], phase=phase, parts=parts, extra=extra)]
        case "reasoning":
            thoughts = tuple(ReasoningPart(text=part.text) for part in item.summary or () if part.text)
            return [Message(role="agent", parts=thoughts)] if thoughts else []
        case "mcp_call":
            call_id, name = item.id or "", item.name or ""
            call = ToolCallPart(call_id=call_id, name=name, arguments=item.arguments or "")
            message = Message(role="agent", parts=(call,))
            if item.output is None:
                return [message]
            return [message, Message(role="tool", parts=(ToolResultPart(call_id=call_id, output=_text(item.output)),))]
        case "mcp_approval_response":
            return [Message(role="tool", parts=(ToolResultPart(call_id=_answered_call(item), output=item.approve),))]
        case kind if kind in _ANSWER_TYPES:
            return [
                Message(role="tool", parts=(ToolResultPart(call_id=_answered_call(item), output=_text(item.output)),))
            ]
        case kind:
            return [Message(role="agent", parts=(_decode_call(item, kind),))]


def _decode_call(item: w.Item, kind: str) -> ToolCallPart:
    text, extra = item.arguments or "", dict[str, str]()
    if kind == "custom_tool_call":
        text, extra = item.input or "", {"type": "custom"}
    elif kind == "mcp_approval_request":
        extra = {"type": kind, "server_label": item.server_label or ""}
    return ToolCallPart(
        call_id=_call_id_of(item) or "",
        name=item.name or "",
        arguments=text,
        side="caller",
        extra={"openai": extra} if extra else {},
    )


def decode_item_answer(answer: ItemAnswer, schema: JsonObject | None) -> tuple[Json, Message]:
    """Return the value of an answer for the agent, and a message that shows it to readers of other protocols. `schema`
    is the JSON Schema of the question's answers, or None. Raises invalid for a malformed answer."""
    item = answer.item
    extra = {"openai": {"type": item.type, "call_id": answer.call_id}}
    if item.type == "mcp_approval_response":
        text = ("Yes." if item.approve else "No.") + (f" {item.reason}" if item.reason else "")
        value: Json = {"approve": item.approve, "reason": item.reason} if item.reason else item.approve
        return value, Message.of(text, "user").replace(extra=extra)
    value, message = decode_answer(_text(item.output), schema)
    if isinstance(item.output, list):
        message = message.replace(parts=tuple(_decode_content(item.output, "input")))
    return value, message.replace(extra=extra)


def _text(output: str | Sequence[w.Part] | None) -> str:
    return output if isinstance(output, str) else "".join(part.text or "" for part in output or ())


def _decode_content(content: str | Sequence[w.Part] | None, where: str) -> list[Part]:
    if isinstance(content, str):
        return [TextPart(text=content)]
    return [_decode_part(part, f"{where}.{number}") for number, part in enumerate(content or ())]


def _decode_part(part: w.Part, where: str) -> Part:
    match part.type:
        # SPEC/responses/response_input_content_param.py; the assistant's are in response_output_message_param.py, and
        # `text` is in messages of conversations (SPEC/conversations/text_content.py).
        case "input_text" | "output_text" | "text" if part.text is not None:
            return TextPart(text=part.text)
        case "refusal" if part.refusal is not None:
            return RefusalPart(text=part.refusal)
        case "input_image" if part.image_url:
            return decode_url(part.image_url, None, "image/*", f"{where}.image_url")
        # SPEC/responses/response_input_audio_param.py. No content type there lists it, but the docstring of
        # easy_input_message_param.py says "Text, image, or audio input".
        case "input_audio" if part.input_audio is not None:
            return decode_audio(part.input_audio, f"{where}.input_audio")
        case "input_file" if part.file_url and part.file_data is None:
            return FilePart(name=part.filename, url=part.file_url)
        case "input_file" | "input_image" if part.file_data is not None or part.file_id is not None:
            file: JsonObject = {"file_data": part.file_data, "file_id": part.file_id, "filename": part.filename}
            return decode_file(file, where)
        case kind:
            refuse(where, f"The content part type {kind[:40]!r} is unknown, or the part lacks required fields.")


# Messages → items


def encode_inputs(messages: Iterable[Message]) -> list[JsonObject]:
    """Return messages of callers as input items, one for each message."""
    return [encode_input(message) for message in messages]


def encode_input(message: Message) -> JsonObject:
    """Return a message of a caller as an input item. If `extra` has the item that the message was decoded from, return
    that item."""
    extra = object_in(dict(message.extra), "openai")
    message_id = message.message_id or ""
    if item := object_in(extra, "item"):
        return {"id": encode_item_id("item_", message_id), **item}
    if (kind := extra.get("type")) in _ANSWER_TYPES:
        return _encode_answer(str(kind), str(extra.get("call_id")), message_id, message)
    role: str = "assistant" if message.role == "agent" else extra.get("role") or message.role
    if message.role == "tool":
        (result, *_) = (part for part in message.parts if isinstance(part, ToolResultPart))
        output = result.output if isinstance(result.output, str) else json_text(result.output)
        return _output("function_call_output", result.call_id, message_id, output)
    calls = [part for part in message.parts if isinstance(part, ToolCallPart)]
    if calls:
        return {
            "type": "function_call",
            "id": encode_item_id("fc_", message_id),
            "call_id": calls[0].call_id,
            "name": calls[0].name,
            "arguments": calls[0].arguments,
            "status": "completed",
        }
    thoughts = [{"type": "summary_text", "text": p.text} for p in message.parts if isinstance(p, ReasoningPart)]
    if thoughts and len(thoughts) == len(message.parts):
        return {
            "type": "reasoning",
            "id": encode_item_id("rs_", message_id),
            "summary": thoughts,
            "status": "completed",
        }
    content = [encoded for part in message.parts if (encoded := _encode_part(part, role == "assistant")) is not None]
    members: JsonObject = {
        "type": "message",
        "id": encode_item_id("msg_", message_id),
        "status": "completed",
        "role": role,
    }
    if role == "assistant":
        # SPEC/responses/response_output_message.py, phase.
        members["phase"] = "commentary" if message.phase == "progress" else "final_answer"
    return {**members, "content": content}


def _encode_answer(kind: str, call_id: str, message_id: str, message: Message) -> JsonObject:
    if kind == "mcp_approval_response":
        approve, _, reason = message.text.partition(" ")
        members: JsonObject = {"type": kind, "id": encode_item_id("mcpa_", message_id), "approval_request_id": call_id}
        return {**members, "approve": approve == "Yes.", "reason": reason or None}
    files = [part for part in message.parts if isinstance(part, FilePart)]
    if files:
        content = [encoded for part in message.parts if (encoded := _encode_part(part, False)) is not None]
        return _output(kind, call_id, message_id, content)
    text = "".join(json_text(p.data) if isinstance(p, DataPart) else text_in(p) for p in message.parts)
    return _output(kind, call_id, message_id, text)


def _output(kind: str, call_id: str, message_id: str, output: str | list[JsonObject]) -> JsonObject:
    members: JsonObject = {"type": kind, "id": encode_item_id("fco_", message_id), "call_id": call_id}
    return {**members, "output": output, "status": "completed"}


def text_in(part: Part) -> str:
    """Return the text of a text or refusal part, and "" for any other part."""
    return part.text if isinstance(part, TextPart | RefusalPart) else ""


def _encode_part(part: Part, by_assistant: bool) -> JsonObject | None:
    match part:
        case TextPart():
            return _encode_text(part.text, by_assistant)
        case RefusalPart():
            return {"type": "refusal", "refusal": part.text}
        case DataPart():
            return _encode_text(json_text(part.data), by_assistant)
        case FilePart() if (part.media_type or "").startswith("image/") and (part.inline is not None or part.url):
            url = part.url if part.inline is None else data_url(part)
            # `detail` is required (SPEC/responses/response_input_image.py).
            return {"type": "input_image", "detail": "auto", "image_url": url}
        case FilePart():
            file: JsonObject = {"file_url": part.url} if part.url else {}
            if part.inline is not None:
                file = {"file_data": data_url(part)}
            return {"type": "input_file", "filename": part.name, **file}
        case _:
            return None


def _encode_text(text: str, by_assistant: bool) -> JsonObject:
    if by_assistant:
        # SPEC/responses/response_output_text.py requires `annotations`, and Open Responses non-null `logprobs`.
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "input_text", "text": text}
