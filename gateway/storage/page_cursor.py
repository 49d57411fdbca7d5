"""Opaque cursors for pagination: the sort columns of the last row of a page, encoded as text."""

import base64
import json
from collections.abc import Sequence
from typing import Any, Final, cast

from babelgate.canonical.fault import FaultCode, FaultError

_INTEGERS: Final = range(-(2**63), 2**63)


def encode_cursor(position: Sequence[int | str]) -> str:
    """Encode the sort columns of a row as a cursor."""
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode().rstrip("=")


def decode_cursor(cursor: str, *kinds: type) -> tuple[int | str, ...]:
    """Decode a cursor to the sort columns of a row. Raises invalid unless they have the types `kinds`."""
    try:
        value: Any = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        position = tuple(cast("list[int | str]", value)) if isinstance(value, list) else ()
        if tuple(map(type, position)) != kinds:
            raise ValueError
        for column in position:
            if isinstance(column, int) and column not in _INTEGERS:
                raise ValueError
            str(column).encode()
    except (ValueError, TypeError, RecursionError):
        raise FaultError(FaultCode.INVALID, "after: expected the `next` of an earlier page") from None
    return position
