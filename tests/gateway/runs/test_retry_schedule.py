"""Tests of the pauses between the attempts of a delivery, with jitter and the receiver's `Retry-After`."""

import pytest

from babelgate.gateway.runs.retry_schedule import RetrySchedule, parse_retry_after, shorten_reason
from babelgate.gateway.settings.model import Settings

NOW = 1_800_000_000_000_000
"""2027-01-15 08:00:00 UTC, in microseconds since 1970."""


@pytest.mark.parametrize(("fraction", "part"), [(0.0, 1.0), (0.5, 1.1), (1.0, 1.2)])
def test_the_default_pauses_last_a_day_and_have_jitter(fraction: float, part: float) -> None:
    schedule = RetrySchedule(Settings().webhooks.retries, lambda: fraction)
    minute, hour = 60, 3600
    pauses = [5, 5 * minute, 30 * minute, 2 * hour, 5 * hour, 10 * hour, 10 * hour]
    assert [schedule.pause_after(each) for each in range(1, 8)] == pytest.approx([pause * part for pause in pauses])
    assert schedule.pause_after(8) is None


@pytest.mark.parametrize(("retry_after", "pause"), [(None, 100), (0, 100), (99.0, 100), (101.0, 101), (10**9, 86_400)])
def test_retry_after_lengthens_a_pause_up_to_a_day(retry_after: float | None, pause: float) -> None:
    schedule = RetrySchedule([100], lambda: 0)
    assert schedule.pause_after(1, retry_after) == pause
    assert schedule.pause_after(2, retry_after) is None
    assert pause <= schedule.longest


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("120", 120),
        ("0", 0),
        ("9" * 5000, 86_400),
        ("-1", None),
        ("1.5", None),
        ("²", None),
        ("soon", None),
        ("", None),
        ("Fri, 15 Jan 2027 08:02:00 GMT", 120),
        ("Friday, 15-Jan-27 08:02:00 GMT", 120),
        ("Fri Jan 15 08:02:00 2027", 120),
        ("Fri, 15 Jan 2027 07:59:00 GMT", None),
        ("Fri, 15 Jan 99999 08:02:00 GMT", None),
        ("Fri, 99 Jan 2027 08:02:00 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    assert parse_retry_after(value, NOW) == seconds


def test_a_reason_is_one_short_line() -> None:
    assert shorten_reason("a\n b") == "a b"
    assert len(shorten_reason("x" * 1000)) == 200
