"""Tools of a caller are added to the graph's input, in the form of each member that it has for them."""

from typing import Any

import pytest

from babelgate.adapters.langchain.codec.caller_tools import encode_declared, encode_input

WEATHER = {"name": "weather", "description": "Weather of a city.", "parameters": {"type": "object"}}
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
def test_each_input_member_for_tools_has_its_form(member: str, form: Any) -> None:
    assert encode_input(CONFIG, {"messages", member}, {}) == {member: form}
    assert encode_input(CONFIG, {member}, {member: []}) == {}
    assert encode_input({}, {member}, {}) == {}


def test_without_such_a_member_tools_are_in_the_configuration() -> None:
    assert encode_input(CONFIG, {"messages"}, {}) == {}
    assert encode_declared(CONFIG) == [{"type": "function", "function": WEATHER}]
