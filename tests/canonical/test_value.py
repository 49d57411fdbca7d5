"""JSON values beside each other."""

from typing import Any

import pytest
from hypothesis import given

from canonical.value import contains, same
from tests.strategies import json_values


@given(json_values())
def test_every_value_is_the_same_as_itself_and_within_itself(value: Any) -> None:
    assert same(value, value)
    assert contains(value, value)


@pytest.mark.parametrize(("one", "other"), [(1, True), (1, 1.0), ([], {}), ({"a": 1}, {"b": 1}), ([1], [1, 2])])
def test_what_json_tells_apart_is_not_the_same(one: Any, other: Any) -> None:
    assert not same(one, other)


WHOLE = {"a": {"b": 1, "c": [1, {"d": 2}]}, "e": None}


WITHIN: list[Any] = [{}, {"a": {}}, {"a": {"b": 1}}, {"a": {"b": 1.0}}, {"a": {"c": [1, {"d": 2}]}}, {"e": None}]
NOT_WITHIN: list[Any] = [{"x": None}, {"a": {"b": True}}, {"a": {"c": [1, {}]}}, {"a": {"c": [1]}}, {"e": {}}, None]


@pytest.mark.parametrize("part", WITHIN)
def test_an_object_contains_its_members_all_the_way_down(part: Any) -> None:
    assert contains(WHOLE, part)


@pytest.mark.parametrize("part", NOT_WITHIN)
def test_a_list_is_contained_whole_and_what_is_of_another_type_is_not(part: Any) -> None:
    assert not contains(WHOLE, part)
