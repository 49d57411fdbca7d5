"""Questions of agents, as members of a structured result and as requests to the caller: by forms, or, where the agent
calls a method of the protocol as a tool of its caller's, by that; and answers to them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from pydantic import ValidationError

from babelgate.adapters.kit.json import ABSENT, parse_text
from babelgate.adapters.mcp import wire as w
from babelgate.canonical import ToolCallPart
from babelgate.canonical.event import InterruptRaised
from babelgate.canonical.thread import Interrupt
from babelgate.canonical.value import Json, JsonObject

Question = InterruptRaised | Interrupt

ANSWER: Final = "answer"
"""The one member of a form for an answer that is no object."""

FORM: Final = "elicitation/create"

CAPABILITIES: Final[Mapping[str, str]] = {
    FORM: "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
"""What a client declares that answers the method."""

_REPLIES: Final[Mapping[str, type[w.Wire]]] = {"sampling/createMessage": w.Sampled, "roots/list": w.Roots}

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


@dataclass(frozen=True, slots=True)
class Form:
    """What became of a question."""

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] | None
    """Of a form, or the whole result of another method."""


def method_of(asked: Question) -> str:
    """What its caller is asked by."""
    call = _call_of(asked)
    return FORM if call is None else call.name


def encode_request(asked: Question) -> JsonObject:
    """Method and params."""
    call = _call_of(asked)
    if call is None:
        form = {"mode": "form", "message": form_text(asked), "requestedSchema": encode_form(asked)}
        return {"method": FORM, "params": form}
    arguments = parse_text(call.arguments)
    return {"method": call.name, "params": arguments if isinstance(arguments, dict) else {}}


def decode_response(asked: Question, given: object) -> Form | None:
    """None for what is no answer to it."""
    reply = _REPLIES.get(method_of(asked))
    try:
        if reply is None:
            elicited = w.Elicited.model_validate(given)
            return Form(elicited.action, elicited.content)
        reply.model_validate(given)
    except ValidationError:
        return None
    return Form("accept", cast("JsonObject", given))


def _call_of(asked: Question) -> ToolCallPart | None:
    """Of a method that answers it."""
    calls = [part for part in asked.message.parts if isinstance(part, ToolCallPart)]
    return calls[0] if len(calls) == 1 and calls[0].name in _REPLIES else None


def encode_form(asked: Question) -> JsonObject:
    """SPEC/client/elicitation, Requested schema: a flat object, whose members are plain, or choices."""
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
    if _call_of(asked) is not None:
        return given
    schema = asked.answer_schema
    if schema is not None and _is_flat(schema):
        return given
    value: Json = given.get(ANSWER)
    if schema is not None and not _is_plain(schema) and isinstance(value, str):
        parsed = parse_text(value)
        return value if parsed is ABSENT else parsed
    return value


def _one_field(schema: JsonObject) -> JsonObject:
    return {"type": "object", "properties": {ANSWER: schema}, "required": [ANSWER]}


def _is_flat(schema: JsonObject) -> bool:
    members: object = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(members, dict) or not members:
        return False
    known = schema.keys() <= _OF_A_FORM | {"additionalProperties"}
    named = cast("JsonObject", members).values()
    return known and all(isinstance(each, dict) and _is_field(cast("JsonObject", each)) for each in named)


def _is_field(schema: JsonObject) -> bool:
    return _is_plain(schema) or _is_choice(schema, "oneOf") or _are_choices(schema)


def _is_plain(schema: JsonObject) -> bool:
    kind: object = schema.get("type")
    return isinstance(kind, str) and kind in _PLAIN and not {"$ref", "anyOf", "oneOf", "allOf", "not"} & schema.keys()


def _is_choice(schema: JsonObject, titled: str) -> bool:
    """SPEC/client/elicitation, Requested Schema (SEP-1330): a string of some that are named, with titles or without."""
    options: object = schema.get(titled)
    if not isinstance(options, list) or schema.get("type", "string") != "string" or "$ref" in schema:
        return False
    members = cast("list[object]", options)
    return bool(members) and all(
        isinstance(each, dict) and isinstance(cast("JsonObject", each).get("const"), str) for each in members
    )


def _are_choices(schema: JsonObject) -> bool:
    """The same, of several strings."""
    items: object = schema.get("items")
    if schema.get("type") != "array" or not isinstance(items, dict) or "$ref" in schema:
        return False
    of = cast("JsonObject", items)
    return _is_choice(of, "anyOf") or (of.get("type") == "string" and isinstance(of.get("enum"), list))
