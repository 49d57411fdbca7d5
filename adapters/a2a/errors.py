"""Faults ↔ A2A's errors: one table of reasons, and the form that an error takes in each binding and version."""

from dataclasses import dataclass
from typing import Any, Final, cast

from babelgate.adapters.kit.client.status import fault_code
from babelgate.canonical import Fault, FaultCode, FaultError
from babelgate.canonical.value import JsonObject

DOMAIN: Final = "a2a-protocol.org"


@dataclass(frozen=True, slots=True)
class Reason:
    """One kind of error: `google.rpc.ErrorInfo.reason` in 1.0."""

    name: str
    code: int
    """In JSON-RPC."""
    status: int
    """Of HTTP, in REST (specification 1.0.1, 5.4)."""
    rpc: str
    """`google.rpc.Code`."""
    status_0_3: int
    """Of HTTP, in REST of 0.3, where the specification leaves it open: as its SDK answers."""
    domain: str = DOMAIN


def _own(name: str, code: int, status: int, rpc: str) -> Reason:
    """What A2A has no error for."""
    return Reason(name, code, status, rpc, status, "babelgate")


REASONS: Final = {
    reason.name: reason
    for reason in (
        Reason("PARSE_ERROR", -32700, 400, "INVALID_ARGUMENT", 400),
        Reason("INVALID_REQUEST", -32600, 400, "INVALID_ARGUMENT", 400),
        Reason("METHOD_NOT_FOUND", -32601, 404, "NOT_FOUND", 404),
        Reason("INVALID_PARAMS", -32602, 400, "INVALID_ARGUMENT", 422),
        Reason("INTERNAL_ERROR", -32603, 500, "INTERNAL", 500),
        Reason("TASK_NOT_FOUND", -32001, 404, "NOT_FOUND", 404),
        Reason("TASK_NOT_CANCELABLE", -32002, 400, "FAILED_PRECONDITION", 409),
        Reason("PUSH_NOTIFICATION_NOT_SUPPORTED", -32003, 400, "FAILED_PRECONDITION", 501),
        Reason("UNSUPPORTED_OPERATION", -32004, 400, "FAILED_PRECONDITION", 501),
        Reason("CONTENT_TYPE_NOT_SUPPORTED", -32005, 400, "INVALID_ARGUMENT", 415),
        Reason("INVALID_AGENT_RESPONSE", -32006, 500, "INTERNAL", 502),
        Reason("EXTENDED_AGENT_CARD_NOT_CONFIGURED", -32007, 400, "FAILED_PRECONDITION", 404),
        Reason("EXTENSION_SUPPORT_REQUIRED", -32008, 400, "FAILED_PRECONDITION", 400),
        Reason("VERSION_NOT_SUPPORTED", -32009, 400, "FAILED_PRECONDITION", 400),
        # A2A leaves authentication to HTTP, and knows no limits; JSON-RPC needs a code all the same, and one of A2A's
        # would say something else.
        _own("UNAUTHENTICATED", -32000, 401, "UNAUTHENTICATED"),
        _own("FORBIDDEN", -32000, 403, "PERMISSION_DENIED"),
        # -32601 and HTTP's 404: A2A has no error for an agent or a path that there is not.
        _own("NOT_FOUND", -32601, 404, "NOT_FOUND"),
        _own("METHOD_NOT_ALLOWED", -32601, 405, "UNIMPLEMENTED"),
        # Both SDKs answer -32602 where what was sent does not fit what there is, such as another context.
        _own("CONFLICT", -32602, 409, "ABORTED"),
        _own("TOO_LARGE", -32600, 413, "INVALID_ARGUMENT"),
        _own("QUEUE_FULL", -32603, 429, "RESOURCE_EXHAUSTED"),
        _own("AGENT_UNREACHABLE", -32603, 502, "UNAVAILABLE"),
        _own("AGENT_TIMEOUT", -32603, 504, "DEADLINE_EXCEEDED"),
        _own("SHUTTING_DOWN", -32603, 503, "UNAVAILABLE"),
        _own("UNAVAILABLE", -32603, 503, "UNAVAILABLE"),
    )
}

_BY_CODE: Final = {
    FaultCode.INVALID: "INVALID_PARAMS",
    FaultCode.UNSUPPORTED: "UNSUPPORTED_OPERATION",
    FaultCode.UNSUPPORTED_TYPE: "CONTENT_TYPE_NOT_SUPPORTED",
    FaultCode.UNAUTHENTICATED: "UNAUTHENTICATED",
    FaultCode.FORBIDDEN: "FORBIDDEN",
    # Only what is known to be about a task says TASK_NOT_FOUND (`a2a_error`): this is also an agent, a path, a file.
    FaultCode.NOT_FOUND: "NOT_FOUND",
    FaultCode.METHOD_NOT_ALLOWED: "METHOD_NOT_ALLOWED",
    FaultCode.CONFLICT: "CONFLICT",
    FaultCode.TASK_ENDED: "UNSUPPORTED_OPERATION",
    FaultCode.NOT_AWAITING: "INVALID_PARAMS",
    FaultCode.TOO_LARGE: "TOO_LARGE",
    FaultCode.QUEUE_FULL: "QUEUE_FULL",
    FaultCode.AGENT_INVALID: "INVALID_AGENT_RESPONSE",
    FaultCode.AGENT_UNREACHABLE: "AGENT_UNREACHABLE",
    FaultCode.AGENT_TIMEOUT: "AGENT_TIMEOUT",
    FaultCode.SHUTTING_DOWN: "SHUTTING_DOWN",
    FaultCode.UNAVAILABLE: "UNAVAILABLE",
}


def a2a_error(reason: str, message: str) -> FaultError:
    """An error that A2A has a name of its own for."""
    codes = {"TASK_NOT_FOUND": FaultCode.NOT_FOUND, "TASK_NOT_CANCELABLE": FaultCode.TASK_ENDED}
    code = codes.get(reason, FaultCode.INVALID if REASONS[reason].code <= -32600 else FaultCode.UNSUPPORTED)
    return FaultError(code, message, a2a=reason)


def reason_of(fault: Fault) -> Reason:
    name = fault.details.get("a2a")
    if not isinstance(name, str):
        # No table for each version: -32008 and -32009 alone are new in 1.0, and nothing here raises them in 0.3.
        name = _BY_CODE.get(fault.code, "INTERNAL_ERROR")
    return REASONS[name]


def _details(fault: Fault, reason: Reason) -> list[JsonObject]:
    metadata: dict[str, str] = {}
    if "retry_after" in fault.details:
        metadata["retryAfter"] = str(fault.details["retry_after"])
    info: JsonObject = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason.name,
        "domain": reason.domain,
        "metadata": metadata,
    }
    # Specification 1.0, 9.5: `BadRequest` beside `ErrorInfo`, for each field that is wrong.
    errors: Any = fault.details.get("errors")
    if not errors:
        return [info]
    violations = [{"field": each["field"], "description": each["description"]} for each in errors]
    return [info, {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": violations}]


def error_object(fault: Fault, version: str) -> JsonObject:
    """The error of a JSON-RPC answer. `data` is an array of details in 1.0 (9.5), and free-form before: left out there,
    because clients of 0.x are known to expect whatever their own server sends."""
    reason = reason_of(fault)
    error: JsonObject = {"code": reason.code, "message": fault.message}
    if version == "1.0":
        error["data"] = _details(fault, reason)
    return error


def rest_error(fault: Fault) -> JsonObject:
    """The body of a REST error in 1.0 (specification 1.0, 11.6)."""
    reason = reason_of(fault)
    return {
        "error": {
            "code": reason.status,
            "status": reason.rpc,
            "message": fault.message,
            "details": _details(fault, reason),
        }
    }


def rest_error_0_3(fault: Fault) -> JsonObject:
    """The body of a REST error in 0.3, which the specification leaves open: `message` is what its SDK's server sends,
    `type` what the 0.3 side of the 1.0 SDK's client goes by, `code` what the same error has in JSON-RPC."""
    reason = reason_of(fault)
    words = reason.name.removesuffix("_ERROR").split("_")
    return {"message": fault.message, "type": "".join(map(str.capitalize, words)) + "Error", "code": reason.code}


# Of another server

_HEARD: Final = {
    "CONTENT_TYPE_NOT_SUPPORTED": FaultCode.UNSUPPORTED_TYPE,
    "UNSUPPORTED_OPERATION": FaultCode.UNSUPPORTED,
    "INVALID_AGENT_RESPONSE": FaultCode.AGENT_INVALID,
    "AGENT_UNREACHABLE": FaultCode.AGENT_UNREACHABLE,
    "AGENT_TIMEOUT": FaultCode.AGENT_TIMEOUT,
}
_BY_NUMBER: Final = {reason.code: reason.name for reason in REASONS.values() if reason.domain == DOMAIN}


def decode_error(answer: object, status: int = 200) -> FaultError:
    """What a server answers instead of a result: a JSON-RPC error, `google.rpc.Status`, the bodies of 0.3's REST, or
    something of a proxy's. `details` has its `reason`, its `status` in HTTP, and its own words as `said`."""
    body = cast("JsonObject", answer) if isinstance(answer, dict) else {}
    error = body.get("error")
    error = cast("JsonObject", error) if isinstance(error, dict) else body
    # `message` in all of A2A; `detail` in Starlette's and LangGraph's servers, `title` in RFC 9457.
    said = next((error[name] for name in ("message", "detail", "title") if isinstance(error.get(name), str)), "")
    reason = _decode_reason(error)
    code = _HEARD.get(reason) or fault_code(status)
    # Both SDKs answer errors of JSON-RPC with HTTP 200; any other status is a proxy's, or REST's, and says more.
    number = error.get("code") if isinstance(error.get("code"), int) and status == 200 else status
    words = f"The agent's server answered {number}" + (f": {said}" if said else "")
    return FaultError(code, words, reason=reason, said=said, status=status)


def _decode_reason(error: JsonObject) -> str:
    """As the details of 1.0 name it, else by the number of JSON-RPC; empty if neither tells."""
    # `error.data` in JSON-RPC (specification 1.0, 9.5), `error.details` in REST (11.6).
    for name in ("data", "details"):
        listed = error.get(name)
        for each in cast("list[Any]", listed) if isinstance(listed, list) else ():
            reason: Any = cast("JsonObject", each).get("reason") if isinstance(each, dict) else None
            if isinstance(reason, str):
                return reason
    code = error.get("code")
    return _BY_NUMBER.get(code, "") if isinstance(code, int) else ""
