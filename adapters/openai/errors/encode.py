"""Conversion of faults to errors of OpenAI's API: a status and `{"error": {message, type, param, code}}`."""

from collections.abc import Mapping
from typing import Any, Final, cast

from babelgate.adapters.kit.server.fault_headers import fault_headers
from babelgate.adapters.openai.wire import QUOTA
from babelgate.adapters.openai.wire import replies as w
from babelgate.canonical import Fault, FaultCode
from babelgate.canonical.fault import DISABLED
from babelgate.canonical.value import JsonObject

_REQUEST: Final = "invalid_request_error"
_SERVER: Final = "server_error"

_ERRORS: Final[Mapping[FaultCode, tuple[int, str, str | None]]] = {
    FaultCode.INVALID: (400, _REQUEST, None),
    FaultCode.UNSUPPORTED: (400, _REQUEST, "unsupported"),
    FaultCode.UNSUPPORTED_TYPE: (400, _REQUEST, "unsupported"),
    FaultCode.UNAUTHENTICATED: (401, _REQUEST, "invalid_api_key"),
    FaultCode.FORBIDDEN: (403, _REQUEST, "forbidden"),
    FaultCode.NOT_FOUND: (404, _REQUEST, "not_found"),
    FaultCode.METHOD_NOT_ALLOWED: (405, _REQUEST, "method_not_allowed"),
    FaultCode.CONFLICT: (409, _REQUEST, "conflict"),
    FaultCode.TASK_ENDED: (400, _REQUEST, "run_ended"),
    FaultCode.NOT_AWAITING: (400, _REQUEST, "already_answered"),
    FaultCode.TOO_LARGE: (413, _REQUEST, "request_too_large"),
    FaultCode.QUEUE_FULL: (429, "rate_limit_error", "rate_limit_exceeded"),
    FaultCode.LIMITED: (429, "rate_limit_error", "rate_limit_exceeded"),
    FaultCode.AGENT_FAILED: (500, _SERVER, "agent_failed"),
    FaultCode.AGENT_INVALID: (502, _SERVER, "agent_invalid"),
    FaultCode.AGENT_UNREACHABLE: (502, _SERVER, "agent_unreachable"),
    FaultCode.AGENT_TIMEOUT: (504, _SERVER, "agent_timeout"),
    FaultCode.AGENT_NOT_REPLAYABLE: (502, _SERVER, "agent_not_replayable"),
    FaultCode.EXPIRED: (410, _REQUEST, "expired"),
    FaultCode.GATEWAY_RESTARTED: (500, _SERVER, "gateway_restarted"),
    FaultCode.SHUTTING_DOWN: (503, _SERVER, "shutting_down"),
    FaultCode.UNAVAILABLE: (503, _SERVER, "unavailable"),
    FaultCode.INTERNAL: (500, _SERVER, "internal"),
}
"""HTTP status, `type` and `code` of the error by fault code."""

_RETRYABLE: Final = frozenset({FaultCode.QUEUE_FULL, FaultCode.LIMITED, FaultCode.SHUTTING_DOWN, FaultCode.UNAVAILABLE})
"""Faults after which clients may retry. For all others, the header `x-should-retry: false` stops official clients.

By default they retry any 409, 429 and 5xx (openai-python 3.52.0, `_base_client.py`), and each retry would run the agent
again.
"""
_RETRYABLE_STATUSES: Final = frozenset({429, 503})
"""HTTP statuses with which the agent's server says that it has not processed the request, so that callers may retry."""


def encode_fault(fault: Fault) -> tuple[int, w.Error, dict[str, str]]:
    """Return the HTTP status, the error object and the headers for a fault. If the fault came from a server that speaks
    this API, return that server's error."""
    value: object = fault.details.get("openai")
    upstream_error = cast("JsonObject", value) if isinstance(value, dict) else {}
    if isinstance(upstream_error.get("message"), str):
        return _encode_upstream_error(fault, upstream_error)
    status, kind, code = _ERRORS[fault.code]
    if fault.is_lasting_limit:
        kind = code = QUOTA
    errors: Any = fault.details.get("errors")
    param = errors[0]["field"] or None if errors else None
    error_code: object = upstream_error.get("code")
    error = w.Error(
        message=fault.message, type=kind, param=param, code=error_code if isinstance(error_code, str) else code
    )
    # openai-python 3.52.0 repeats a 429 three times within seconds, unless the server says not to.
    can_retry = fault.code in _RETRYABLE and fault.details.get("reason") != DISABLED and not fault.is_lasting_limit
    return status, error, _headers(fault, can_retry=can_retry)


def _encode_upstream_error(fault: Fault, upstream_error: JsonObject) -> tuple[int, w.Error, dict[str, str]]:
    """Return the error that the agent's own server sent, which speaks this API, with its status and text."""
    status, kind, _ = _ERRORS[fault.code]
    upstream_status: object = fault.details.get("status")
    if isinstance(upstream_status, int) and 400 <= upstream_status < 600:
        status = upstream_status
    error = w.Error.model_validate({**upstream_error, "type": upstream_error.get("type") or kind})
    return status, error, _headers(fault, can_retry=status in _RETRYABLE_STATUSES and not fault.is_lasting_limit)


def _headers(fault: Fault, *, can_retry: bool) -> dict[str, str]:
    return {**({} if can_retry else {"x-should-retry": "false"}), **fault_headers(fault)}


def encode_error(fault: Fault) -> JsonObject:
    """Return the data of an error event, for a stream whose status 200 was sent before."""
    _, error, _ = encode_fault(fault)
    return {"error": error.model_dump()}


def encode_error_message(fault: Fault) -> JsonObject:
    """Return an error as a WebSocket message, which also has the status and the headers of an error response
    (SPEC/responses/responses_server_event.py, ResponseWsError)."""
    status, error, headers = encode_fault(fault)
    members = error.model_dump()
    if headers:
        members["headers"] = headers
    return {"type": "error", "status": status, "error": members}


CANCELLED: Final = Fault(
    code=FaultCode.CONFLICT, message="The run was cancelled.", details={"openai": {"code": "run_cancelled"}}
)
"""Fault that callers get for a cancelled run, for which OpenAI's API defines no error."""
FAILED: Final = Fault(code=FaultCode.AGENT_FAILED, message="The agent failed and did not say why.")
"""Fault that callers get for a failed run whose `RunEnded` has no fault."""
