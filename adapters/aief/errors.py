"""Faults as AIEF tells them: a status and a message, or `additional_output.error` of a step."""

from collections.abc import Mapping
from typing import Any, Final

from babelgate.adapters.aief.wire import types as w
from babelgate.canonical import Fault, FaultCode
from babelgate.canonical.value import JsonObject

_STATUS: Final[Mapping[FaultCode, int]] = {
    # OpenAPI v1, as the Python SDK's server; the JavaScript SDK 1.0.5 answers 400.
    FaultCode.INVALID: 422,
    FaultCode.UNSUPPORTED: 422,
    FaultCode.UNSUPPORTED_TYPE: 422,
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
"""Of calls that could not be answered. An agent that fails is a step with an error, and its status is 200."""


def encode_fault(fault: Fault) -> tuple[int, w.Error]:
    # OpenAPI v1, NotFoundResponse: `message` is required.
    error = w.Error(message=fault.message)
    errors: Any = fault.details.get("errors")
    if fault.code is FaultCode.INVALID and errors:
        # The form that clients know from the Python SDK's server.
        detail = [
            {
                "loc": [*filter(None, each["field"].split("."))],
                "msg": each["description"],
                "type": "value_error",
            }
            for each in errors
        ]
        error = w.Error.model_validate({"message": fault.message, "detail": detail})
    return _STATUS[fault.code], error


def encode_error(fault: Fault) -> JsonObject:
    return {"code": str(fault.code), "message": fault.message}
