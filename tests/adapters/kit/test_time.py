"""Encoding of times."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.adapters.kit.time import encode_time

_LAST = 253_402_300_799_999_999
"""Last microsecond of the year 9999."""


@pytest.mark.parametrize(
    ("at", "whole", "short"),
    [
        (0, "1970-01-01T00:00:00.000000Z", "1970-01-01T00:00:00.000Z"),
        (999_999, "1970-01-01T00:00:00.999999Z", "1970-01-01T00:00:00.999Z"),
        (1_790_000_000_000_999, "2026-09-21T14:13:20.000999Z", "2026-09-21T14:13:20.000Z"),
        (_LAST, "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999Z"),
    ],
)
def test_a_time_has_all_digits_and_is_not_rounded_up(at: int, whole: str, short: str) -> None:
    assert (encode_time(at), encode_time(at, "milliseconds")) == (whole, short)


@given(st.integers(0, _LAST))
def test_a_time_is_formatted_like_strftime(at: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)
    assert encode_time(at) == moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
