"""Faults as responses: a status, and a short text, because the page shows the body of a failed request as it is."""

from collections.abc import Mapping
from typing import Final

from babelgate.adapters.kit.server.statuses import STATUSES
from babelgate.canonical import Fault, FaultCode

_STATUSES: Final[Mapping[FaultCode, int]] = {**STATUSES, FaultCode.INVALID: 400}


def encode_fault(fault: Fault) -> tuple[int, str]:
    """Return the HTTP status and the plain-text body of the response that reports a fault."""
    return _STATUSES[fault.code], fault.message
