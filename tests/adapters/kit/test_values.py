"""Number of values in a JSON text, counted before it is parsed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from babelgate.adapters.kit.json import parse_json
from babelgate.adapters.kit.values import count_values
from babelgate.canonical import FaultCode, FaultError
from tests.strategies import json_values


def values_in(value: Any) -> int:
    """Return the number of JSON values in a value, as the parser must count them: an empty object or list counts as
    two, because the parser counts only commas and opening brackets."""
    if not isinstance(value, dict | list):
        return 1
    inner: list[Any] = list(value.values() if isinstance(value, dict) else value)  # pyright: ignore
    return 1 + max(1, sum(map(values_in, inner)))


@given(json_values(max_leaves=20))
def test_values_are_counted_exactly_up_to_the_limit(value: Any) -> None:
    raw, expected = to_json(value), values_in(value)
    assert count_values(raw, expected) == expected
    assert count_values(raw, expected - 1) > expected - 1


@given(st.binary(), st.integers(0, 20))
def test_any_bytes_are_counted(raw: bytes, limit: int) -> None:
    assert 1 <= count_values(raw, limit) <= max(limit + 1, 1 + len(raw))


@pytest.mark.parametrize(
    "text", ["[,{" * 100_000, '"' * 100_000, "\\" * 100_001, 'a\\"b[' * 50_000, "x" * 65_535 + '\\"[']
)
def test_the_content_of_a_string_is_not_counted(text: str) -> None:
    raw = to_json([text, text])
    assert count_values(raw, 3) == 3
    assert count_values(raw[:-2], 3) <= 3  # a string without an end


def test_a_text_with_too_many_values_is_rejected() -> None:
    assert parse_json(b"[0,0,0]", 4) == [0, 0, 0]
    with pytest.raises(FaultError) as caught:
        parse_json(b"[0,0,0]", 3)
    assert caught.value.fault.code is FaultCode.TOO_LARGE
    assert caught.value.fault.message == "The body holds more than 3 JSON values."
    assert caught.value.fault.details == {"limit": 3}
