"""Questions of agents in tool results and as MCP requests to the caller, and the answers to them.

A question becomes a form (elicitation). If the agent calls a method of MCP such as `sampling/createMessage` as a tool
of its caller, the question becomes a request with this method.
"""

from collections.abc import Iterable, Mapping
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
"""Name of the only field of a form for an answer that is not an object of plain fields."""

FORM: Final = "elicitation/create"
"""Method of the request that asks the caller to fill in a form."""
PAGE: Final = "elicitation/create (url)"
"""Key in `CAPABILITIES` for elicitation in the mode `url`, in which the user answers on a web page. The method is the
same as that of a form."""

CAPABILITIES: Final[Mapping[str, str]] = {
    FORM: "elicitation",
    PAGE: "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
"""Client capability that a request needs, by the request's method."""

_REPLIES: Final[Mapping[str, type[w.Wire]]] = {"sampling/createMessage": w.Sampled, "roots/list": w.Roots}
"""Type of the result by method, for requests other than elicitation."""

_PLAIN: Final = frozenset({"string", "number", "integer", "boolean"})
"""Types of form fields with a single value."""
_FORM_KEYWORDS: Final = frozenset({"type", "properties", "required", "title", "description", "$schema"})
"""Keywords that the schema of a form may have."""


def question_text(question: Question) -> str:
    """Return the text of the question, or else the calls in it as `name(arguments)`."""
    if question.message.text:
        return question.message.text
    calls = [part for part in question.message.parts if isinstance(part, ToolCallPart)]
    return ", ".join(f"{call.name}({call.arguments})" for call in calls) or "The agent needs an answer."


def encode_question(question: Question) -> JsonObject:
    """Return the question as a JSON object for the structured content of a result."""
    encoded: JsonObject = {"id": question.interrupt_id or "", "kind": question.ask, "message": question_text(question)}
    if question.answer_schema is not None:
        encoded["schema"] = question.answer_schema
    if question.value is not None:
        encoded["value"] = question.value
    calls = [part for part in question.message.parts if isinstance(part, ToolCallPart)]
    if len(calls) == 1:
        encoded["call"] = {"id": calls[0].call_id, "name": calls[0].name, "arguments": calls[0].arguments}
    return encoded


def encode_questions(questions: Iterable[Question]) -> JsonObject:
    """Return the mark of a result that asks questions: each question with its own schema, by id."""
    return {"questions": {each.interrupt_id or "": encode_question(each) for each in questions}}


@dataclass(frozen=True, slots=True)
class Form:
    """Response of a caller to a question, decoded from the result of a request."""

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] | None
    """Fields of the form, or the whole result of another method. None: no fields."""


def method_of(question: Question) -> str:
    """Return the key in `CAPABILITIES` for the request that asks the question: `FORM`, `PAGE`, or another method of
    MCP."""
    call = _call_of(question)
    if call is None:
        return FORM if page_of(question) is None else PAGE
    return call.name


def page_of(question: Question) -> str | None:
    """Return the URL of the web page on which the user answers the question. Return None unless the gateway itself
    asks: a URL in an agent's question is only data."""
    value: object = question.value
    if question.asker != "gateway" or not isinstance(value, dict):
        return None
    url = cast("JsonObject", value).get("url")
    return url if isinstance(url, str) else None


def encode_request(question: Question, *, has_id: bool = False) -> JsonObject:
    """Return the method and the params of the request that asks the question. `has_id`: the caller's version
    (2025-11-25) needs an id in requests to open a page."""
    call, page = _call_of(question), page_of(question)
    if call is None and page is not None:
        # SPEC/client/elicitation, URL Mode Elicitation Requests
        params: JsonObject = {"mode": "url", "message": form_text(question), "url": page}
        return {"method": FORM, "params": {**params, "elicitationId": question.interrupt_id} if has_id else params}
    if call is None:
        params = {"mode": "form", "message": form_text(question), "requestedSchema": encode_form(question)}
        if has_id:  # for another Babelgate; requests of 2026-07-28 have no `_meta`, so their result has it
            params["_meta"] = {"babelgate": {"question": encode_question(question)}}
        return {"method": FORM, "params": params}
    arguments = parse_text(call.arguments)
    return {"method": call.name, "params": arguments if isinstance(arguments, dict) else {}}


def decode_response(question: Question, response: object) -> Form | None:
    """Return the caller's response to a question, or None if the result has not the form that its method requires."""
    reply = _REPLIES.get(method_of(question))
    try:
        if reply is None:
            elicited = w.Elicited.model_validate(response)
            return Form(elicited.action, elicited.content)
        reply.model_validate(response)
    except ValidationError:
        return None
    return Form("accept", cast("JsonObject", response))


def _call_of(question: Question) -> ToolCallPart | None:
    """Return the tool call in the question if it calls a method of MCP other than elicitation. Return None for any
    other question."""
    calls = [part for part in question.message.parts if isinstance(part, ToolCallPart)]
    return calls[0] if len(calls) == 1 and calls[0].name in _REPLIES else None


def encode_form(question: Question) -> JsonObject:
    """Return the schema of a form for the question's answer: a flat object of plain fields or choices
    (SPEC/client/elicitation, Requested Schema). An answer of any other type is one text field for JSON."""
    schema = question.answer_schema
    if schema is None:
        return _one_field({"type": "string"})
    if _is_flat(schema):
        return {name: value for name, value in schema.items() if name in ("type", "properties", "required")}
    if _is_plain(schema):
        return _one_field(schema)
    return _one_field({"type": "string", "description": "JSON, of the schema that the question names."})


def form_text(question: Question) -> str:
    """Return the text of a form. If the form has one text field for JSON, the text contains the answer's schema."""
    schema = question.answer_schema
    if schema is None or _is_flat(schema) or _is_plain(schema):
        return question_text(question)
    return f"{question_text(question)}\n\nAnswer with JSON of this schema: {schema}"


def decode_form(question: Question, content: Mapping[str, Any] | None) -> Json:
    """Return the answer to a question from the fields of a form, or from the result of another method. None counts as
    no fields."""
    fields = dict(content or {})
    if _call_of(question) is not None:
        return fields
    schema = question.answer_schema
    if schema is not None and _is_flat(schema):
        return fields
    value: Json = fields.get(ANSWER)
    if schema is not None and not _is_plain(schema) and isinstance(value, str):
        parsed = parse_text(value)
        return value if parsed is ABSENT else parsed
    return value


def _one_field(schema: JsonObject) -> JsonObject:
    return {"type": "object", "properties": {ANSWER: schema}, "required": [ANSWER]}


def _is_flat(schema: JsonObject) -> bool:
    """Return True if the schema is an object whose members are all possible as form fields."""
    members: object = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(members, dict) or not members:
        return False
    has_form_keywords = schema.keys() <= _FORM_KEYWORDS | {"additionalProperties"}
    fields = cast("JsonObject", members).values()
    return has_form_keywords and all(isinstance(each, dict) and _is_field(cast("JsonObject", each)) for each in fields)


def _is_field(schema: JsonObject) -> bool:
    return _is_plain(schema) or _is_choice(schema, "oneOf") or _are_choices(schema)


def _is_plain(schema: JsonObject) -> bool:
    kind: object = schema.get("type")
    return isinstance(kind, str) and kind in _PLAIN and not {"$ref", "anyOf", "oneOf", "allOf", "not"} & schema.keys()


def _is_choice(schema: JsonObject, titled: str) -> bool:
    """Return True for the schema of a string with named options in the keyword `titled` (SPEC/client/elicitation,
    Requested Schema, SEP-1330)."""
    options: object = schema.get(titled)
    if not isinstance(options, list) or schema.get("type", "string") != "string" or "$ref" in schema:
        return False
    members = cast("list[object]", options)
    return bool(members) and all(
        isinstance(each, dict) and isinstance(cast("JsonObject", each).get("const"), str) for each in members
    )


def _are_choices(schema: JsonObject) -> bool:
    """Return True for the schema of a list of strings with fixed options."""
    items: object = schema.get("items")
    if schema.get("type") != "array" or not isinstance(items, dict) or "$ref" in schema:
        return False
    of = cast("JsonObject", items)
    return _is_choice(of, "anyOf") or (of.get("type") == "string" and isinstance(of.get("enum"), list))
