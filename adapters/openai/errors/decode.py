"""Conversion of OpenAI-compatible servers' errors to faults."""

from typing import Final

from pydantic_core import to_json

from babelgate.adapters.kit.client.status import fault_code
from babelgate.adapters.openai.wire import QUOTA
from babelgate.adapters.openai.wire import answers as w
from babelgate.canonical import Fault, FaultCode
from babelgate.canonical.value import JsonObject

_MOST_BYTES: Final = 64_000
"""Maximum size of an error with its unknown members, in bytes. Of a larger one, only the API's own members are kept."""

_CODES: Final = {
    "rate_limit_exceeded": FaultCode.LIMITED,
    QUOTA: FaultCode.LIMITED,
    "server_error": FaultCode.AGENT_UNREACHABLE,
    "overloaded_error": FaultCode.AGENT_UNREACHABLE,
}


def decode_error(error: w.Error | str | None) -> Fault:
    """Return the fault of a run that failed after it had begun. The server may report an object, a text or no
    `error`."""
    if isinstance(error, str):
        error = w.Error(message=error)
    if error is None:
        return Fault(code=FaultCode.AGENT_FAILED, message="The agent failed and did not say why.")
    code = _CODES.get(str(error.code), FaultCode.AGENT_FAILED)
    # The server itself works: it answered, and reported the failure.
    details: JsonObject = {"openai": _members_of(error), "status": 200, **_limit_of(error)}
    return Fault(code=code, message=error.message or "The agent failed.", details=details)


def decode_error_response(status: int, error: w.Error | str | None) -> Fault:
    """Return the fault for a response that is not 2xx, with the `error` of its body, if it has one. The text of a 401
    or 403 is left out, because it may quote the API key."""
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
    """Return the members of the server's error."""
    return fault.details.get("openai") or {}


def has_no_such_api(fault: Fault) -> bool:
    """Return True if the server does not know the path. An unknown model does not count."""
    return fault.details.get("status") in (404, 405, 501) and _error_of(fault).get("code") != "model_not_found"


def is_unexplained(fault: Fault) -> bool:
    """Return True if the server refused a request and named neither a member nor an error code.

    Servers without the Responses API answer like this, too: "Invalid URL", or that the body has no `messages`.
    """
    error = _error_of(fault)
    return fault.details.get("status") in (400, 422) and error.get("code") is None and error.get("param") is None


def is_previous_lost(fault: Fault, response_id: str) -> bool:
    """Return True if the server does not know the response that the request continues: it is too old, or was not
    stored."""
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
    """Return True if the server refuses requests with this field."""
    error = _error_of(fault)
    named = f"{error.get('param', '')} {error.get('message', '')}"
    return fault.details.get("status") in (400, 422) and field in named
