"""Cron schedules: when a cron runs next. Five fields (minute, hour, day of month, month, day of week), in a zone."""

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
_LENGTH: Final = 256
"""Characters of a schedule."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST: Final = 253_000_000_000_000_000
"""Microseconds after which there are no dates to look for."""


def find_next(schedule: str, timezone: str | None, after: int) -> int | None:
    """The first time after another, in microseconds since 1970; None if there is none within decades. Raises
    invalid."""
    # Imported by those who have crons: for all others the gateway starts without it.
    from cronsim import CronSim, CronSimError

    zone = _zone(timezone)
    fields = _ALIASES.get(schedule.strip().lower(), schedule)
    if len(schedule) > _LENGTH or len(fields.split()) != 5:
        raise _invalid(schedule, "It must have five fields: minute, hour, day of month, month and day of week.")
    if not 0 <= after < _LATEST:
        return None
    begin = (_EPOCH + timedelta(microseconds=after)).astimezone(zone)
    try:
        found = next(CronSim(fields, begin), None)
    except CronSimError as error:
        raise _invalid(schedule, str(error)) from error
    except OverflowError:
        return None
    return None if found is None else round((found - _EPOCH) / timedelta(microseconds=1))


def _invalid(schedule: str, why: str) -> FaultError:
    return FaultError(FaultCode.INVALID, f"Invalid cron schedule: {schedule[:100]!r}. {why}")


def _zone(name: str | None) -> ZoneInfo:
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise FaultError(
            FaultCode.INVALID, f"timezone: {(name or '')[:100]!r} is unknown. Use an IANA name such as Europe/Berlin."
        ) from error
