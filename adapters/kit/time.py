"""Times on the wire: RFC 3339 text from the log's microseconds since 1970."""

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def encode_time(at: int, precision: str = "microseconds") -> str:
    """Return the time `at`, in microseconds since 1970, as RFC 3339 text that ends with `Z`. Digits after `precision`,
    such as `milliseconds`, are cut off."""
    # `strftime` would take twice as long.
    return (_EPOCH + timedelta(microseconds=at)).isoformat(timespec=precision)[:-6] + "Z"
