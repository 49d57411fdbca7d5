"""Questions of agents as JSON-RPC requests to the client, and the client's answers.

A question for a yes or a no, or for a choice, is a permission request. Any other question is a form if the client can
show forms. A question that the gateway itself asks can be a page that the client opens. All others are text, which the
next prompt answers.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal, cast, get_args

from babelgate.adapters.agent_client import wire as w
from babelgate.adapters.agent_client.codec.content import text_block
from babelgate.adapters.kit.json import json_text
from babelgate.canonical import ToolCallPart
from babelgate.canonical.event import InterruptRaised
from babelgate.canonical.json import as_list, as_object, as_text, objects_in
from babelgate.canonical.thread import Interrupt
from babelgate.canonical.value import Json, JsonObject

Question = InterruptRaised | Interrupt

OptionKind = Literal["allow_once", "allow_always", "reject_once", "reject_always"]

_CHOICES: Final = 20
"""Maximum number of options of a permission request. Chosen: a dialog with more is not readable."""
_FIELD: Final = "answer"
"""Name of the only field of a form, if the answer is not an object."""
_PLAIN: Final = frozenset({"string", "number", "integer", "boolean"})
_FORM_KEYWORDS: Final = frozenset({"type", "properties", "required", "title", "description", "$schema"})
_NEGATIVE: Final = frozenset({"no", "n", "false", "reject", "rejected", "deny", "decline", "cancel", "abort", "stop"})
"""Choices, in lower case, whose option in a permission request is a `reject_once`."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a permission request. `value` is the answer that a user gives with this option."""

    id: str
    name: str
    kind: OptionKind
    value: Json = None


@dataclass(frozen=True, slots=True)
class QuestionReply:
    """Answer of the user to one question: a value, or the decision to decline it."""

    value: Json = None
    is_decline: bool = False


def question_text(question: Question) -> str:
    """Return the text that shows a question: its message, or else the tool calls in it, or else its value as JSON, or
    else a fixed sentence."""
    if question.message.text:
        return question.message.text
    calls = [part for part in question.message.parts if isinstance(part, ToolCallPart)]
    if calls:
        return ", ".join(f"{call.name}({call.arguments})" for call in calls)
    return "The agent waits for your answer." if question.value is None else json_text(question.value)


def question_members(question: Question) -> JsonObject:
    """Return a question as the object `question` in `_meta.babelgate`, with its id, kind and text, and its schema,
    value and call of a tool of the caller if any."""
    members: JsonObject = {"id": question.interrupt_id or "", "kind": question.ask, "message": question_text(question)}
    if question.answer_schema is not None:
        members["schema"] = question.answer_schema
    if question.value is not None:
        members["value"] = question.value
    for part in question.message.parts:
        if isinstance(part, ToolCallPart) and part.side == "caller":
            members["call"] = {"id": part.call_id, "name": part.name, "arguments": part.arguments}
    return members


def options_of(question: Question) -> tuple[Option, ...]:
    """Return the options with which a permission request asks a question, for example Allow and Reject. Empty for a
    question that a permission request cannot ask."""
    if question.ask == "auth" or _is_call(question):
        return ()
    schema = question.answer_schema
    if not schema:
        return _yes_no() if question.ask == "approval" else ()
    return _permission_options(question, schema) or _options(schema)


def _permission_options(question: Question, schema: JsonObject) -> tuple[Option, ...]:
    """Return the options of the permission request of an agent of this protocol, as the agent offers them. Empty for
    any other question, and for options that the schema of the answer does not name."""
    offered = objects_in(as_object(question.value).get("options"))
    if question.ask != "approval" or not offered or not permission_call(question):
        return ()
    is_plain = schema.get("type") == "boolean"
    options: list[Option] = []
    for each in offered:
        option_id, kind = as_text(each.get("optionId")), as_text(each.get("kind"))
        if kind not in get_args(OptionKind) or not (is_plain or option_id in as_list(schema.get("enum"))):
            return ()
        value: Json = kind.startswith("allow") if is_plain else option_id
        options.append(Option(option_id, as_text(each.get("name")) or option_id, cast("OptionKind", kind), value))
    return tuple(options)


def permission_call(question: Question) -> JsonObject:
    """Return the tool call for which an agent of this protocol asks for permission. Empty for any other question."""
    return as_object(as_object(question.value).get("toolCall"))


def _options(schema: JsonObject) -> tuple[Option, ...]:
    if schema.get("type") == "boolean":
        return _yes_no()
    words: object = schema.get("enum")
    if isinstance(words, list) and 0 < len(cast("list[Any]", words)) <= _CHOICES:
        return tuple(_choice(number, word) for number, word in enumerate(cast("list[Json]", words)))
    properties: object = schema.get("properties")
    if isinstance(properties, dict) and len(cast("JsonObject", properties)) == 1:
        ((name, inner),) = cast("JsonObject", properties).items()
        options = _options(cast("JsonObject", inner)) if isinstance(inner, dict) else ()
        return tuple(Option(each.id, each.name, each.kind, {name: each.value}) for each in options)
    return ()


def _yes_no() -> tuple[Option, ...]:
    return (Option("allow", "Allow", "allow_once", True), Option("reject", "Reject", "reject_once", False))


def _choice(number: int, word: Json) -> Option:
    name = word if isinstance(word, str) and word else json_text(word)
    is_refusal = word is False or name.lower() in _NEGATIVE
    return Option(f"{number}", name, "reject_once" if is_refusal else "allow_once", word)


def can_fill_form(question: Question, elicitation: w.Elicitations | None) -> bool:
    """Return True if the client can show forms, and the answer schema of the question fits into one. `elicitation` is
    the client's capability."""
    if elicitation is None or elicitation.form is None or question.ask == "auth" or _is_call(question):
        return False
    schema = question.answer_schema
    return schema is None or _is_field(schema) or _is_flat(schema)


def page_of(question: Question, elicitation: w.Elicitations | None) -> str | None:
    """Return the URL of the page on which the user answers a question of the gateway, if the client can open pages.
    Return None for a question of an agent, in which a URL is only data."""
    value: object = question.value
    if elicitation is None or elicitation.url is None or question.asker != "gateway" or not isinstance(value, dict):
        return None
    url: object = cast("JsonObject", value).get("url")
    return url if isinstance(url, str) else None


def can_be_asked(question: Question, elicitation: w.Elicitations | None) -> bool:
    """Return True if a question is sent to the client as a JSON-RPC request, and False if it is shown as text."""
    return bool(options_of(question)) or can_fill_form(question, elicitation) or bool(page_of(question, elicitation))


def encode_request(question: Question, session_id: str, elicitation: w.Elicitations | None) -> tuple[str, JsonObject]:
    """Return the method and the params of the JSON-RPC request that asks a question: `session/request_permission` or
    `elicitation/create`."""
    meta: JsonObject = {w.OWN: {"question": question_members(question)}}
    options = options_of(question)
    if options:
        choices = [{"optionId": each.id, "name": each.name, "kind": each.kind} for each in options]
        return w.PERMISSION, {
            "sessionId": session_id,
            "toolCall": encode_call(question),
            "options": choices,
            "_meta": meta,
        }
    params: JsonObject = {"sessionId": session_id, "message": question_text(question), "_meta": meta}
    page = page_of(question, elicitation)
    if page is not None:
        return w.ELICITATION, {**params, "mode": "url", "elicitationId": question.interrupt_id or "", "url": page}
    return w.ELICITATION, {**params, "mode": "form", "requestedSchema": _form(question.answer_schema)}


def encode_call(question: Question) -> JsonObject:
    """Return the tool call that shows a question in a permission request. It has the id of the question."""
    text = question_text(question)
    call: JsonObject = {"toolCallId": question.interrupt_id or "", "title": text, "kind": "other", "status": "pending"}
    if wanted := permission_call(question):
        # Terminals are those of the gateway, which the client does not know.
        content = [each for each in objects_in(wanted.get("content")) if each.get("type") != "terminal"]
        members = {name: wanted[name] for name in ("title", "kind", "rawInput", "locations") if name in wanted}
        return {**call, **members, **({"content": content} if content else {})}
    call["content"] = [{"type": "content", "content": text_block(text)}]
    return call if question.value is None else {**call, "rawInput": question.value}


def decode_reply(question: Question, result: JsonObject, elicitation: w.Elicitations | None) -> QuestionReply | None:
    """Return the answer in the client's result of the request that asked a question. Return None if the user has not
    answered, or answers on a page, which reports the answer itself."""
    options = options_of(question)
    if options:
        outcome = w.Permission.model_validate(result).outcome
        chosen = next((each for each in options if each.id == outcome.option_id), None)
        if outcome.outcome != "selected" or chosen is None:
            return None
        return QuestionReply(chosen.value)
    elicited = w.Elicited.model_validate(result)
    if elicited.action == "decline":
        return QuestionReply(is_decline=True)
    if elicited.action != "accept" or page_of(question, elicitation) is not None:  # a page reports its answer itself
        return None
    content = elicited.content or {}
    schema = question.answer_schema
    return QuestionReply(content if schema is not None and _is_flat(schema) else content.get(_FIELD))


def _form(schema: JsonObject | None) -> JsonObject:
    if schema is not None and _is_flat(schema):
        return {name: value for name, value in schema.items() if name in ("type", "properties", "required")}
    field: JsonObject = {"type": "string"} if schema is None else schema
    return {"type": "object", "properties": {_FIELD: field}, "required": [_FIELD]}


def _is_flat(schema: JsonObject) -> bool:
    """Return True for the schema of an object whose properties all have a plain type, so that each becomes a field of a
    form."""
    members: object = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(members, dict) or not members:
        return False
    is_plain = schema.keys() <= _FORM_KEYWORDS | {"additionalProperties"}
    fields = cast("JsonObject", members).values()
    return is_plain and all(isinstance(each, dict) and _is_field(cast("JsonObject", each)) for each in fields)


def _is_field(schema: JsonObject) -> bool:
    kind: object = schema.get("type")
    return isinstance(kind, str) and kind in _PLAIN and not {"$ref", "anyOf", "allOf", "not"} & schema.keys()


def _is_call(question: Question) -> bool:
    """Return True if the question is a call of a tool of the caller, whose result only a program can give."""
    return any(isinstance(part, ToolCallPart) and part.side == "caller" for part in question.message.parts)


def can_be_text(question: Question, elicitation: w.Elicitations | None) -> bool:
    """Return True if the next prompt is the answer to the question. Otherwise the prompt is a new input, which
    supersedes the question."""
    return question.takes_text or not can_be_asked(question, elicitation)
