"""Faults in AIEF: an HTTP status and a message, or the member `error` in `additional_output` of a step."""

from typing import Any

from babelgate.adapters.aief.wire import types as w
from babelgate.adapters.kit.server.statuses import STATUSES
from babelgate.canonical import Fault, FaultCode
from babelgate.canonical.value import JsonObject


def encode_fault(fault: Fault) -> tuple[int, w.Error]:
    """Return the HTTP status and the body of an error response."""
    # OpenAPI v1, NotFoundResponse: `message` is required. The Python SDK's server responds with 422 to malformed
    # requests, the JavaScript SDK 1.0.5 with 400.
    error = w.Error(message=fault.message)
    errors: Any = fault.details.get("errors")
    if fault.code is FaultCode.INVALID and errors:
        # The form of the Python SDK's server, which clients know.
        detail = [
            {
                "loc": [*filter(None, each["field"].split("."))],
                "msg": each["description"],
                "type": "value_error",
            }
            for each in errors
        ]
        error = w.Error.model_validate({"message": fault.message, "detail": detail})
    return STATUSES[fault.code], error


def encode_error(fault: Fault) -> JsonObject:
    """Return a fault as the JSON object `error` of a step."""
    return {"code": str(fault.code), "message": fault.message}
