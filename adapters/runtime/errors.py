"""Faults in the minimal runtime: a status and `{"error": {"code", "message"}}` with the gateway's fault code. `errors`
names invalid members of the body."""

from collections.abc import Mapping
from typing import Final

from babelgate.adapters.kit.server.statuses import STATUSES
from babelgate.canonical import Fault, FaultCode
from babelgate.canonical.value import JsonObject

_STATUSES: Final[Mapping[FaultCode, int]] = {**STATUSES, FaultCode.UNSUPPORTED_TYPE: 415}
"""Statuses of failed requests. A failed agent is a run with an error, and the status of its response is 200."""


def encode_fault(fault: Fault) -> tuple[int, JsonObject]:
    """Return status and body of an error response."""
    error: JsonObject = {"code": str(fault.code), "message": fault.message}
    if errors := fault.details.get("errors"):
        error["errors"] = errors
    return _STATUSES[fault.code], {"error": error}
