"""Questions of agents, as members of a structured result and as forms; and answers to them."""

from collections.abc import Mapping
from typing import Any, Final, cast

from adapters._json import ABSENT, parse_text
from canonical import DataPart, Message, TextPart, ToolCallPart
from canonical.event import InterruptRaised
from canonical.thread import Interrupt
from canonical.value import Json, JsonObject

Question = InterruptRaised | Interrupt

ANSWER: Final = "answer"
"""The one member of a form for an answer that is no object."""

_PLAIN: Final = frozenset({"string", "number", "integer", "boolean"})
_OF_A_FORM: Final = frozenset({"type", "properties", "required", "title", "description", "$schema"})


def question_text(asked: Question) -> str:
    """Its words; of a call of a caller's tool, the call."""
    if asked.message.text:
        return asked.message.text
    calls = [part for part in asked.message.parts if isinstance(part, ToolCallPart)]
    return ", ".join(f"{call.name}({call.arguments})" for call in calls) or "The agent needs an answer."


def encode_question(asked: Question) -> JsonObject:
    told: JsonObject = {"id": asked.interrupt_id or "", "kind": asked.ask, "message": question_text(asked)}
    if asked.answer_schema is not None:
        told["schema"] = asked.answer_schema
    if asked.value is not None:
        told["value"] = asked.value
    return told


def encode_form(asked: Question) -> JsonObject:
    """SPEC/client/elicitation, Requested schema: a flat object, whose members are plain."""
    schema = asked.answer_schema
    if schema is None:
        return _one_field({"type": "string"})
    if _is_flat(schema):
        return {name: value for name, value in schema.items() if name in ("type", "properties", "required")}
    if _is_plain(schema):
        return _one_field(schema)
    return _one_field({"type": "string", "description": "JSON, of the schema that the question names."})


def form_text(asked: Question) -> str:
    """The words of a form; where its answer is JSON, with the schema of it."""
    schema = asked.answer_schema
    if schema is None or _is_flat(schema) or _is_plain(schema):
        return question_text(asked)
    return f"{question_text(asked)}\n\nAnswer with JSON of this schema: {schema}"


def decode_form(asked: Question, content: Mapping[str, Any] | None) -> Json:
    """The value of the answer."""
    given = dict(content or {})
    schema = asked.answer_schema
    if schema is not None and _is_flat(schema):
        return given
    value: Json = given.get(ANSWER)
    if schema is not None and not _is_plain(schema) and isinstance(value, str):
        parsed = parse_text(value)
        return value if parsed is ABSENT else parsed
    return value


def said_answer(value: Json) -> Message:
    """An answer as a message of the caller's."""
    part = TextPart(text=value) if isinstance(value, str) else DataPart(data=value)
    return Message(role="user", parts=(part,))


def _one_field(schema: JsonObject) -> JsonObject:
    return {"type": "object", "properties": {ANSWER: schema}, "required": [ANSWER]}


def _is_flat(schema: JsonObject) -> bool:
    members: object = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(members, dict) or not members:
        return False
    known = schema.keys() <= _OF_A_FORM | {"additionalProperties"}
    named = cast("JsonObject", members).values()
    return known and all(isinstance(each, dict) and _is_plain(cast("JsonObject", each)) for each in named)


def _is_plain(schema: JsonObject) -> bool:
    kind: object = schema.get("type")
    return isinstance(kind, str) and kind in _PLAIN and not {"$ref", "anyOf", "oneOf", "allOf", "not"} & schema.keys()
