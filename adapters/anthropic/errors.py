"""Faults ↔ errors of the Messages API: a status and `{"type": "error", "error": {type, message}}`."""

from collections.abc import Mapping
from typing import Final

from babelgate.adapters.anthropic import wire as w
from babelgate.adapters.anthropic.codec.names import PROTOCOL
from babelgate.adapters.kit.client.status import fault_code
from babelgate.canonical import Fault, FaultCode
from babelgate.canonical.fault import DISABLED
from babelgate.canonical.json import as_object, as_text
from babelgate.canonical.value import JsonObject

_INVALID: Final = "invalid_request_error"
_API: Final = "api_error"

_ERRORS: Final[Mapping[FaultCode, tuple[int, str]]] = {
    FaultCode.INVALID: (400, _INVALID),
    FaultCode.UNSUPPORTED: (400, _INVALID),
    FaultCode.UNSUPPORTED_TYPE: (400, _INVALID),
    FaultCode.UNAUTHENTICATED: (401, "authentication_error"),
    FaultCode.FORBIDDEN: (403, "permission_error"),
    FaultCode.NOT_FOUND: (404, "not_found_error"),
    FaultCode.METHOD_NOT_ALLOWED: (405, _INVALID),
    FaultCode.CONFLICT: (409, "conflict_error"),
    FaultCode.TASK_ENDED: (400, _INVALID),
    FaultCode.NOT_AWAITING: (400, _INVALID),
    FaultCode.TOO_LARGE: (413, "request_too_large"),
    FaultCode.QUEUE_FULL: (429, "rate_limit_error"),
    FaultCode.LIMITED: (429, "rate_limit_error"),
    FaultCode.AGENT_FAILED: (500, _API),
    FaultCode.AGENT_INVALID: (502, _API),
    FaultCode.AGENT_UNREACHABLE: (502, _API),
    FaultCode.AGENT_TIMEOUT: (504, "timeout_error"),
    FaultCode.AGENT_NOT_REPLAYABLE: (502, _API),
    FaultCode.EXPIRED: (410, "not_found_error"),
    FaultCode.GATEWAY_RESTARTED: (500, _API),
    FaultCode.SHUTTING_DOWN: (503, "overloaded_error"),
    FaultCode.UNAVAILABLE: (503, "overloaded_error"),
    FaultCode.INTERNAL: (500, _API),
}
"""HTTP status and `type` of the error by fault code (docs/en/api/errors)."""
_RETRYABLE: Final = frozenset({FaultCode.QUEUE_FULL, FaultCode.LIMITED, FaultCode.SHUTTING_DOWN, FaultCode.UNAVAILABLE})
"""Faults after which clients may retry. For all others, the header `x-should-retry: false` stops them: by default they
repeat any 409, 429 and 5xx (anthropic 2.14.0, `_base_client.py`), and each retry would run the agent again."""
_AGENT_CODES: Final = {str(code): code for code in FaultCode if code.startswith("agent_")}
CANCELLED: Final = Fault(
    code=FaultCode.CONFLICT, message="The run was cancelled.", details={PROTOCOL: {"code": "run_cancelled"}}
)
"""Fault that callers get for a cancelled run, for which the API defines no error."""
FAILED: Final = Fault(code=FaultCode.AGENT_FAILED, message="The agent failed and did not say why.")
"""Fault that callers get for a failed run whose `RunEnded` has no fault."""
STOPPING: Final = Fault(
    code=FaultCode.SHUTTING_DOWN, message="The gateway is shutting down, and the run has not ended."
)
STARTED_OVER: Final = Fault(
    code=FaultCode.AGENT_FAILED,
    message="The agent was restarted: discard the part of the answer that this stream has sent.",
    details={PROTOCOL: {"code": "started_over"}},
)


def encode_fault(fault: Fault, request_id: str | None = None) -> tuple[int, JsonObject, dict[str, str]]:
    """Return the HTTP status, the body and the headers of the error response for a fault. An error of the agent's own
    server, which speaks this API, keeps its type, its text and, if known, its status."""
    status, kind = _ERRORS[fault.code]
    upstream = as_object(fault.details.get(PROTOCOL))
    error: JsonObject = {"type": as_text(upstream.get("type")) or kind, "message": fault.message}
    upstream_status = fault.details.get("status")
    if "message" in upstream:
        error["message"] = upstream["message"]
        if isinstance(upstream_status, int) and 400 <= upstream_status < 600:
            status = upstream_status
    error[w.OWN] = {"code": as_text(upstream.get("code")) or str(fault.code)}
    errors = fault.details.get("errors")
    if errors:
        error["details"] = {"errors": errors}
    can_retry = fault.code in _RETRYABLE and fault.details.get("reason") != DISABLED and not fault.is_lasting_limit
    headers = {} if can_retry else {"x-should-retry": "false"}
    return status, {"type": "error", "error": error, "request_id": request_id}, headers


def encode_error(fault: Fault) -> JsonObject:
    """Return the data of an `error` event, for a stream whose status 200 was sent before."""
    _, body, _ = encode_fault(fault)
    return {"type": "error", "error": body["error"]}


_RETRIED: Final = frozenset({"rate_limit_error", "overloaded_error", "timeout_error"})
_CODES: Final = {
    "rate_limit_error": FaultCode.LIMITED,
    "overloaded_error": FaultCode.AGENT_UNREACHABLE,
    "timeout_error": FaultCode.AGENT_TIMEOUT,
}


def decode_error(error: JsonObject) -> Fault:
    """Return the fault for an error that another server reported after it had accepted the request."""
    gateway_code = _AGENT_CODES.get(as_text(as_object(error.get(w.OWN)).get("code")))
    message = as_text(error.get("message")) or FAILED.message
    if gateway_code is not None:
        return Fault(code=gateway_code, message=message)
    code = _CODES.get(as_text(error.get("type")), FaultCode.AGENT_FAILED)
    return Fault(code=code, message=message, details={PROTOCOL: _members(error), "status": 200})


def decode_error_response(status: int, body: JsonObject) -> Fault:
    """Return the fault for a response whose status is not 2xx. The text of a 401 or 403 is left out, because it may
    quote the API key."""
    error = as_object(body.get("error"))
    prefix = f"The agent's server answered {status}"
    if status in (401, 403):
        words = "is not authenticated" if status == 401 else "is not authorized"
        details: JsonObject = {PROTOCOL: {"type": as_text(error.get("type"))}}
        return Fault(code=FaultCode.AGENT_FAILED, message=f"{prefix}: the gateway {words}", details=details)
    gateway_code = _AGENT_CODES.get(as_text(as_object(error.get(w.OWN)).get("code")))
    if gateway_code is not None:
        return Fault(code=gateway_code, message=as_text(error.get("message")))
    # The API asks to retry after 500 and 529 (docs/en/api/errors).
    code = FaultCode.AGENT_UNREACHABLE if status in (500, 529) else fault_code(status)
    text = as_text(error.get("message"))
    return Fault(code=code, message=f"{prefix}: {text}" if text else prefix, details={PROTOCOL: _members(error)})


def _members(error: JsonObject) -> JsonObject:
    return {name: as_text(error.get(name))[:4000] for name in ("type", "message") if as_text(error.get(name))}
