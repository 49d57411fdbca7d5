"""Patches: every difference of two states is applied as a client applies it, and no other patch is accepted."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.adapters.ag_ui.codec.patch import apply_patch, make_patch
from babelgate.canonical.json import is_identical

_LEAVES = st.none() | st.booleans() | st.integers(-3, 3) | st.text("a/~", max_size=2)
_VALUES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("a/~", max_size=2), inner, max_size=3)
)
_STATES = st.dictionaries(st.text("ab/~", max_size=2), _VALUES, max_size=4)


@given(_STATES, _STATES)
def test_a_patch_turns_one_state_into_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert is_identical(apply_patch(before, make_patch(before, after)), after)


def test_appended_items_are_added_one_by_one() -> None:
    assert make_patch({"a": [1], "b": 2}, {"a": [1, 2]}) == [
        {"op": "remove", "path": "/b"},
        {"op": "add", "path": "/a/-", "value": 2},
    ]


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ([{"op": "move", "from": "/a/0", "path": "/b"}], {"a": [2], "b": 1}),
        ([{"op": "copy", "from": "/a", "path": "/c"}], {"a": [1, 2], "b": None, "c": [1, 2]}),
        ([{"op": "test", "path": "/a/1", "value": 2}, {"op": "remove", "path": "/a/0"}], {"a": [2], "b": None}),
        ([{"op": "add", "path": "/a/1", "value": 9}], {"a": [1, 9, 2], "b": None}),
        ([{"op": "replace", "path": "", "value": 1}], 1),
    ],
)
def test_all_operations_are_applied(patch: list[Any], expected: Any) -> None:
    assert apply_patch({"a": [1, 2], "b": None}, patch) == expected


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "replace", "path": "/unknown", "value": 1},
        {"op": "remove", "path": "/a/7"},
        {"op": "add", "path": "/a/9", "value": 1},
        {"op": "add", "path": "/b/c", "value": 1},
        {"op": "test", "path": "/a/0", "value": 2},
        {"op": "add", "path": "a", "value": 1},
        {"op": "spin", "path": "/a"},
        {"path": "/a"},
    ],
)
def test_an_operation_that_does_not_apply_is_an_error(operation: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        apply_patch({"a": [1, 2], "b": None}, [operation])
