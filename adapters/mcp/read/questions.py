"""Requests of another server for input (elicitation) as questions, and the answers to them as results."""

from typing import Any, cast

from babelgate.adapters.kit.json import json_text
from babelgate.adapters.mcp.codec.questions import ANSWER
from babelgate.canonical import Message, ToolCallPart
from babelgate.canonical.event import InterruptAnswered, InterruptRaised
from babelgate.canonical.json import as_object, as_text
from babelgate.canonical.value import Json, JsonObject

PROTOCOL = "mcp"


def decode_request(params: JsonObject, extra: JsonObject, mark: JsonObject | None = None) -> InterruptRaised:
    """Return the question that an elicitation asks (SPEC/client/elicitation). `extra` is stored with the question.

    `mark` is the question as another Babelgate marks it; without one, it may be in the `_meta` of the request. A page
    is a question of the kind `auth`, whose value has the URL.
    """
    text = params.get("message")
    message = Message.of(text if isinstance(text, str) and text else "The agent needs an answer.")
    url = params.get("url")
    if params.get("mode") == "url" and isinstance(url, str):
        value: JsonObject = {"url": url}
        return InterruptRaised(ask="auth", message=message, value=value, extra={PROTOCOL: {**extra, "mode": "url"}})
    form = as_object(params.get("requestedSchema"))
    stored: JsonObject = {**extra, "form": form}
    question = mark or as_object(as_object(as_object(params.get("_meta")).get("babelgate")).get("question"))
    if question:
        kind: Any = question.get("kind")
        message = _marked_message(question) or message
        schema: object = question.get("schema")
        return InterruptRaised(
            ask=kind if kind in ("input", "approval", "auth") else "input",
            message=message,
            value=question.get("value"),
            answer_schema=cast("JsonObject", schema) if isinstance(schema, dict) else None,
            extra={PROTOCOL: stored},
        )
    return InterruptRaised(message=message, answer_schema=_answer_schema(form), extra={PROTOCOL: stored})


def _marked_message(question: JsonObject) -> Message | None:
    """Return the message of a question that another Babelgate marks: its text, or a call of the caller's tool."""
    call = as_object(question.get("call"))
    name = as_text(call.get("name"))
    if name:
        arguments = as_text(call.get("arguments"))
        part = ToolCallPart(call_id=as_text(call.get("id")) or name, name=name, arguments=arguments, side="caller")
        return Message(parts=(part,))
    text = as_text(question.get("message"))
    return Message.of(text) if text else None


def _answer_schema(form: JsonObject) -> JsonObject | None:
    """Return the schema of the answer to a form. A form with one field takes the field's value as its answer."""
    fields = as_object(form.get("properties"))
    if not fields:
        return None
    if len(fields) == 1:
        (field,) = fields.values()
        schema = as_object(field)
        return None if schema == {"type": "string"} else schema
    return form


def encode_answer(answer: InterruptAnswered, question: InterruptRaised | None) -> JsonObject:
    """Return the result of an elicitation (SPEC/client/elicitation, Response Actions) for the caller's answer."""
    if answer.action != "answer":
        return {"action": "decline"}
    stored = as_object(None if question is None else question.extra.get(PROTOCOL))
    if stored.get("mode") == "url":
        return {"action": "accept"}
    fields = as_object(as_object(stored.get("form")).get("properties"))
    return {"action": "accept", "content": _content(fields, answer.value)}


def _content(fields: JsonObject, value: Json) -> JsonObject:
    if len(fields) != 1:
        return value if isinstance(value, dict) else {ANSWER: value}
    (name,) = fields
    if isinstance(value, dict) and name in value and len(value) == 1:
        return value
    is_text = as_object(fields[name]).get("type") == "string"
    return {name: json_text(value) if is_text and not isinstance(value, str) else value}
