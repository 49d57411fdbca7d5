"""Questions of agents as calls of a tool of the caller's."""

import json
from collections.abc import Iterator
from typing import Final

from babelgate.adapters.openai.codec.call_id import encode_call_id
from babelgate.adapters.openai.codec.model import call_kind, encode_call, own_of
from babelgate.canonical import Feature, ToolCallPart
from babelgate.canonical.event import InterruptRaised
from babelgate.canonical.value import JsonObject

ASK: Final = "ask_caller"
"""The tool that is called where an agent asks something and calls no tool of its caller's."""


def called_part(asked: InterruptRaised) -> ToolCallPart | None:
    """The call, where the question is one."""
    parts = (part for part in asked.message.parts if isinstance(part, ToolCallPart) and part.side == "caller")
    return next(parts, None)


def question_losses(asked: InterruptRaised) -> Iterator[Feature]:
    """What a call does not say of it."""
    if asked.ask == "auth":
        yield Feature.AUTH_REQUEST
    if asked.answer_schema is not None:
        yield Feature.ANSWER_SCHEMA
    if called_part(asked) is None:
        yield Feature.QUESTION


def encode_question(task_id: str, asked: InterruptRaised) -> JsonObject:
    """SPEC/chat/chat_completion_message_function_tool_call.py, or …_custom_tool_call.py."""
    call_id = encode_call_id(task_id, asked.interrupt_id or "")
    part = called_part(asked)
    if part is None:
        return _function(call_id, ASK, _arguments(asked))
    return encode_call(call_id, part)


def encode_question_item(task_id: str, asked: InterruptRaised) -> JsonObject:
    """SPEC/responses/response_function_tool_call.py, response_custom_tool_call.py, or McpApprovalRequest of
    response_output_item.py, where the question is one that a model on another server asked in this form."""
    call_id = encode_call_id(task_id, asked.interrupt_id or "")
    item_id = call_id.removeprefix("call_")
    part = called_part(asked)
    kind = "function" if part is None else call_kind(part)
    # What a server of this API has told beside it, with its own id of the item.
    theirs: JsonObject = {} if part is None else own_of(part).get("told", {})
    if part is not None and kind == "mcp_approval_request":
        label = str(part.extra["openai"].get("server_label") or "")
        told: JsonObject = {"type": kind, "id": call_id, "server_label": label, "name": part.name}
        return {**theirs, **told, "arguments": part.arguments}
    if part is not None and kind == "custom":
        own = {"type": "custom_tool_call", "id": f"ctc_{item_id}", **theirs, "call_id": call_id}
        return {**own, "name": part.name, "input": part.arguments}
    name, arguments = (ASK, _arguments(asked)) if part is None else (part.name, part.arguments or "{}")
    own = {"type": "function_call", "id": f"fc_{item_id}", **theirs, "call_id": call_id}
    return {**own, "name": name, "arguments": arguments}


def _function(call_id: str, name: str, arguments: str) -> JsonObject:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _arguments(asked: InterruptRaised) -> str:
    told: JsonObject = {"question": asked.message.text}
    if asked.ask != "input":
        told["kind"] = asked.ask
    if asked.answer_schema is not None:
        told["schema"] = asked.answer_schema
    if asked.value is not None:
        told["value"] = asked.value
    return json.dumps(told, ensure_ascii=False)
