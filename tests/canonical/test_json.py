"""JSON values: what counts as JSON, and comparisons of values."""

from typing import Any

import pytest
from hypothesis import given

from babelgate.canonical.json import (
    MAX_BITS,
    MAX_DEPTH,
    NotJson,
    TooDeep,
    as_list,
    as_object,
    as_text,
    check_json,
    has_members,
    is_equal,
    is_identical,
    is_number,
    is_text,
    objects_in,
)
from tests.strategies import json_values


@given(json_values())
def test_every_value_equals_and_contains_itself(value: Any) -> None:
    assert is_identical(value, value)
    assert is_equal(value, value)
    assert has_members(value, value)
    check_json(value)


@pytest.mark.parametrize(("one", "other"), [(1, True), (1, 1.0), ([], {}), ({"a": 1}, {"b": 1}), ([1], [1, 2])])
def test_values_with_different_json_are_not_identical(one: Any, other: Any) -> None:
    assert not is_identical(one, other)


SAME: list[Any] = [(1, 1.0), ([1], [1.0]), ({"a": [{"b": 2}]}, {"a": [{"b": 2.0}]}), (None, None), (True, True)]
OTHER: list[Any] = [(1, True), (0, False), ([1], [True]), ({"a": 0}, {"a": False}), ([], {}), ("1", 1), ([1], [1, 2])]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_numbers_are_equal_by_their_value(one: Any, other: Any) -> None:
    assert is_equal(one, other)
    assert has_members({"a": one}, {"a": other})


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_booleans_do_not_equal_numbers(one: Any, other: Any) -> None:
    assert not is_equal(one, other)
    assert not is_equal(other, one)


@given(json_values())
def test_values_of_another_type_become_empty(value: Any) -> None:
    assert as_object(value) is value if isinstance(value, dict) else as_object(value) == {}
    assert as_list(value) is value if isinstance(value, list) else as_list(value) == []
    assert as_text(value) is value if isinstance(value, str) else as_text(value) == ""


def test_objects_in_a_list_are_returned_in_order() -> None:
    assert objects_in([1, {"a": 1}, None, [{"b": 2}], {}, "{}"]) == [{"a": 1}, {}]
    assert objects_in({"a": {"b": 1}}) == objects_in(None) == objects_in("{}") == []


DOCUMENT = {"a": {"b": 1, "c": [1, {"d": 2}]}, "e": None}


WITHIN: list[Any] = [{}, {"a": {}}, {"a": {"b": 1}}, {"a": {"b": 1.0}}, {"a": {"c": [1, {"d": 2}]}}, {"e": None}]
NOT_WITHIN: list[Any] = [{"x": None}, {"a": {"b": True}}, {"a": {"c": [1, {}]}}, {"a": {"c": [1]}}, {"e": {}}, None]


@pytest.mark.parametrize("part", WITHIN)
def test_an_object_contains_nested_members(part: Any) -> None:
    assert has_members(DOCUMENT, part)


@pytest.mark.parametrize("part", NOT_WITHIN)
def test_partial_lists_and_other_types_are_not_contained(part: Any) -> None:
    assert not has_members(DOCUMENT, part)


# Checks of what is JSON


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


NOT_JSON: list[Any] = [
    (float("nan"), "nan, which is not JSON"),
    (float("-inf"), "-inf, which is not JSON"),
    ({1}, "a set, which is not JSON"),
    (b"a", "a bytes, which is not JSON"),
    ("\ud800", "text with a lone surrogate"),
    ({"\udfff": 1}, "text with a lone surrogate"),
    ({1: 2}, "an object with a key 1, not a string"),
    (2**MAX_BITS, "an integer of more than 4096 bits"),
    (-(2**MAX_BITS), "an integer of more than 4096 bits"),
    ([1, 2, 3, [4]], "data of more than 5 values"),
    (nested(MAX_DEPTH + 1), "data nested deeper than 64 levels"),
]


@pytest.mark.parametrize(("value", "words"), NOT_JSON)
def test_a_check_says_what_is_not_json(value: Any, words: str) -> None:
    with pytest.raises(NotJson, match=f"^{words}$"):
        check_json(value, most=5 if "values" in words else 100)
    with pytest.raises(NotJson):
        check_json([{"a": (value,)}], most=6)


def test_an_empty_innermost_level_counts() -> None:
    check_json(nested(MAX_DEPTH))
    with pytest.raises(TooDeep):
        check_json(nested(MAX_DEPTH + 1))


def test_an_integer_has_the_requested_bound() -> None:
    check_json([10**300 - 1, 1 - 10**300, True], largest=10**300)
    with pytest.raises(NotJson):
        check_json([-(10**300)], largest=10**300)


def test_a_number_is_finite_and_can_be_printed() -> None:
    assert is_number(2**MAX_BITS - 1)
    assert not is_number(2**MAX_BITS)
    assert is_number(1.5)
    assert not is_number(float("inf"))


def test_a_tuple_counts_as_a_list() -> None:
    check_json((1, ("é\0", 2)))


def test_text_excludes_lone_surrogates() -> None:
    assert is_text("é\0")
    assert not is_text("a\ud800")
