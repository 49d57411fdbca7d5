"""HTTP status → fault: one table for the clients of all protocols."""

from collections.abc import Mapping
from typing import Final

from babelgate.canonical import Fault, FaultCode

_CODES: Final[Mapping[int, FaultCode]] = {
    408: FaultCode.AGENT_TIMEOUT,
    429: FaultCode.AGENT_UNREACHABLE,
    502: FaultCode.AGENT_UNREACHABLE,
    503: FaultCode.AGENT_UNREACHABLE,
    504: FaultCode.AGENT_TIMEOUT,
}
"""RFC 9110, 15, and RFC 6585, 4: the statuses by which a server, or what stands in front of it, says that it has not
looked at the request, or not long enough: the same request may succeed later or elsewhere. With any other status it has
answered: the agent failed."""

UNAVAILABLE: Final = frozenset({FaultCode.AGENT_UNREACHABLE, FaultCode.AGENT_TIMEOUT})
"""The same request may succeed later: nobody answered it, not in time, or only what stands in front of the server."""


def fault_code(status: int) -> FaultCode:
    """The fault that an answer of this status is, unless the protocol has words of its own for it."""
    return _CODES.get(status, FaultCode.AGENT_FAILED)


def is_retryable(fault: Fault) -> bool:
    """Whether another look may succeed: the server is gone for the moment, or too slow."""
    return is_gone(fault) or fault.code is FaultCode.AGENT_TIMEOUT


def is_gone(fault: Fault) -> bool:
    """Whether the server may be back in a moment: nobody answered, or something in front of it did."""
    return fault.code is FaultCode.AGENT_UNREACHABLE or fault.details.get("status") == 504
