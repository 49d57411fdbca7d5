"""Faults in the minimal runtime: an HTTP status, and `{"error": {"code", "message"}}` with the gateway's fault code.
`errors` lists invalid members of the body."""

from collections.abc import Mapping
from typing import Final

from babelgate.adapters.kit.server.statuses import STATUSES
from babelgate.canonical import Fault, FaultCode
from babelgate.canonical.value import JsonObject

_STATUSES: Final[Mapping[FaultCode, int]] = {**STATUSES, FaultCode.UNSUPPORTED_TYPE: 415}
"""HTTP status by fault code, for requests that fail. A run whose agent failed is returned with status 200 and an
error."""


def encode_fault(fault: Fault) -> tuple[int, JsonObject]:
    """Return the HTTP status and the JSON body of an error response."""
    error: JsonObject = {"code": str(fault.code), "message": fault.message}
    if errors := fault.details.get("errors"):
        error["errors"] = errors
    return _STATUSES[fault.code], {"error": error}
