"""Questions encoded as forms, and submitted forms decoded as answers."""

import json
from typing import Any

import pytest

from babelgate.adapters.mcp.codec.questions import (
    Form,
    decode_form,
    decode_response,
    encode_form,
    encode_question,
    encode_request,
    form_text,
    method_of,
)
from babelgate.canonical import Message, ToolCallPart
from babelgate.canonical.event import InterruptRaised
from babelgate.canonical.value import Json

FLAT = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name"]}
NESTED = {"type": "object", "properties": {"of": {"type": "object"}}}


def question_of(schema: Any = None, **more: Any) -> InterruptRaised:
    return InterruptRaised(interrupt_id="i", message=Message.of("Which?"), answer_schema=schema, **more)


def test_a_question_without_a_schema_asks_for_one_string() -> None:
    form = encode_form(question_of())
    assert form == {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
    assert decode_form(question_of(), {"answer": "this"}) == "this"


def test_the_schema_of_a_flat_object_is_the_form() -> None:
    assert encode_form(question_of(FLAT)) == FLAT
    assert decode_form(question_of(FLAT), {"name": "Ada"}) == {"name": "Ada"}


@pytest.mark.parametrize(("schema", "value"), [({"type": "boolean"}, True), ({"type": "integer", "minimum": 1}, 5)])
def test_a_plain_value_is_the_only_member_of_a_form(schema: Any, value: Json) -> None:
    assert encode_form(question_of(schema))["properties"] == {"answer": schema}
    assert decode_form(question_of(schema), {"answer": value}) == value


@pytest.mark.parametrize("schema", [NESTED, {"type": "array"}, {"anyOf": [FLAT]}, {}, {"type": "object"}])
def test_any_other_value_is_json_in_a_string(schema: Any) -> None:
    assert encode_form(question_of(schema))["properties"]["answer"]["type"] == "string"
    assert "schema" in form_text(question_of(schema))
    assert decode_form(question_of(schema), {"answer": '{"of": {"a": [1]}}'}) == {"of": {"a": [1]}}
    assert decode_form(question_of(schema), {"answer": "no JSON"}) == "no JSON"


def test_an_empty_form_is_no_answer() -> None:
    assert decode_form(question_of(), None) is None


def test_a_call_of_a_callers_tool_is_a_question() -> None:
    call = ToolCallPart(call_id="c", name="find", arguments='{"a": 1}', side="caller")
    encoded = encode_question(InterruptRaised(interrupt_id="i", message=Message(parts=(call,)), value={"name": "find"}))
    assert encoded.pop("call") == {"id": "c", "name": "find", "arguments": '{"a": 1}'}
    assert encoded == {"id": "i", "kind": "input", "message": 'find({"a": 1})', "value": {"name": "find"}}


TITLED = [{"const": "a", "title": "The first"}, {"const": "b", "title": "The second"}]


@pytest.mark.parametrize(
    "field",
    [
        {"type": "string", "enum": ["a", "b"]},
        {"type": "string", "oneOf": TITLED},
        {"type": "string", "enum": ["a", "b"], "enumNames": ["The first", "The second"]},
        {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
        {"type": "array", "items": {"anyOf": TITLED}},
    ],
)
def test_choices_of_strings_are_members_of_forms(field: Any) -> None:
    schema = {"type": "object", "properties": {"which": field}}
    assert encode_form(question_of(schema)) == schema


@pytest.mark.parametrize(
    "field",
    [
        {"type": "string", "oneOf": []},
        {"type": "string", "oneOf": [{"type": "object"}]},
        {"type": "integer", "oneOf": [{"const": 1}]},
        {"type": "array", "items": {"type": "object"}},
        {"type": "array", "items": {"$ref": "#/x"}},
        {"type": "array"},
    ],
)
def test_other_choices_are_not_members_of_forms(field: Any) -> None:
    assert "answer" in encode_form(question_of({"type": "object", "properties": {"which": field}}))["properties"]


def tool_call(name: str, arguments: str = "{}") -> InterruptRaised:
    call = ToolCallPart(call_id="c", name=name, arguments=arguments, side="caller")
    return InterruptRaised(interrupt_id="i", message=Message(parts=(call,)))


@pytest.mark.parametrize(
    ("method", "params", "reply"),
    [
        (
            "sampling/createMessage",
            {"messages": [], "maxTokens": 1},
            {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m", "stopReason": "endTurn"},
        ),
        ("roots/list", {}, {"roots": [{"uri": "file:///a"}]}),
    ],
)
def test_a_client_method_is_answered_by_its_result(method: str, params: Any, reply: Any) -> None:
    question = tool_call(method, json.dumps(params))
    assert encode_request(question) == {"method": method, "params": params}
    form = decode_response(question, reply)
    assert form == Form("accept", reply)
    assert decode_form(question, reply) == reply
    wrongs: tuple[Any, ...] = ({"action": "accept", "content": {}}, None, 5, {})
    for wrong in wrongs:
        assert decode_response(question, wrong) is None


def test_any_other_tool_call_is_a_form() -> None:
    assert method_of(tool_call("weather")) == "elicitation/create"
    assert encode_request(tool_call("weather"))["params"]["requestedSchema"]["required"] == ["answer"]
    assert decode_response(tool_call("weather"), {"action": "decline"}) == Form("decline", None)
    for wrong in (12345, None, {"action": "maybe"}, {"action": "accept", "content": 5}):
        assert decode_response(tool_call("weather"), wrong) is None
