"""Agents encoded as tools."""

import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from babelgate.adapters.mcp.agents import RESUME, AgentTool, encode_resume, resume_name
from babelgate.canonical import AgentInfo

OUTPUT = {
    "type": "object",
    "properties": {"words": {"$ref": "#/$defs/Count"}},
    "required": ["words"],
    "$defs": {"Count": {"type": "integer"}},
}


def tool_of(**schemas: Any) -> dict[str, Any]:
    return AgentTool.of(AgentInfo(name="an.agent_1", schemas=schemas)).encode()


@pytest.mark.parametrize("schemas", [{}, {"output": OUTPUT}, {"input": {"type": "string"}}, {"input": OUTPUT}])
def test_a_tool_has_a_name_a_description_and_schemas(schemas: Any) -> None:
    tool = tool_of(**schemas)
    assert re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", tool["name"])
    assert tool["description"]
    for name in {"inputSchema", "outputSchema"} & tool.keys():
        Draft202012Validator.check_schema(tool[name])
        assert tool[name]["type"] == "object"


def test_an_input_schema_is_extended_by_the_thread() -> None:
    tool = tool_of(input={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
    assert set(tool["inputSchema"]["properties"]) == {"city", "thread_id"}
    assert tool["inputSchema"]["required"] == ["city"]


def test_a_tool_takes_messages_unless_its_agent_forbids_all_properties() -> None:
    nothing: Any = {"type": "object", "properties": {}}
    assert "message" in tool_of(input=nothing)["inputSchema"]["properties"]
    assert set(tool_of(input={**nothing, "additionalProperties": False})["inputSchema"]["properties"]) == {"thread_id"}


def test_an_input_schema_of_messages_gives_the_default_schema() -> None:
    schema = {"type": "object", "properties": {"messages": {"type": "array"}}}
    assert tool_of(input=schema)["inputSchema"] == tool_of()["inputSchema"]


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        ({"words": 2}, True),
        ({"words": "two"}, False),
        ({"run_id": "run_x", "status": "input_required", "interrupts": []}, True),
        ({"run_id": "run_x", "status": "completed", "interrupts": []}, False),
        ({}, False),
    ],
)
def test_an_output_schema_allows_the_output_or_a_question(value: Any, fits: bool) -> None:
    validator = Draft202012Validator(tool_of(output=OUTPUT)["outputSchema"])
    assert validator.is_valid(value) == fits  # pyright: ignore[reportUnknownMemberType]


def test_an_output_schema_with_references_by_position_is_not_declared() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"$ref": "#/properties/a"}}}
    assert "outputSchema" not in tool_of(output=schema)


def test_the_answer_tool_has_a_name_that_no_agent_has() -> None:
    assert resume_name({}) == RESUME
    assert resume_name({RESUME: 1}) == f"{RESUME}_"
    Draft202012Validator.check_schema(encode_resume(RESUME)["inputSchema"])
