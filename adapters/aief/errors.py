"""Faults as AIEF tells them: a status and a message, or `additional_output.error` of a step."""

from typing import Any

from babelgate.adapters.aief.wire import types as w
from babelgate.adapters.kit.server.statuses import STATUSES
from babelgate.canonical import Fault, FaultCode
from babelgate.canonical.value import JsonObject


def encode_fault(fault: Fault) -> tuple[int, w.Error]:
    # OpenAPI v1, NotFoundResponse: `message` is required. 422 for what is malformed is the Python SDK's server's; the
    # JavaScript SDK 1.0.5 answers 400.
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
    return STATUSES[fault.code], error


def encode_error(fault: Fault) -> JsonObject:
    return {"code": str(fault.code), "message": fault.message}
