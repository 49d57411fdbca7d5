"""Times on the wire: RFC 3339 text from the log's microseconds since 1970."""

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def encode_time(at: int, precision: str = "microseconds") -> str:
    """Return a time in RFC 3339 with `Z`, cut off after the digits of `precision`."""
    # `strftime` would take twice as long.
    return (_EPOCH + timedelta(microseconds=at)).isoformat(timespec=precision)[:-6] + "Z"
