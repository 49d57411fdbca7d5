"""HTTP error responses of an agent's server, whatever its protocol: a status, and when to retry (Retry-After)."""

import re
import time
from datetime import UTC
from email.utils import parsedate_to_datetime
from math import ceil
from typing import Final

import httpx

from babelgate.adapters.kit.client.answers import EXCERPT
from babelgate.canonical import Fault, FaultError
from babelgate.canonical.printable import printable
from babelgate.canonical.value import JsonObject

LONGEST: Final = 24 * 60 * 60
"""Seconds: callers are not told to stay away any longer."""

_BODY_LENGTH: Final = 500
"""Characters of a body that a fault holds. Chosen: enough for the reason, and a line of the log stays readable."""
_KEYS_REFUSED: Final = frozenset({401, 403})
"""Statuses of answers whose body may quote a part of the key, which no redaction finds."""
_SECONDS: Final = re.compile(r"[0-9]{1,9}")


def response_error(fault: Fault, response: httpx.Response) -> FaultError:
    """The fault that an answer is, with these `details`: its `status`, which tells a server that fails from one that is
    well and says no, `retry_after` (seconds), where the server gives a time, and the beginning of its `body`."""
    details: JsonObject = {**fault.details, "status": response.status_code}
    body = response.extensions.get(EXCERPT, b"").decode(errors="replace").strip()
    if body and response.status_code not in _KEYS_REFUSED:
        details["body"] = printable(body, _BODY_LENGTH)
    seconds = retry_after(response.headers.get("retry-after", ""), time.time())
    if seconds is not None:
        details["retry_after"] = seconds
    return FaultError(fault.code, fault.message, **details)


def retry_after(value: str, now: float) -> int | None:
    """Seconds from a `Retry-After`, which is a number of them or a date (RFC 9110, 10.2.3). `now` = Unix time. None for
    what is neither."""
    value = value.strip()
    if _SECONDS.fullmatch(value):
        return min(int(value), LONGEST)
    try:
        date = parsedate_to_datetime(value)
        at = (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    return max(0, min(ceil(at - now), LONGEST))
