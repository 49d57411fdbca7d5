"""Questions as forms, and what is filled in as answers."""

from typing import Any

import pytest

from adapters.mcp.codec.questions import decode_form, encode_form, encode_question, form_text
from canonical import Message, ToolCallPart
from canonical.event import InterruptRaised
from canonical.value import Json

FLAT = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name"]}
NESTED = {"type": "object", "properties": {"of": {"type": "object"}}}


def asked(schema: Any = None, **more: Any) -> InterruptRaised:
    return InterruptRaised(interrupt_id="i", message=Message.of("Which?"), answer_schema=schema, **more)


def test_a_question_without_a_schema_is_a_form_of_one_text() -> None:
    form = encode_form(asked())
    assert form == {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
    assert decode_form(asked(), {"answer": "this"}) == "this"


def test_a_flat_object_is_a_form_as_it_is() -> None:
    assert encode_form(asked(FLAT)) == FLAT
    assert decode_form(asked(FLAT), {"name": "Ada"}) == {"name": "Ada"}


@pytest.mark.parametrize(("schema", "value"), [({"type": "boolean"}, True), ({"type": "integer", "minimum": 1}, 5)])
def test_a_plain_value_is_the_only_member_of_a_form(schema: Any, value: Json) -> None:
    assert encode_form(asked(schema))["properties"] == {"answer": schema}
    assert decode_form(asked(schema), {"answer": value}) == value


@pytest.mark.parametrize("schema", [NESTED, {"type": "array"}, {"anyOf": [FLAT]}, {}, {"type": "object"}])
def test_any_other_value_is_json_in_a_text_and_the_words_name_its_schema(schema: Any) -> None:
    assert encode_form(asked(schema))["properties"]["answer"]["type"] == "string"
    assert "schema" in form_text(asked(schema))
    assert decode_form(asked(schema), {"answer": '{"of": {"a": [1]}}'}) == {"of": {"a": [1]}}
    assert decode_form(asked(schema), {"answer": "no JSON"}) == "no JSON"


def test_an_empty_form_is_no_answer() -> None:
    assert decode_form(asked(), None) is None


def test_a_call_of_a_tool_of_the_caller_is_told_as_the_call() -> None:
    call = ToolCallPart(call_id="c", name="find", arguments='{"a": 1}', side="caller")
    told = encode_question(InterruptRaised(interrupt_id="i", message=Message(parts=(call,)), value={"name": "find"}))
    assert told == {"id": "i", "kind": "input", "message": 'find({"a": 1})', "value": {"name": "find"}}
