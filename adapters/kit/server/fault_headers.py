"""Headers of error responses in all protocols: when to retry, and how to authenticate."""

from babelgate.canonical import Fault, FaultCode
from babelgate.canonical.fault import INSUFFICIENT_SCOPE, INVALID_TOKEN


def fault_headers(fault: Fault) -> dict[str, str]:
    """Return the headers `Retry-After`, if the fault has a time of retry, and `WWW-Authenticate`, if the credential is
    missing, is invalid, or lacks a scope."""
    headers: dict[str, str] = {}
    if isinstance(fault.details.get("retry_after"), int):
        headers["Retry-After"] = str(fault.details["retry_after"])
    if fault.code is FaultCode.UNAUTHENTICATED:
        # RFC 6750, 3.1: a request without a credential gets no error code.
        is_invalid = fault.details.get("reason") == INVALID_TOKEN
        headers["WWW-Authenticate"] = f'Bearer error="{INVALID_TOKEN}"' if is_invalid else "Bearer"
    if fault.is_scope_missing:
        scopes = " ".join(fault.details["scopes"])
        headers["WWW-Authenticate"] = f'Bearer error="{INSUFFICIENT_SCOPE}", scope="{scopes}"'
    return headers
