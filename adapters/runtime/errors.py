"""Faults as the minimal runtime tells them: a status, and `{"error": {"code", "message"}}`, where the code is that of
the gateway and members of a body that are wrong are named in `errors`."""

from collections.abc import Mapping
from typing import Final

from babelgate.canonical import Fault, FaultCode
from babelgate.canonical.value import JsonObject

_STATUS: Final[Mapping[FaultCode, int]] = {
    FaultCode.INVALID: 422,
    FaultCode.UNSUPPORTED: 422,
    FaultCode.UNSUPPORTED_TYPE: 415,
    FaultCode.UNAUTHENTICATED: 401,
    FaultCode.FORBIDDEN: 403,
    FaultCode.NOT_FOUND: 404,
    FaultCode.METHOD_NOT_ALLOWED: 405,
    FaultCode.CONFLICT: 409,
    FaultCode.TASK_ENDED: 409,
    FaultCode.NOT_AWAITING: 409,
    FaultCode.TOO_LARGE: 413,
    FaultCode.QUEUE_FULL: 429,
    FaultCode.AGENT_FAILED: 502,
    FaultCode.AGENT_INVALID: 502,
    FaultCode.AGENT_UNREACHABLE: 502,
    FaultCode.AGENT_TIMEOUT: 504,
    FaultCode.AGENT_NOT_REPLAYABLE: 502,
    FaultCode.EXPIRED: 404,
    FaultCode.GATEWAY_RESTARTED: 503,
    FaultCode.SHUTTING_DOWN: 503,
    FaultCode.UNAVAILABLE: 503,
    FaultCode.INTERNAL: 500,
}
"""Of calls that could not be answered. An agent that fails is a run with an error, and its status is 200."""


def encode_fault(fault: Fault) -> tuple[int, JsonObject]:
    error: JsonObject = {"code": str(fault.code), "message": fault.message}
    if errors := fault.details.get("errors"):
        error["errors"] = errors
    return _STATUS[fault.code], {"error": error}
