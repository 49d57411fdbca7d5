"""Values that are told by what is new in them."""

from typing import Any

import pytest
from hypothesis import given

from babelgate.canonical.difference import StateChange, apply_difference, difference, state_change
from babelgate.canonical.json import is_identical
from tests.strategies import json_objects

LONG = "said before " * 9


@pytest.mark.parametrize(
    ("before", "after", "told"),
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
def test_a_difference_says_what_is_new_and_nothing_where_all_is(before: Any, after: Any, told: Any) -> None:
    assert difference(before, after) == told
    assert told is None or is_identical(apply_difference(before, told), after)


@given(json_objects(), json_objects())
def test_a_difference_leads_from_any_object_to_any_other(before: Any, after: Any) -> None:
    told = difference(before, after)
    assert told is None or is_identical(apply_difference(before, told), after)


def test_what_stays_is_shared_and_what_was_is_not_changed() -> None:
    before: dict[str, Any] = {"messages": [{"content": LONG}], "files": {"a": LONG}}
    after = {"messages": [{"content": LONG}, {"content": "new"}], "files": {"a": LONG, "b": "c"}}
    made = apply_difference(before, difference(before, after) or {})
    assert made == after
    assert made["messages"][0] is before["messages"][0]
    assert len(before["messages"]) == len(before["files"]) == 1


def test_values_are_told_by_a_difference_only_where_that_is_much_shorter() -> None:
    assert state_change("c1", {"a": LONG}, {"a": LONG, "b": 1}) == StateChange(since="c1", new={"set": {"b": 1}})
    assert state_change("c1", {"a": 1}, {"a": 1, "b": LONG}) is None
