"""Faults in MCP: a JSON-RPC error if no tool was called, else a tool result with `isError`."""

from collections.abc import Mapping
from typing import Final

from babelgate.adapters.kit.server.fault_headers import fault_headers
from babelgate.canonical import Fault, FaultCode
from babelgate.canonical.value import JsonObject

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL: Final = -32603
RESOURCE_NOT_FOUND: Final = -32002
"""Code for an unknown resource up to 2025-11-25 (SPEC/server/resources, Error Handling). Later versions use
INVALID_PARAMS."""

_STATUS: Final[Mapping[FaultCode, int]] = {
    FaultCode.UNAUTHENTICATED: 401,
    FaultCode.FORBIDDEN: 403,
    FaultCode.NOT_FOUND: 404,
    FaultCode.METHOD_NOT_ALLOWED: 405,
    FaultCode.TOO_LARGE: 413,
    FaultCode.QUEUE_FULL: 429,
    FaultCode.LIMITED: 429,
    FaultCode.INTERNAL: 500,
    FaultCode.SHUTTING_DOWN: 503,
    FaultCode.UNAVAILABLE: 503,
}

ORIGIN: Final = "origin"
"""Value of `details.reason` in the fault for a request from an origin that is not allowed."""

CANCELLED: Final = Fault(code=FaultCode.CONFLICT, message="The run was cancelled.")
STOPPING: Final = Fault(
    code=FaultCode.SHUTTING_DOWN, message="The gateway is shutting down, and the run has not ended."
)


def encode_fault(fault: Fault, code: int | None = None) -> tuple[int, JsonObject, dict[str, str]]:
    """Return the status, body and headers of the response to a request that the SDK did not receive
    (SPEC/basic/transports). `code` is the JSON-RPC error code; None derives it from the status."""
    status = _STATUS.get(fault.code, 400)
    # SPEC/basic/transports, Security Warning: 403 if the Origin is not permitted.
    if fault.details.get("reason") == ORIGIN:
        status = 403
    if code is None:
        code = INTERNAL if status >= 500 else INVALID_REQUEST
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": fault.message}}
    return status, body, fault_headers(fault)


def encode_failure(fault: Fault) -> JsonObject:
    """Return a fault as a tool result with `isError`, whose text the caller's model can read (SPEC/server/tools, Error
    Handling)."""
    content = [{"type": "text", "text": fault.message}]
    return {"content": content, "isError": True, "_meta": {"babelgate": encode_fault_facts(fault)}}


def encode_fault_facts(fault: Fault) -> JsonObject:
    """Return the kind of a fault, and the time of a retry, as members of `_meta.babelgate`."""
    facts: JsonObject = {"fault": str(fault.code)}
    if "retry_after" in fault.details:
        facts["retryAfter"] = fault.details["retry_after"]
    return facts
