"""Encoding of faults as errors of both dialects: a status and a body, or the error of a failed run."""

from collections.abc import Mapping
from typing import Any, Final

from babelgate.adapters.kit.server.statuses import STATUSES
from babelgate.canonical import Fault, FaultCode
from babelgate.canonical.fault import BUSY
from babelgate.canonical.value import JsonObject

BAD_REQUEST: Final = "bad_request"
"""Value of `details.reason` in faults for malformed requests to which LangGraph responds with 400 and not 422, such as
a resume without a thread."""

_STATUSES: Final[Mapping[FaultCode, int]] = {**STATUSES, FaultCode.EXPIRED: 409}


_BUSY: Final = "Thread is already running a task. Wait for it to finish or choose a different multitask strategy."
"""Message for a busy thread, with the words of langgraph-api 0.16.7, because clients search for them."""


def fault_text(fault: Fault) -> str:
    """Return the message of a fault for callers. A busy thread gets the text of LangGraph."""
    return _BUSY if fault.details.get("reason") == BUSY else fault.message


def encode_fault(fault: Fault, dialect: str = "langgraph") -> tuple[int, JsonObject]:
    """Return the HTTP status and the JSON body of an error response in a dialect."""
    status = 400 if fault.details.get("reason") == BAD_REQUEST else _STATUSES[fault.code]
    if dialect == "langgraph":
        # langgraph-api 0.16.7: a string, even with 422, for which FastAPI sends a list.
        return status, {"detail": fault_text(fault)}
    # OpenAPI 0.1.6, components.schemas.ErrorResponse.
    return status, {"code": fault.code.value, "message": fault_text(fault), "metadata": _public_details(fault.details)}


def _public_details(details: JsonObject) -> JsonObject:
    return {key: value for key, value in details.items() if key not in ("langchain", "reason")}


def encode_error(fault: Fault | None) -> JsonObject:
    """Return the error of a failed run as `{error, message}`. An error that a LangGraph agent reported keeps its name
    and text. None, an unknown fault, gives a general error."""
    if fault is None:
        return {"error": "AgentFailedError", "message": "The agent failed."}
    upstream: Mapping[str, Any] = fault.details.get("langchain") or {}
    name = upstream.get("error")
    if not isinstance(name, str):
        return {"error": error_name(fault.code), "message": fault.message}
    # Protocols without a member for the exception's name have it before the text. Here it has its own member.
    return {"error": name, "message": fault.message.removeprefix(f"{name}: ")}


def error_name(code: FaultCode) -> str:
    """Return the name of an error, in the form of an exception's type as LangGraph has it: `AgentFailedError` for
    agent_failed."""
    if code is FaultCode.AGENT_TIMEOUT:
        return "TimeoutError"
    return "".join(word.capitalize() for word in code.split("_")) + "Error"
