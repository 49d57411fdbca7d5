"""Questions: canonical interrupts ↔ interrupts of the wire, and calls of the caller's tools."""

from collections.abc import Container
from typing import Any, Final

from babelgate.adapters.ag_ui import wire as w
from babelgate.adapters.ag_ui.codec.names import PROTOCOL, own_of
from babelgate.adapters.kit.json import json_text
from babelgate.canonical import Interrupt, Message, Part, TextPart, ToolCallPart
from babelgate.canonical.event import InterruptRaised
from babelgate.canonical.json import as_list, as_object, as_text
from babelgate.canonical.value import JsonObject

_TOOL_CALL: Final = "tool_call"
_INPUT: Final = "input_required"
_CONFIRMATION: Final = "confirmation"
_AUTH: Final = "babelgate:auth"
_UNDECLARED: Final = "babelgate:tool_call"
"""`reason` of the interrupt that asks for a call of a tool which the caller did not declare."""
_ANY_TEXT: Final[JsonObject] = {"type": "string"}
"""Schema that is sent for a question without one: `input_required` needs a schema, from which clients make a form."""
APPROVED: Final[JsonObject] = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}},
    "required": ["approved"],
}
"""Schema of the answer to an approval (§ Interrupts of the specification)."""

Question = InterruptRaised | Interrupt


def called_part(question: Question) -> ToolCallPart | None:
    """Return the tool call of a question that asks the caller to execute a tool, or None for any other question."""
    parts = (part for part in question.message.parts if isinstance(part, ToolCallPart) and part.side == "caller")
    return next(parts, None)


def is_confirmation(question: Question) -> bool:
    """Return True if the answer to a question is the result of a call of `adk_request_confirmation`."""
    return as_object(question.extra.get(PROTOCOL)).get("confirmation") is True


def encode_confirmation(value: Any, *, declined: bool) -> JsonObject:
    """Return the answer to an approval as the result of `adk_request_confirmation`, as ag-ui-adk 0.11 does it for
    interrupts."""
    if declined:
        return {"confirmed": False}
    return {"confirmed": as_object(value).get("approved") is True, "payload": value}


def is_tool_call(question: Question, tools: Container[str]) -> bool:
    """Return True if a question is shown as a pending tool call, and not as an interrupt: it asks for a call of one of
    `tools`, the names that the caller declared."""
    part = called_part(question)
    return part is not None and part.name in tools


def can_take_text(question: Question) -> bool:
    """Return True if a text that the user types can answer the question: no tool call is asked for, and the schema of
    the answer allows a string."""
    if called_part(question) is not None:
        return False
    schema = question.answer_schema
    return question.takes_text or schema is None or schema.get("type") == "string"


def encode_interrupt(question: Question) -> JsonObject:
    """Return a question as an item of `outcome.interrupts` in a `RUN_FINISHED` event. A question from another AG-UI
    server keeps the members that the server sent, such as `reason`."""
    upstream = as_object(as_object(question.extra.get(PROTOCOL)).get("interrupt"))
    call, text = called_part(question), question.message.text
    if not text:
        text = "The agent waits for your answer." if question.value is None else json_text(question.value)
    wire: JsonObject = {
        **upstream,
        "id": question.interrupt_id or "",
        "reason": upstream.get("reason") or _reason(question),
        "message": upstream.get("message") or text,
        "responseSchema": _ANY_TEXT if question.answer_schema is None else question.answer_schema,
    }
    if call is not None:
        wire["toolCallId"] = question.interrupt_id or ""
    metadata = {**as_object(upstream.get("metadata")), w.OWN: _encode_own(question)}
    return {**wire, "metadata": metadata}


def _reason(question: Question) -> str:
    if called_part(question) is not None:
        return _UNDECLARED
    return {"approval": _CONFIRMATION, "auth": _AUTH}.get(question.ask, _INPUT)


def _encode_own(question: Question) -> JsonObject:
    """Return the properties of a question for which an interrupt has no member, such as `node`. Another gateway
    restores the question from them."""
    call = called_part(question)
    members: JsonObject = {
        "ask": question.ask,
        "text": None if question.message.text else "",
        "value": question.value,
        "node": question.node or None,
        "ns": list(question.ns) or None,
        "takesText": question.takes_text or None,
        "anySchema": question.answer_schema is None or None,
        "call": None if call is None else {"name": call.name, "arguments": call.arguments},
    }
    return {name: value for name, value in members.items() if value is not None}


# Reading


def decode_interrupt(value: JsonObject) -> InterruptRaised | None:
    """Return an interrupt of another server as the event that raises a question, or None if the interrupt has no id."""
    interrupt_id = value.get("id")
    if not isinstance(interrupt_id, str) or not interrupt_id:
        return None
    marks = own_of(value)
    schema = value.get("responseSchema") if isinstance(value.get("responseSchema"), dict) else None
    # ag-ui-strands 1.0 has the text of a question in `metadata.reason`.
    message = as_text(value.get("message")) or as_text(as_object(value.get("metadata")).get("reason"))
    text = as_text(marks["text"]) if "text" in marks else message
    upstream = {name: member for name, member in value.items() if name not in ("id", "responseSchema")}
    metadata = {name: member for name, member in as_object(value.get("metadata")).items() if name != w.OWN}
    upstream["metadata"] = metadata
    if not metadata:
        del upstream["metadata"]
    parts: tuple[Part, ...] = (TextPart(text=text),) if text else ()
    call = as_object(marks.get("call"))
    if as_text(call.get("name")):
        arguments = as_text(call.get("arguments"))
        parts = (*parts, ToolCallPart(call_id=interrupt_id, name=call["name"], arguments=arguments, side="caller"))
    return InterruptRaised(
        interrupt_id=interrupt_id,
        ask=_ask(value, marks, schema),
        message=Message(parts=parts),
        value=_value(value, marks),
        answer_schema=None if marks.get("anySchema") is True else schema,
        takes_text=marks.get("takesText") is True,
        node=as_text(marks.get("node")),
        ns=tuple(each for each in as_list(marks.get("ns")) if isinstance(each, str)),
        extra={} if marks else {PROTOCOL: {"interrupt": upstream}},
    )


def _ask(value: JsonObject, marks: JsonObject, schema: JsonObject | None) -> Any:
    if marks.get("ask") in ("input", "approval", "auth"):
        return marks["ask"]
    if value.get("reason") in (_TOOL_CALL, _CONFIRMATION):
        return "approval"
    properties = as_object((schema or {}).get("properties"))
    return "approval" if (schema or {}).get("type") == "boolean" or "approved" in properties else "input"


def _value(value: JsonObject, marks: JsonObject) -> Any:
    """Return the data of a question. `marks` are the gateway's own members of the interrupt. ag-ui-langgraph 0.0.47
    sends the data as `metadata.langgraph.raw`, and ag-ui-strands 1.0 as `metadata.reason`."""
    if marks:
        return marks.get("value")
    metadata = as_object(value.get("metadata"))
    reason = metadata.get("reason")
    return as_object(metadata.get("langgraph")).get("raw") if reason is None or isinstance(reason, str) else reason


def encode_answer(schema: JsonObject | None, value: Any, *, declined: bool) -> JsonObject:
    """Return the members `status` and `payload` of the answer to an interrupt. A declined question is `cancelled`. If
    its schema has a member `approved`, it is answered with `approved: false` instead."""
    if not declined:
        return {"status": "resolved", "payload": value}
    if "approved" in as_object((schema or {}).get("properties")):
        return {"status": "resolved", "payload": {"approved": False}}
    return {"status": "cancelled"}
