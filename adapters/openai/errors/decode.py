"""What an OpenAI-compatible server says of its failures → faults."""

from typing import Final

from pydantic_core import to_json

from babelgate.adapters.kit.client.status import fault_code
from babelgate.adapters.openai.wire import answers as w
from babelgate.canonical import Fault, FaultCode
from babelgate.canonical.value import JsonObject

_MOST_BYTES: Final = 64_000
"""Bytes of an error with the members that the API does not have."""

_CODES: Final = {
    "rate_limit_exceeded": FaultCode.AGENT_UNREACHABLE,
    "server_error": FaultCode.AGENT_UNREACHABLE,
    "overloaded_error": FaultCode.AGENT_UNREACHABLE,
}


def decode_error(error: w.Error | str | None) -> Fault:
    """The failure of a run that had begun."""
    if isinstance(error, str):
        error = w.Error(message=error)
    if error is None:
        return Fault(code=FaultCode.AGENT_FAILED, message="The agent failed and did not say why.")
    code = _CODES.get(str(error.code), FaultCode.AGENT_FAILED)
    # Its server is well: it answered, and told of it.
    details: JsonObject = {"openai": _own(error), "status": 200}
    return Fault(code=code, message=error.message or "The agent failed.", details=details)


def decode_error_response(status: int, error: w.Error | str | None) -> Fault:
    """An answer that is no 2xx. What the server says of a wrong key is not repeated: it may quote the key."""
    if isinstance(error, str):
        error = w.Error(message=error)
    told = f"The agent's server answered {status}"
    own = _own(error) if error is not None else {}
    details: JsonObject = {"openai": own}
    if status in (401, 403):
        words = "is not let in" if status == 401 else "may not do this"
        own = {name: value for name, value in own.items() if name in ("type", "param", "code")}
        details["openai"] = own
        return Fault(code=FaultCode.AGENT_FAILED, message=f"{told}: the gateway {words}", details=details)
    # OpenAI asks to "retry your request after a brief wait" after a 500 (platform.openai.com/docs/guides/error-codes).
    code = FaultCode.AGENT_UNREACHABLE if status == 500 else fault_code(status)
    message = f"{told}: {error.message}" if error is not None and error.message else told
    return Fault(code=code, message=message, details=details)


def _own(error: w.Error) -> JsonObject:
    told = error.model_dump(exclude_unset=True)
    if len(to_json(told)) > _MOST_BYTES:
        told = error.model_dump(include={"message", "type", "param", "code"}, exclude_unset=True)
    return told


# What an error response says of the server


def _of(fault: Fault) -> JsonObject:
    return fault.details.get("openai") or {}


def has_no_such_api(fault: Fault) -> bool:
    """The path is unknown there, and not the model."""
    return fault.details.get("status") in (404, 405, 501) and _of(fault).get("code") != "model_not_found"


def is_unexplained(fault: Fault) -> bool:
    """Whether the server refused a request and named neither a member nor an error code.

    Servers without the Responses API answer like this, too: "Invalid URL", or that the body has no `messages`.
    """
    own = _of(fault)
    return fault.details.get("status") in (400, 422) and own.get("code") is None and own.get("param") is None


def is_previous_lost(fault: Fault, response_id: str) -> bool:
    """The server does not know the response that the call goes on from: too old, or it keeps none."""
    if fault.details.get("status") not in (400, 404, 422):
        return False
    own = _of(fault)
    message = str(own.get("message", ""))
    return (
        # OpenAI's code; other servers name the parameter, or the id in words.
        own.get("code") == "previous_response_not_found"
        or own.get("param") in ("previous_response_id", "response_id")
        or "previous_response_id" in message
        or response_id in message
    )


def is_field_refused(fault: Fault, field: str) -> bool:
    """The server takes no request with this field."""
    own = _of(fault)
    named = f"{own.get('param', '')} {own.get('message', '')}"
    return fault.details.get("status") in (400, 422) and field in named
