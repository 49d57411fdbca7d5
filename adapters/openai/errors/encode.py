"""Faults as OpenAI's API tells them: a status and `{"error": {message, type, param, code}}`."""

from collections.abc import Mapping
from typing import Any, Final, cast

from babelgate.adapters.kit.server.fault_headers import fault_headers
from babelgate.adapters.openai.wire import replies as w
from babelgate.canonical import Fault, FaultCode
from babelgate.canonical.value import JsonObject

_REQUEST: Final = "invalid_request_error"
_SERVER: Final = "server_error"

_ANSWERS: Final[Mapping[FaultCode, tuple[int, str, str | None]]] = {
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

_AGAIN: Final = frozenset({FaultCode.QUEUE_FULL, FaultCode.SHUTTING_DOWN, FaultCode.UNAVAILABLE})
"""What a repeated request may find otherwise. Official clients repeat any 409, 429 and 5xx unless they are told not to
(openai-python 3.52.0, `_base_client.py`), and each time the agent would run again."""
_AGAIN_THERE: Final = frozenset({429, 503})
"""By which a server behind says that it has not looked at the request."""


def encode_fault(fault: Fault) -> tuple[int, w.Error, dict[str, str]]:
    """Status, error, headers."""
    told: object = fault.details.get("openai")
    own = cast("JsonObject", told) if isinstance(told, dict) else {}
    if isinstance(own.get("message"), str):
        return _encode_theirs(fault, own)
    status, kind, code = _ANSWERS[fault.code]
    errors: Any = fault.details.get("errors")
    param = errors[0]["field"] or None if errors else None
    named: object = own.get("code")
    error = w.Error(message=fault.message, type=kind, param=param, code=named if isinstance(named, str) else code)
    return status, error, _headers(fault, again=fault.code in _AGAIN)


def _encode_theirs(fault: Fault, own: JsonObject) -> tuple[int, w.Error, dict[str, str]]:
    """What the agent's own server of this API has said, as it said it."""
    status, kind, _ = _ANSWERS[fault.code]
    said: object = fault.details.get("status")
    if isinstance(said, int) and 400 <= said < 600:
        status = said
    error = w.Error.model_validate({**own, "type": own.get("type") or kind})
    return status, error, _headers(fault, again=status in _AGAIN_THERE)


def _headers(fault: Fault, *, again: bool) -> dict[str, str]:
    return {**({} if again else {"x-should-retry": "false"}), **fault_headers(fault)}


def encode_error(fault: Fault) -> JsonObject:
    """Inside a stream, which has answered 200 long ago."""
    _, error, _ = encode_fault(fault)
    return {"error": error.model_dump()}


def encode_error_message(fault: Fault) -> JsonObject:
    """Over a WebSocket, where there is no status and no header beside it (SPEC/responses/responses_server_event.py,
    ResponseWsError)."""
    status, error, headers = encode_fault(fault)
    told = error.model_dump()
    if headers:
        told["headers"] = headers
    return {"type": "error", "status": status, "error": told}


CANCELLED: Final = Fault(
    code=FaultCode.CONFLICT, message="The run was cancelled.", details={"openai": {"code": "run_cancelled"}}
)
"""The protocol has no word for it."""
