"""HTTP error responses of agents' servers in any protocol: the status, and the time of a retry (Retry-After)."""

import re
import time
from collections.abc import Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from math import ceil
from typing import Final

import httpx

from babelgate.adapters.kit.client.answers import EXCERPT
from babelgate.adapters.kit.client.redact import redact_excerpt
from babelgate.canonical import Fault, FaultError
from babelgate.canonical.printable import printable
from babelgate.canonical.value import JsonObject

LONGEST: Final = 24 * 60 * 60
"""Longest delay that is taken from a server's `Retry-After`, in seconds; longer ones are reduced to it. Chosen: a
day."""

_BODY_LENGTH: Final = 2048
"""Maximum characters of a response body in a fault. Chosen: enough for the list of invalid fields of a framework, and a
log line stays below 16 KiB."""
_KEYS_REFUSED: Final = frozenset({401, 403})
"""Statuses of responses whose body may quote a part of the API key, which no redaction can find."""
_SECONDS: Final = re.compile(r"[0-9]{1,9}")


def response_error(fault: Fault, response: httpx.Response) -> FaultError:
    """Return the fault of an error response. Its details get the `status`, and `retry_after` in seconds if the server
    sent it. The status distinguishes a server that failed from one that refused."""
    details: JsonObject = {**fault.details, "status": response.status_code}
    seconds = retry_after(response.headers.get("retry-after", ""), time.time())
    if seconds is not None:
        details["retry_after"] = seconds
    return FaultError(fault.code, fault.message, **details)


def read_excerpt(response: httpx.Response, secrets: Sequence[str]) -> str:
    """Return the beginning of an error response's body on one line, with `***` in place of the secrets. Return "" if
    the body is empty, or may quote a part of the API key."""
    if response.status_code in _KEYS_REFUSED:
        return ""
    body = response.extensions.get(EXCERPT, b"").decode(errors="replace").strip()
    # First, because a part of a secret would not be recognized.
    return printable(redact_excerpt(body, secrets), _BODY_LENGTH)


def retry_after(value: str, now: float) -> int | None:
    """Return the number of seconds until the time of a `Retry-After` header, which holds seconds or a date (RFC 9110,
    section 10.2.3). Return None if the header is invalid. `now` is a Unix time."""
    value = value.strip()
    if _SECONDS.fullmatch(value):
        return min(int(value), LONGEST)
    try:
        date = parsedate_to_datetime(value)
        at = (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    return max(0, min(ceil(at - now), LONGEST))
