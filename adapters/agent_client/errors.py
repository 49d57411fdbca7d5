"""Faults as JSON-RPC errors, and as responses to plain HTTP requests."""

from collections.abc import Mapping
from typing import Final

from babelgate.adapters.kit.server.statuses import STATUSES
from babelgate.canonical import Fault, FaultCode
from babelgate.canonical.fault import RELAYED
from babelgate.canonical.json import as_text
from babelgate.canonical.value import JsonObject

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL: Final = -32603
AUTH_REQUIRED: Final = -32000
NOT_FOUND: Final = -32002
CANCELLED: Final = -32800

_CODES: Final[Mapping[FaultCode, int]] = {
    FaultCode.INVALID: INVALID_PARAMS,
    FaultCode.UNSUPPORTED: INVALID_PARAMS,
    FaultCode.UNSUPPORTED_TYPE: INVALID_PARAMS,
    FaultCode.TOO_LARGE: INVALID_PARAMS,
    FaultCode.NOT_AWAITING: INVALID_PARAMS,
    FaultCode.UNAUTHENTICATED: AUTH_REQUIRED,
    FaultCode.NOT_FOUND: NOT_FOUND,
    FaultCode.METHOD_NOT_ALLOWED: METHOD_NOT_FOUND,
    FaultCode.CONFLICT: INVALID_REQUEST,
}
_ORIGIN: Final = "origin"
"""Value of `details.reason` in the fault for a request from a web page whose origin is not allowed."""
_SHOWN: Final = ("field", "limit", "reason", "retry_after", "resets_at", "scopes", "used", "allowed")
"""Keys of the `details` of a fault that are sent to clients."""


def encode_error(fault: Fault, code: int | None = None) -> JsonObject:
    """Return a fault as the `error` object of a JSON-RPC response. `code` is its number; by default, the fault's code
    determines it."""
    data: JsonObject = {"code": str(fault.code)}
    data |= {name: fault.details[name] for name in _SHOWN if name in fault.details}
    number = _CODES.get(fault.code, INTERNAL) if code is None else code
    return {"code": number, "message": fault.message or str(fault.code), "data": data}


def encode_fault(fault: Fault) -> tuple[int, JsonObject]:
    """Return the status and the JSON body of the HTTP response that reports a fault."""
    # As in MCP: a credential does not help a page of a foreign origin.
    status = 403 if fault.details.get("reason") == _ORIGIN else STATUSES[fault.code]
    return status, {"jsonrpc": "2.0", "id": None, "error": encode_error(fault)}


def decode_fault(members: JsonObject) -> Fault:
    """Return the fault of a tool call or a step of another gateway, from the object `fault` in `_meta.babelgate`."""
    return Fault(code=relayed_code(members.get("code")), message=as_text(members.get("message")))


def relayed_code(code: object) -> FaultCode:
    """Return the code of a fault of another gateway. Any code that is about that gateway itself becomes
    agent_failed."""
    found = next((each for each in RELAYED if each == code), None)
    return FaultCode.AGENT_FAILED if found is None else found
