"""Faults → errors, in both dialects: a status and a body, or the error of a failed run."""

from collections.abc import Mapping
from typing import Any, Final

from babelgate.adapters.kit.server.statuses import STATUSES
from babelgate.canonical import Fault, FaultCode
from babelgate.canonical.fault import BUSY
from babelgate.canonical.value import JsonObject

BAD_REQUEST: Final = "bad_request"
"""`details.reason` of the malformed requests that LangGraph answers 400 and not 422, such as a resume without a
thread."""

_STATUSES: Final[Mapping[FaultCode, int]] = {**STATUSES, FaultCode.EXPIRED: 409}


_BUSY: Final = "Thread is already running a task. Wait for it to finish or choose a different multitask strategy."
"""As langgraph-api 0.16.7 says it: clients look for it."""


def words_of(fault: Fault) -> str:
    """What a caller is told of a fault."""
    return _BUSY if fault.details.get("reason") == BUSY else fault.message


def encode_fault(fault: Fault, dialect: str = "langgraph") -> tuple[int, JsonObject]:
    status = 400 if fault.details.get("reason") == BAD_REQUEST else _STATUSES[fault.code]
    if dialect == "langgraph":
        # langgraph-api 0.16.7: a text, also with 422, where FastAPI has a list.
        return status, {"detail": words_of(fault)}
    # OpenAPI 0.1.6, components.schemas.ErrorResponse.
    return status, {"code": fault.code.value, "message": words_of(fault), "metadata": _public_details(fault.details)}


def _public_details(details: JsonObject) -> JsonObject:
    return {key: value for key, value in details.items() if key not in ("langchain", "reason")}


def encode_error(fault: Fault | None) -> JsonObject:
    """The error of a run that failed. What a LangGraph agent said itself goes on in its own words."""
    if fault is None:
        return {"error": "AgentFailedError", "message": "The agent failed."}
    own: Mapping[str, Any] = fault.details.get("langchain") or {}
    said = own.get("error")
    if not isinstance(said, str):
        return {"error": error_name(fault.code), "message": fault.message}
    # Who has no place for the name of an exception reads it before its words; here it has one.
    return {"error": said, "message": fault.message.removeprefix(f"{said}: ")}


def error_name(code: FaultCode) -> str:
    """LangGraph names errors by the exception's type."""
    if code is FaultCode.AGENT_TIMEOUT:
        return "TimeoutError"
    return "".join(word.capitalize() for word in code.split("_")) + "Error"
