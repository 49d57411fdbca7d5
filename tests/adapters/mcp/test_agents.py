"""Agents as tools."""

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
    told = tool_of(**schemas)
    assert re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", told["name"])
    assert told["description"]
    for name in {"inputSchema", "outputSchema"} & told.keys():
        Draft202012Validator.check_schema(told[name])
        assert told[name]["type"] == "object"


def test_an_agents_own_input_schema_is_that_of_its_tool_with_a_thread() -> None:
    told = tool_of(input={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
    assert set(told["inputSchema"]["properties"]) == {"city", "thread_id"}
    assert told["inputSchema"]["required"] == ["city"]


def test_a_tool_takes_nothing_if_its_agent_says_so_and_else_messages() -> None:
    nothing: Any = {"type": "object", "properties": {}}
    assert "message" in tool_of(input=nothing)["inputSchema"]["properties"]
    assert set(tool_of(input={**nothing, "additionalProperties": False})["inputSchema"]["properties"]) == {"thread_id"}


def test_an_input_of_messages_is_said() -> None:
    own = {"type": "object", "properties": {"messages": {"type": "array"}}}
    assert tool_of(input=own)["inputSchema"] == tool_of()["inputSchema"]


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
def test_an_output_schema_is_that_of_the_output_or_of_a_question(value: Any, fits: bool) -> None:
    validator = Draft202012Validator(tool_of(output=OUTPUT)["outputSchema"])
    assert validator.is_valid(value) == fits  # pyright: ignore[reportUnknownMemberType]


def test_a_schema_whose_parts_refer_to_places_in_it_is_not_declared() -> None:
    own = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"$ref": "#/properties/a"}}}
    assert "outputSchema" not in tool_of(output=own)


def test_the_tool_for_answers_has_a_name_that_no_agent_has() -> None:
    assert resume_name({}) == RESUME
    assert resume_name({RESUME: 1}) == f"{RESUME}_"
    Draft202012Validator.check_schema(encode_resume(RESUME)["inputSchema"])
