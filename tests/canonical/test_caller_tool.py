"""Tools of a caller, in each form in which callers declare them."""

from typing import Any

import pytest

from babelgate.canonical import CallerTool, Invocation, RunInput, caller_tools, declared_tools

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
FLAT = {"name": "weather", "description": "Of a city.", "parameters": SCHEMA}
WEATHER = CallerTool(name="weather", description="Of a city.", parameters=SCHEMA)


@pytest.mark.parametrize("tool", [FLAT, {"type": "function", **FLAT}, {"type": "function", "function": FLAT}])
def test_a_function_is_read_in_every_form(tool: Any) -> None:
    assert caller_tools({"tools": [tool]}) == [WEATHER]
    assert caller_tools({"configurable": {"tools": [tool]}}) == [WEATHER]
    assert declared_tools({"configurable": {"tools": [tool]}}) == [tool]


@pytest.mark.parametrize(
    "tools", [None, "x", {}, [None], [{"type": "web_search"}], [{"name": 7}], [{"function": []}], [{"name": ""}]]
)
def test_tools_that_are_not_functions_are_ignored(tools: Any) -> None:
    assert caller_tools({"tools": tools}) == []
    assert declared_tools({"tools": tools}) == (tools if isinstance(tools, list) else None)


def test_a_function_needs_only_a_name() -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": None, "parameters": None}}]
    assert caller_tools({"tools": tools}) == [CallerTool(name="f")]


def test_an_agent_receives_the_declared_tools() -> None:
    call = Invocation(agent="a", thread_id="", task_id="", run_id="", input=RunInput(config={"tools": [FLAT]}))
    assert call.tools == [WEATHER]
