"""Fault code for each HTTP status: one table for the clients of all protocols."""

from collections.abc import Mapping
from typing import Final

from babelgate.canonical import Fault, FaultCode

_CODES: Final[Mapping[int, FaultCode]] = {
    408: FaultCode.AGENT_TIMEOUT,
    429: FaultCode.LIMITED,
    502: FaultCode.AGENT_UNREACHABLE,
    503: FaultCode.AGENT_UNREACHABLE,
    504: FaultCode.AGENT_TIMEOUT,
}
"""Statuses (RFC 9110, section 15, and RFC 6585, section 4) by which a server, or a proxy before it, reports that it did
not fully process the request. The same request may succeed later or elsewhere. With any other status the server has
responded, and the agent has failed."""

UNAVAILABLE: Final = frozenset({FaultCode.AGENT_UNREACHABLE, FaultCode.AGENT_TIMEOUT, FaultCode.LIMITED})
"""Codes of faults after which the same request may succeed later. There was no response, it was too late, it came from
a proxy, or the server accepts no more requests now."""


def fault_code(status: int) -> FaultCode:
    """Return the fault code for the HTTP status of an error response. It is the default of all protocols: the client of
    a protocol that defines the meaning of a status does not call this for that status."""
    return _CODES.get(status, FaultCode.AGENT_FAILED)


def is_retryable(fault: Fault) -> bool:
    """Return True if a retry may succeed: the server is temporarily unreachable, or too slow."""
    return is_gone(fault) or fault.code is FaultCode.AGENT_TIMEOUT


def is_gone(fault: Fault) -> bool:
    """Return True if the server itself did not handle the request, and may be back soon: there was no response, a proxy
    before the server has responded, or the server accepts no more requests now."""
    return fault.code in (FaultCode.AGENT_UNREACHABLE, FaultCode.LIMITED) or fault.details.get("status") == 504
