"""Differences: values stored as changes to earlier values."""

from typing import Any

import pytest
from hypothesis import given

from babelgate.canonical.difference import StateChange, apply_difference, difference, state_change
from babelgate.canonical.json import is_identical
from tests.strategies import json_objects

LONG = "said before " * 9


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {"a": 1, "b": 2}, {"set": {"b": 2}}),
        ({"a": 1, "b": 2}, {"a": 1}, {"drop": ["b"]}),
        ({"a": 1, "b": 2}, {"a": 1, "b": 2.0}, {"set": {"b": 2.0}}),
        ({"a": [1]}, {"a": [1, 2]}, {"in": {"a": {"keep": 1, "add": [2]}}}),
        ({"a": [1, 2, 3]}, {"a": [1, 9]}, {"in": {"a": {"keep": 1, "add": [9]}}}),
        (
            {"a": {"b": {"c": 1, "d": [1]}}},
            {"a": {"b": {"c": 1, "d": [2]}}},
            {"in": {"a": {"in": {"b": {"set": {"d": [2]}}}}}},
        ),
        ({"a": 1}, {"a": 2}, None),
        ({"a": 1}, [1], None),
        ({}, {"a": 1}, None),
    ],
)
def test_a_difference_holds_only_the_changes(before: Any, after: Any, expected: Any) -> None:
    assert difference(before, after) == expected
    assert expected is None or is_identical(apply_difference(before, expected), after)


@given(json_objects(), json_objects())
def test_applying_a_difference_gives_the_new_object(before: Any, after: Any) -> None:
    change = difference(before, after)
    assert change is None or is_identical(apply_difference(before, change), after)


def test_applying_a_difference_shares_unchanged_values() -> None:
    before: dict[str, Any] = {"messages": [{"content": LONG}], "files": {"a": LONG}}
    after = {"messages": [{"content": LONG}, {"content": "new"}], "files": {"a": LONG, "b": "c"}}
    result = apply_difference(before, difference(before, after) or {})
    assert result == after
    assert result["messages"][0] is before["messages"][0]
    assert len(before["messages"]) == len(before["files"]) == 1


def test_a_difference_is_used_only_if_much_shorter() -> None:
    assert state_change("c1", {"a": LONG}, {"a": LONG, "b": 1}) == StateChange(since="c1", new={"set": {"b": 1}})
    assert state_change("c1", {"a": 1}, {"a": 1, "b": LONG}) is None
