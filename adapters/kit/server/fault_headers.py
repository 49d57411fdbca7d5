"""Headers of an answer that is a fault, whatever the protocol: when to come back, and how to say who one is."""

from babelgate.canonical import Fault, FaultCode


def fault_headers(fault: Fault) -> dict[str, str]:
    headers: dict[str, str] = {}
    if isinstance(fault.details.get("retry_after"), int):
        headers["Retry-After"] = str(fault.details["retry_after"])
    if fault.code is FaultCode.UNAUTHENTICATED:
        headers["WWW-Authenticate"] = "Bearer"
    return headers
