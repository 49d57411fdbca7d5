"""Questions of agents, in structured results and as requests to the caller, and the answers to them. A question becomes
a form, unless the agent calls a method of the protocol as a tool of its caller: then it becomes a request with that
method."""

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
"""Name of the only field of a form whose answer is not an object."""

FORM: Final = "elicitation/create"
"""Method of a form."""
PAGE: Final = "elicitation/create (url)"
"""Key of the capability for the same method in the mode `url`: the caller opens a page in its user's browser."""

CAPABILITIES: Final[Mapping[str, str]] = {
    FORM: "elicitation",
    PAGE: "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
"""Client capabilities, by the method that requires them."""

_REPLIES: Final[Mapping[str, type[w.Wire]]] = {"sampling/createMessage": w.Sampled, "roots/list": w.Roots}
"""Types of results, by the methods other than forms."""

_PLAIN: Final = frozenset({"string", "number", "integer", "boolean"})
"""Types of plain fields."""
_FORM_KEYWORDS: Final = frozenset({"type", "properties", "required", "title", "description", "$schema"})
"""Keywords of a schema that a form may have."""


def question_text(question: Question) -> str:
    """Return the question's text. A call of a caller's tool is shown as a call."""
    if question.message.text:
        return question.message.text
    calls = [part for part in question.message.parts if isinstance(part, ToolCallPart)]
    return ", ".join(f"{call.name}({call.arguments})" for call in calls) or "The agent needs an answer."


def encode_question(question: Question) -> JsonObject:
    """Return the question as a member of a structured result."""
    encoded: JsonObject = {"id": question.interrupt_id or "", "kind": question.ask, "message": question_text(question)}
    if question.answer_schema is not None:
        encoded["schema"] = question.answer_schema
    if question.value is not None:
        encoded["value"] = question.value
    return encoded


@dataclass(frozen=True, slots=True)
class Form:
    """A caller's response to a question."""

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] | None
    """The fields of a form, or the whole result of another method."""


def method_of(question: Question) -> str:
    """Return the method of the request that asks the question, as a key of `CAPABILITIES`."""
    call = _call_of(question)
    if call is None:
        return FORM if page_of(question) is None else PAGE
    return call.name


def page_of(question: Question) -> str | None:
    """Return the URL of a page on which the user answers a question of the gateway, or None. The URL of an agent is
    data: the gateway does not send a user there."""
    value: object = question.value
    if question.asker != "gateway" or not isinstance(value, dict):
        return None
    url = cast("JsonObject", value).get("url")
    return url if isinstance(url, str) else None


def encode_request(question: Question, *, has_id: bool = False) -> JsonObject:
    """Return the method and params of the request. `has_id` is true for versions in which a page has an id
    (2025-11-25)."""
    call, page = _call_of(question), page_of(question)
    if call is None and page is not None:
        # SPEC/client/elicitation, URL Mode Elicitation Requests
        params: JsonObject = {"mode": "url", "message": form_text(question), "url": page}
        return {"method": FORM, "params": {**params, "elicitationId": question.interrupt_id} if has_id else params}
    if call is None:
        params = {"mode": "form", "message": form_text(question), "requestedSchema": encode_form(question)}
        return {"method": FORM, "params": params}
    arguments = parse_text(call.arguments)
    return {"method": call.name, "params": arguments if isinstance(arguments, dict) else {}}


def decode_response(question: Question, response: object) -> Form | None:
    """Return the caller's response to a question. Return None if it is not a valid response."""
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
    """Return the call of a caller's tool that is a method other than a form. Return None for every other question."""
    calls = [part for part in question.message.parts if isinstance(part, ToolCallPart)]
    return calls[0] if len(calls) == 1 and calls[0].name in _REPLIES else None


def encode_form(question: Question) -> JsonObject:
    """Return the schema of a form. SPEC/client/elicitation, Requested schema: a flat object of plain fields or
    choices."""
    schema = question.answer_schema
    if schema is None:
        return _one_field({"type": "string"})
    if _is_flat(schema):
        return {name: value for name, value in schema.items() if name in ("type", "properties", "required")}
    if _is_plain(schema):
        return _one_field(schema)
    return _one_field({"type": "string", "description": "JSON, of the schema that the question names."})


def form_text(question: Question) -> str:
    """Return the text of a form. If the answer is JSON, the text includes its schema."""
    schema = question.answer_schema
    if schema is None or _is_flat(schema) or _is_plain(schema):
        return question_text(question)
    return f"{question_text(question)}\n\nAnswer with JSON of this schema: {schema}"


def decode_form(question: Question, content: Mapping[str, Any] | None) -> Json:
    """Return the value of the answer from the `content` of a filled form (None: an empty one)."""
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
    """Return True if a form can have this schema."""
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
    """Return True for a string field with named options. SPEC/client/elicitation, Requested Schema (SEP-1330)."""
    options: object = schema.get(titled)
    if not isinstance(options, list) or schema.get("type", "string") != "string" or "$ref" in schema:
        return False
    members = cast("list[object]", options)
    return bool(members) and all(
        isinstance(each, dict) and isinstance(cast("JsonObject", each).get("const"), str) for each in members
    )


def _are_choices(schema: JsonObject) -> bool:
    """Return True for a list of strings with named options."""
    items: object = schema.get("items")
    if schema.get("type") != "array" or not isinstance(items, dict) or "$ref" in schema:
        return False
    of = cast("JsonObject", items)
    return _is_choice(of, "anyOf") or (of.get("type") == "string" and isinstance(of.get("enum"), list))
