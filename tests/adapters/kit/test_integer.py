"""Integers in the text of a request."""

import pytest

from babelgate.adapters.kit.integer import parse_integer, read_integer
from babelgate.canonical import FaultCode, FaultError


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("007", 7), ("99", 99), ("100", None), ("1000", None), ("", None), ("-1", None), ("1.0", None)],
)
def test_an_integer_has_only_digits_and_is_in_range(text: str, number: int | None) -> None:
    assert parse_integer(text, 3, maximum=99) == number


@pytest.mark.parametrize("text", ["²", "٣", "1_0", " 1", "1 "])
def test_other_characters_are_no_digits(text: str) -> None:
    assert parse_integer(text, 9) is None


@pytest.mark.parametrize(
    ("text", "maximum", "message"),
    [
        ("0", None, "limit: must be an integer from 1"),
        ("8", 7, "limit: must be an integer from 1 to 7"),
        ("1234567890", None, "limit: must be an integer from 1"),
    ],
)
def test_the_error_names_the_parameter_and_its_range(text: str, maximum: int | None, message: str) -> None:
    with pytest.raises(FaultError) as raised:
        read_integer(text, "limit", 1, maximum)
    assert raised.value.fault.code is FaultCode.INVALID
    assert raised.value.fault.message == message
