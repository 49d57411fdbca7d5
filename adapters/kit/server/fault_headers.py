"""Headers of error responses in all protocols: the time of a retry, and how to authenticate."""

from babelgate.canonical import Fault, FaultCode


def fault_headers(fault: Fault) -> dict[str, str]:
    """Return the headers `Retry-After` and `WWW-Authenticate`, if they apply to a fault."""
    headers: dict[str, str] = {}
    if isinstance(fault.details.get("retry_after"), int):
        headers["Retry-After"] = str(fault.details["retry_after"])
    if fault.code is FaultCode.UNAUTHENTICATED:
        headers["WWW-Authenticate"] = "Bearer"
    return headers
