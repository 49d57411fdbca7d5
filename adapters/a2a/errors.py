"""Conversion between faults and A2A errors: one table of reasons, and the form of an error in each binding and
version."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

from babelgate.adapters.kit.client.error_response import LONGEST
from babelgate.adapters.kit.client.status import fault_code
from babelgate.canonical import Fault, FaultCode, FaultError
from babelgate.canonical.fault import LASTING_LIMITS
from babelgate.canonical.value import JsonObject

DOMAIN: Final = "a2a-protocol.org"


@dataclass(frozen=True, slots=True)
class Reason:
    """One kind of A2A error, with its code in each binding. `name` is the `reason` of `google.rpc.ErrorInfo` in 1.0."""

    name: str
    code: int
    """Error code in JSON-RPC."""
    status: int
    """HTTP status in REST (specification 1.0.1, 5.4)."""
    rpc: str
    """Name of the gRPC status (`google.rpc.Code`), such as `NOT_FOUND`."""
    status_0_3: int
    """HTTP status in REST of 0.3. The specification does not define it; this is the status that the SDK of 0.3
    sends."""
    domain: str = DOMAIN


def _gateway_reason(name: str, code: int, status: int, rpc: str) -> Reason:
    """Return a kind of error that A2A does not define, with the domain of this gateway. `code` is its JSON-RPC code,
    `status` its HTTP status in all versions, and `rpc` its gRPC status."""
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
        # A2A leaves authentication to HTTP, and has no errors for limits. JSON-RPC needs a code, and those of A2A would
        # mean something else.
        _gateway_reason("UNAUTHENTICATED", -32000, 401, "UNAUTHENTICATED"),
        _gateway_reason("FORBIDDEN", -32000, 403, "PERMISSION_DENIED"),
        # -32601 and HTTP's 404: A2A has no error for an unknown agent or path.
        _gateway_reason("NOT_FOUND", -32601, 404, "NOT_FOUND"),
        _gateway_reason("METHOD_NOT_ALLOWED", -32601, 405, "UNIMPLEMENTED"),
        # Both SDKs answer -32602 if a request does not match the state, for example with another context.
        _gateway_reason("CONFLICT", -32602, 409, "ABORTED"),
        _gateway_reason("TOO_LARGE", -32600, 413, "INVALID_ARGUMENT"),
        _gateway_reason("QUEUE_FULL", -32603, 429, "RESOURCE_EXHAUSTED"),
        _gateway_reason("LIMITED", -32603, 429, "RESOURCE_EXHAUSTED"),
        _gateway_reason("AGENT_UNREACHABLE", -32603, 502, "UNAVAILABLE"),
        _gateway_reason("AGENT_TIMEOUT", -32603, 504, "DEADLINE_EXCEEDED"),
        _gateway_reason("SHUTTING_DOWN", -32603, 503, "UNAVAILABLE"),
        _gateway_reason("UNAVAILABLE", -32603, 503, "UNAVAILABLE"),
    )
}

_REASON_BY_FAULT: Final = {
    FaultCode.INVALID: "INVALID_PARAMS",
    FaultCode.UNSUPPORTED: "UNSUPPORTED_OPERATION",
    FaultCode.UNSUPPORTED_TYPE: "CONTENT_TYPE_NOT_SUPPORTED",
    FaultCode.UNAUTHENTICATED: "UNAUTHENTICATED",
    FaultCode.FORBIDDEN: "FORBIDDEN",
    # The fault may be about an agent, a path or a file. TASK_NOT_FOUND is raised by `a2a_error`, only for tasks.
    FaultCode.NOT_FOUND: "NOT_FOUND",
    FaultCode.METHOD_NOT_ALLOWED: "METHOD_NOT_ALLOWED",
    FaultCode.CONFLICT: "CONFLICT",
    FaultCode.TASK_ENDED: "UNSUPPORTED_OPERATION",
    FaultCode.NOT_AWAITING: "INVALID_PARAMS",
    FaultCode.TOO_LARGE: "TOO_LARGE",
    FaultCode.QUEUE_FULL: "QUEUE_FULL",
    FaultCode.LIMITED: "LIMITED",
    FaultCode.AGENT_INVALID: "INVALID_AGENT_RESPONSE",
    FaultCode.AGENT_UNREACHABLE: "AGENT_UNREACHABLE",
    FaultCode.AGENT_TIMEOUT: "AGENT_TIMEOUT",
    FaultCode.SHUTTING_DOWN: "SHUTTING_DOWN",
    FaultCode.UNAVAILABLE: "UNAVAILABLE",
}


def a2a_error(reason: str, message: str) -> FaultError:
    """Return an error with one of A2A's own reasons, such as `TASK_NOT_FOUND`."""
    codes = {"TASK_NOT_FOUND": FaultCode.NOT_FOUND, "TASK_NOT_CANCELABLE": FaultCode.TASK_ENDED}
    code = codes.get(reason, FaultCode.INVALID if REASONS[reason].code <= -32600 else FaultCode.UNSUPPORTED)
    return FaultError(code, message, a2a=reason)


def reason_of(fault: Fault) -> Reason:
    name = fault.details.get("a2a")
    if not isinstance(name, str):
        # One table for all versions: only -32008 and -32009 are new in 1.0, and the server of 0.3 never raises them.
        name = _REASON_BY_FAULT.get(fault.code, "INTERNAL_ERROR")
    return REASONS[name]


def _details(fault: Fault, reason: Reason) -> list[JsonObject]:
    metadata: dict[str, str] = {}
    if "retry_after" in fault.details:
        metadata["retryAfter"] = str(fault.details["retry_after"])
    if fault.is_lasting_limit:
        metadata["limit"] = str(fault.details["limit"])
    info: JsonObject = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason.name,
        "domain": reason.domain,
        "metadata": metadata,
    }
    # Specification 1.0, 9.5: `BadRequest` after `ErrorInfo`, with each invalid field.
    errors: Any = fault.details.get("errors")
    if not errors:
        return [info]
    violations = [{"field": each["field"], "description": each["description"]} for each in errors]
    return [info, {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": violations}]


def error_object(fault: Fault, version: str) -> JsonObject:
    """Return the member `error` of a JSON-RPC response.

    In 1.0, `data` is an array of details (9.5). In 0.x it may have any form and is omitted, because clients of 0.x are
    known to expect the form that the server of their SDK sends.
    """
    reason = reason_of(fault)
    error: JsonObject = {"code": reason.code, "message": fault.message}
    if version == "1.0":
        error["data"] = _details(fault, reason)
    return error


def rest_error(fault: Fault) -> JsonObject:
    """Return the body of a REST error in 1.0 (specification 1.0, 11.6)."""
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
    """Return the body of a REST error in 0.3, which the specification does not define. It has three members:

    - `message`, which the server of the 0.3 SDK sends;
    - `type`, which the client of the 1.0 SDK reads when it calls a server of 0.3;
    - `code`, the code of the same error in JSON-RPC.
    """
    reason = reason_of(fault)
    words = reason.name.removesuffix("_ERROR").split("_")
    return {"message": fault.message, "type": "".join(map(str.capitalize, words)) + "Error", "code": reason.code}


# Errors of another server

_SECONDS: Final = re.compile(r"[0-9]{1,9}")
_UPSTREAM_CODES: Final = {
    "CONTENT_TYPE_NOT_SUPPORTED": FaultCode.UNSUPPORTED_TYPE,
    "UNSUPPORTED_OPERATION": FaultCode.UNSUPPORTED,
    "INVALID_AGENT_RESPONSE": FaultCode.AGENT_INVALID,
    "AGENT_UNREACHABLE": FaultCode.AGENT_UNREACHABLE,
    "AGENT_TIMEOUT": FaultCode.AGENT_TIMEOUT,
    # As with status 429: a later call may succeed.
    "QUEUE_FULL": FaultCode.LIMITED,
    "LIMITED": FaultCode.LIMITED,
}
_REASON_BY_CODE: Final = {reason.code: reason.name for reason in REASONS.values() if reason.domain == DOMAIN}


def decode_error(answer: object, status: int = 200) -> FaultError:
    """Return the error that a server sent instead of a result. `status` is the HTTP status of the response.

    The answer is a JSON-RPC error, a `google.rpc.Status`, an error body of REST in 0.3, or the response of a proxy.
    `details` has the `reason`, the HTTP `status`, and the server's message as `said`. If another gateway named the time
    of a retry, or a limit that lasts, it also has `retry_after` or `limit`.
    """
    body = cast("JsonObject", answer) if isinstance(answer, dict) else {}
    error = body.get("error")
    error = cast("JsonObject", error) if isinstance(error, dict) else body
    # `message` in all of A2A; `detail` in Starlette's and LangGraph's servers, `title` in RFC 9457.
    text = next((error[name] for name in ("message", "detail", "title") if isinstance(error.get(name), str)), "")
    reason = _decode_reason(error)
    code = _UPSTREAM_CODES.get(reason) or fault_code(status)
    # Both SDKs send JSON-RPC errors with HTTP 200. Any other status comes from a proxy or REST, and is more specific.
    number = error.get("code") if isinstance(error.get("code"), int) and status == 200 else status
    message = f"The agent's server answered {number}" + (f": {text}" if text else "")
    details: JsonObject = {"reason": reason, "said": text, "status": status}
    metadata: Any = next((info["metadata"] for info in list_details(error) if "metadata" in info), None)
    seconds: Any = cast("JsonObject", metadata).get("retryAfter") if isinstance(metadata, dict) else None
    if isinstance(seconds, str) and _SECONDS.fullmatch(seconds):
        details["retry_after"] = min(int(seconds), LONGEST)
    if isinstance(metadata, dict) and cast("JsonObject", metadata).get("limit") in LASTING_LIMITS:
        details["limit"] = metadata["limit"]
    return FaultError(code, message, **details)


def list_details(error: JsonObject) -> Iterator[JsonObject]:
    """Yield the objects in the details of an error in 1.0."""
    # `error.data` in JSON-RPC (specification 1.0, 9.5), `error.details` in REST (11.6).
    for name in ("data", "details"):
        listed = error.get(name)
        for each in cast("list[Any]", listed) if isinstance(listed, list) else ():
            if isinstance(each, dict):
                yield cast("JsonObject", each)


def _decode_reason(error: JsonObject) -> str:
    """Return the reason in the details of an error in 1.0, or else the reason that belongs to its JSON-RPC code. Return
    an empty text if there is no such reason."""
    for info in list_details(error):
        reason: Any = info.get("reason")
        if isinstance(reason, str):
            return reason
    code = error.get("code")
    return _REASON_BY_CODE.get(code, "") if isinstance(code, int) else ""
