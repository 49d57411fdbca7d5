"""The tools of a caller go into the members of a graph's input that it has for them, in the form of each."""

from typing import Any

import pytest

from babelgate.adapters.langchain.codec.caller_tools import encode_declared, encode_input

WEATHER = {"name": "weather", "description": "Of a city.", "parameters": {"type": "object"}}
CONFIG: Any = {"tools": [WEATHER]}


@pytest.mark.parametrize(
    ("member", "form"),
    [
        ("tools", [WEATHER]),
        ("client_tools", [WEATHER]),
        ("ag-ui", {"tools": [WEATHER], "context": []}),
        ("copilotkit", {"actions": [WEATHER], "context": []}),
    ],
)
def test_each_member_that_a_graph_has_for_tools_has_a_form_of_its_own(member: str, form: Any) -> None:
    assert encode_input(CONFIG, {"messages", member}, {}) == {member: form}
    assert encode_input(CONFIG, {member}, {member: []}) == {}
    assert encode_input({}, {member}, {}) == {}


def test_a_graph_without_such_a_member_is_told_in_its_configuration() -> None:
    assert encode_input(CONFIG, {"messages"}, {}) == {}
    assert encode_declared(CONFIG) == [{"type": "function", "function": WEATHER}]
