"""Tests of the next time of a cron."""

from datetime import UTC, datetime

import pytest

from babelgate.canonical import FaultCode, FaultError
from babelgate.gateway.runs.schedule import find_next


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("schedule", "timezone", "after", "following"),
    [
        ("*/5 * * * *", None, "2026-01-01T00:00:00", "2026-01-01T00:05:00"),
        ("0 9 * * MON", None, "2026-01-01T00:00:00", "2026-01-05T09:00:00"),
        ("@daily", None, "2026-01-01T12:00:00", "2026-01-02T00:00:00"),
        ("0 9 * * *", "Europe/Berlin", "2026-01-01T00:00:00", "2026-01-01T08:00:00"),
        ("0 9 * * *", "Europe/Berlin", "2026-07-01T00:00:00", "2026-07-01T07:00:00"),
        # The clock is set forward from 2:00 to 3:00: a time between them is due at that moment.
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00", "2026-03-29T01:00:00"),
    ],
)
def test_the_next_time_uses_the_crons_time_zone(
    schedule: str, timezone: str | None, after: str, following: str
) -> None:
    assert find_next(schedule, timezone, at(after)) == at(following)


@pytest.mark.parametrize(
    "schedule", ["", "nope", "* * * * * *", "61 * * * *", "0 0 31 2 *", "0 " * 200, "0 0 * * \x00"]
)
def test_an_invalid_schedule_is_refused(schedule: str) -> None:
    with pytest.raises(FaultError) as raised:
        find_next(schedule, None, 0)
    assert raised.value.fault.code is FaultCode.INVALID


@pytest.mark.parametrize(
    "timezone", ["Mars/Olympus", "../../etc/passwd", "/etc/passwd", "a\x00b", "x" * 5000, "Europe"]
)
def test_an_unknown_time_zone_is_refused(timezone: str) -> None:
    with pytest.raises(FaultError) as raised:
        find_next("* * * * *", timezone, 0)
    assert raised.value.fault.code is FaultCode.INVALID


def test_there_is_no_next_time_after_the_calendars_end() -> None:
    assert find_next("* * * * *", None, 2**62) is None
