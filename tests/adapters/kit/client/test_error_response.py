"""Faults of error responses: the status, and the retry time."""

from email.utils import formatdate

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.adapters.kit.client.error_response import LONGEST, response_error, retry_after
from babelgate.canonical import Fault, FaultCode

NOW = 784111777.0
"""Seconds since the epoch at Sun, 06 Nov 1994 08:49:37 GMT."""


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7),
        (" 120 ", 120),
        ("0", 0),
        ("999999999", LONGEST),
        ("Sun, 06 Nov 1994 08:49:44 GMT", 7),
        ("Sunday, 06-Nov-94 08:49:44 GMT", 7),
        ("Sun Nov  6 08:49:44 1994", 7),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0),
        ("Sat, 05 Nov 1994 08:49:37 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST),
    ],
)
def test_a_retry_time_is_seconds_or_a_date(value: str, seconds: int) -> None:
    assert retry_after(value, NOW) == seconds


@pytest.mark.parametrize("value", ["", "soon", "-1", "1.5", "²", "9" * 50, "Sun, 06 Nov 1994 08:49:37 +9999"])
def test_an_invalid_retry_time_is_ignored(value: str) -> None:
    assert retry_after(value, NOW) is None


@given(st.text(max_size=60) | st.from_regex(r"[A-Z][a-z]{2}, [0-9]{1,3} [A-Z][a-z]{2} [0-9]{1,5} [0-9:]{1,9} \S{1,6}"))
def test_any_retry_time_is_limited_or_ignored(value: str) -> None:
    seconds = retry_after(value, NOW)
    assert seconds is None or 0 <= seconds <= LONGEST


def test_status_and_retry_time_are_added_to_the_details() -> None:
    fault = Fault(code=FaultCode.AGENT_FAILED, message="No.", details={"reason": "no"})
    plain = response_error(fault, httpx.Response(400)).fault
    assert (plain.code, plain.message, plain.details) == (fault.code, "No.", {"reason": "no", "status": 400})
    later = response_error(fault, httpx.Response(429, headers={"Retry-After": "3"})).fault
    assert later.details == {"reason": "no", "status": 429, "retry_after": 3}
    dated = response_error(fault, httpx.Response(503, headers={"Retry-After": formatdate(usegmt=True)})).fault
    assert dated.details["retry_after"] in (0, 1)
