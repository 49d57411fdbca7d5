"""Conversion of OpenAI-compatible servers' errors to faults."""

from typing import Final

from pydantic_core import to_json

from babelgate.adapters.kit.client.status import fault_code
from babelgate.adapters.openai.wire import QUOTA
from babelgate.adapters.openai.wire import answers as w
from babelgate.canonical import Fault, FaultCode
from babelgate.canonical.value import JsonObject

_MOST_BYTES: Final = 64_000
"""Maximum size of a server's error that a fault stores, in bytes. Of a larger one, only the members that the API
defines are stored. Chosen."""

_CODES: Final = {
    "rate_limit_exceeded": FaultCode.LIMITED,
    QUOTA: FaultCode.LIMITED,
    "server_error": FaultCode.AGENT_UNREACHABLE,
    "overloaded_error": FaultCode.AGENT_UNREACHABLE,
}


def decode_error(error: w.Error | str | None) -> Fault:
    """Return the fault for an error that a server reported after it had accepted the request. `error` is the reported
    object or text, or None."""
    if isinstance(error, str):
        error = w.Error(message=error)
    if error is None:
        return Fault(code=FaultCode.AGENT_FAILED, message="The agent failed and did not say why.")
    code = _CODES.get(str(error.code), FaultCode.AGENT_FAILED)
    # The server itself works: it answered, and reported the failure.
    details: JsonObject = {"openai": _members_of(error), "status": 200, **_limit_of(error)}
    return Fault(code=code, message=error.message or "The agent failed.", details=details)


def decode_error_response(status: int, error: w.Error | str | None) -> Fault:
    """Return the fault for a response whose status is not 2xx. `error` is the member `error` of its body, or None. The
    text of a 401 or 403 is left out, because it may quote the API key."""
    if isinstance(error, str):
        error = w.Error(message=error)
    prefix = f"The agent's server answered {status}"
    members = _members_of(error) if error is not None else {}
    details: JsonObject = {"openai": members, **_limit_of(error)}
    if status in (401, 403):
        words = "is not authenticated" if status == 401 else "is not authorized"
        members = {name: value for name, value in members.items() if name in ("type", "param", "code")}
        details["openai"] = members
        return Fault(code=FaultCode.AGENT_FAILED, message=f"{prefix}: the gateway {words}", details=details)
    # OpenAI asks to "retry your request after a brief wait" after a 500 (platform.openai.com/docs/guides/error-codes).
    code = FaultCode.AGENT_UNREACHABLE if status == 500 else fault_code(status)
    message = f"{prefix}: {error.message}" if error is not None and error.message else prefix
    return Fault(code=code, message=message, details=details)


def _limit_of(error: w.Error | None) -> JsonObject:
    """Return the detail `limit` of a fault if the server reports a used up quota, after which a retry does not help."""
    return {"limit": "budget"} if error is not None and error.code == QUOTA else {}


def _members_of(error: w.Error) -> JsonObject:
    members = error.model_dump(exclude_unset=True)
    if len(to_json(members)) > _MOST_BYTES:
        members = error.model_dump(include={"message", "type", "param", "code"}, exclude_unset=True)
    return members


# Causes of an error response


def _error_of(fault: Fault) -> JsonObject:
    """Return the members of the server's error from which a fault was decoded."""
    return fault.details.get("openai") or {}


def has_no_such_api(fault: Fault) -> bool:
    """Return True if the server has no route for the requested path. The 404 for an unknown model does not count."""
    return fault.details.get("status") in (404, 405, 501) and _error_of(fault).get("code") != "model_not_found"


def is_unexplained(fault: Fault) -> bool:
    """Return True if the server refused a request with 400 or 422, and named neither a member nor an error code.

    Servers without the Responses API answer like this, too: "Invalid URL", or that the body has no `messages`.
    """
    error = _error_of(fault)
    return fault.details.get("status") in (400, 422) and error.get("code") is None and error.get("param") is None


def is_previous_lost(fault: Fault, response_id: str) -> bool:
    """Return True if the server refused a request because it does not have the response that the request continues."""
    if fault.details.get("status") not in (400, 404, 422):
        return False
    error = _error_of(fault)
    message = str(error.get("message", ""))
    return (
        # OpenAI's code. Other servers name the parameter, or quote the id in the message.
        error.get("code") == "previous_response_not_found"
        or error.get("param") in ("previous_response_id", "response_id")
        or "previous_response_id" in message
        or response_id in message
    )


def is_field_refused(fault: Fault, field: str) -> bool:
    """Return True if the server refused a request with 400 or 422 and named this field in its error."""
    error = _error_of(fault)
    named = f"{error.get('param', '')} {error.get('message', '')}"
    return fault.details.get("status") in (400, 422) and field in named
