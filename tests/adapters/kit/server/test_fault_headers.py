"""Response headers of a fault."""

from typing import Any

import pytest

from babelgate.adapters.kit.server.fault_headers import fault_headers
from babelgate.canonical import Fault, FaultCode


@pytest.mark.parametrize(
    ("code", "details", "headers"),
    [
        (FaultCode.QUEUE_FULL, {"retry_after": 3}, {"Retry-After": "3"}),
        (FaultCode.QUEUE_FULL, {"retry_after": None}, {}),
        (FaultCode.LIMITED, {"limit": "rate", "retry_after": 3}, {"Retry-After": "3"}),
        (FaultCode.LIMITED, {"limit": "chain"}, {}),
        (FaultCode.UNAUTHENTICATED, {}, {"WWW-Authenticate": "Bearer"}),
        (FaultCode.FORBIDDEN, {}, {}),
    ],
)
def test_a_fault_names_its_retry_time_and_the_needed_key(
    code: FaultCode, details: dict[str, Any], headers: dict[str, str]
) -> None:
    assert fault_headers(Fault(code=code, message="No.", details=details)) == headers
