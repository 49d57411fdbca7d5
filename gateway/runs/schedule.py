"""Cron schedules: computes when a cron runs next.

A schedule has five fields (minute, hour, day of month, month, day of week) and applies to a time zone.
"""

from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from babelgate.canonical.fault import FaultCode, FaultError

_ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MAX_LENGTH: Final = 256
"""Maximum length of a schedule, in characters. Chosen."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST: Final = 253_000_000_000_000_000
"""Latest time from which a search may start, in microseconds since 1970: later dates exceed the range of `datetime`."""


def find_next(schedule: str, timezone: str | None, after: int) -> int | None:
    """Return the first time of a schedule that is later than `after`, both in microseconds since 1970. `timezone` is an
    IANA name; None is UTC.

    Return None if no date within decades matches. Raises invalid if the schedule or the time zone is invalid.
    """
    # Imported on first use: a gateway without crons starts faster.
    from cronsim import CronSim, CronSimError

    zone = _zone(timezone)
    fields = _ALIASES.get(schedule.strip().lower(), schedule)
    if len(schedule) > _MAX_LENGTH or len(fields.split()) != 5:
        raise _invalid(schedule, "It must have five fields: minute, hour, day of month, month and day of week.")
    if not 0 <= after < _LATEST:
        return None
    begin = (_EPOCH + timedelta(microseconds=after)).astimezone(zone)
    try:
        match = next(CronSim(fields, begin), None)
    except CronSimError as error:
        raise _invalid(schedule, str(error)) from error
    except OverflowError:
        return None
    return None if match is None else round((match - _EPOCH) / timedelta(microseconds=1))


def _invalid(schedule: str, why: str) -> FaultError:
    return FaultError(FaultCode.INVALID, f"Invalid cron schedule: {schedule[:100]!r}. {why}")


def _zone(name: str | None) -> ZoneInfo:
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise FaultError(
            FaultCode.INVALID, f"timezone: {(name or '')[:100]!r} is unknown. Use an IANA name such as Europe/Berlin."
        ) from error
