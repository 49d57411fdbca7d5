"""Decoding of an upstream server's errors as faults: its error responses, and the errors of its runs."""

import re
from collections.abc import Mapping
from typing import Any, Final

from babelgate.adapters.kit.client.status import fault_code
from babelgate.adapters.kit.json import json_text
from babelgate.adapters.langchain.errors.encode import error_name
from babelgate.canonical import Fault, FaultCode, FaultError
from babelgate.canonical.fault import RELAYED
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Json, JsonObject

_MAX_MESSAGE_LENGTH: Final = 10_000
"""Maximum length of a server's error message in a fault, in characters. Longer ones are cut. Chosen."""
_CODES_BY_NAME: Final[Mapping[str, FaultCode]] = {
    error_name(code): code for code in RELAYED if code is not FaultCode.AGENT_FAILED
}
"""Fault code by the error's name, such as `AgentUnreachableError`, for faults that another Babelgate reports."""


def decode_error(wire: Json) -> Fault:
    """Return the error of an upstream run as a fault. The error is an object with `error` (the type of an exception)
    and `message`, or only one of them, or a string. Names that are not a Babelgate's give agent_failed."""
    error = as_object(wire)
    if isinstance(wire, str):
        return Fault(code=FaultCode.AGENT_FAILED, message=wire[:_MAX_MESSAGE_LENGTH] or _NO_MESSAGE)
    name: Any = error.get("error")
    message: Any = error.get("message", error.get("detail"))
    if message is not None and not isinstance(message, str):
        message = json_text(message)
    if not isinstance(name, str) or not name:
        return Fault(code=FaultCode.AGENT_FAILED, message=(message or _NO_MESSAGE)[:_MAX_MESSAGE_LENGTH])
    code = _CODES_BY_NAME.get(name, FaultCode.AGENT_FAILED)
    # Status 200, because the server itself is healthy: it responded, and reported the error.
    details: JsonObject = {"langchain": {"error": name}, "status": 200}
    return Fault(code=code, message=(message or name)[:_MAX_MESSAGE_LENGTH], details=details)


_NO_MESSAGE: Final = "The agent failed and did not say why."
"""Message of the fault for an error without a text."""


class ModeRefused(FaultError):
    """Fault raised if the server refused a run because of its stream modes."""


_MODE: Final = re.compile(r"stream[ _-]?mode|messages-tuple|[\"'`](tasks|checkpoints)[\"'`]", re.IGNORECASE)


def is_mode_refusal(status: int, answer: Json) -> bool:
    """Return True if the server refused a request because of its stream modes, as far as its error response shows.

    @langchain/langgraph-api before 1.0 responds with 400, and an error of zod that names the member. FastAPI responds
    with 422, and names the location in the body.
    """
    return status in (400, 422) and _MODE.search(json_text(answer)) is not None


def decode_error_response(status: int, answer: Json) -> Fault:
    """Return the error response of a server as a fault, with a code that depends on its HTTP status.

    LangGraph sends `{"detail": …}`, which is a list if its framework responds. The Agent Protocol sends `{code,
    message}` or a string; other servers send `{"error": …}`.
    """
    reason = _words(answer)
    message = f"The agent's server answered {status}"
    return Fault(code=fault_code(status), message=f"{message}: {reason[:_MAX_MESSAGE_LENGTH]}" if reason else message)


def _words(answer: Json) -> str:
    """Return the text in the body of an error response, or an empty string."""
    if isinstance(answer, str):
        return answer
    members = as_object(answer)
    # In the same order as langgraph-sdk 0.4.14 (`errors.py`).
    for name in ("message", "detail", "error"):
        text: Any = members.get(name)
        if isinstance(text, list) and text:
            # FastAPI's list of errors: aegra 0.11.0 responds with 422 like this.
            text = as_object(text[0]).get("msg")  # pyright: ignore[reportUnknownArgumentType]
        if isinstance(text, str) and text:
            return text
        if isinstance(text, dict) and text:  # @langchain/langgraph-api before 1.0: errors of zod
            return json_text(text)  # pyright: ignore[reportUnknownArgumentType]
    return ""


def status_of(fault: Fault) -> int | None:
    """Return the HTTP status of the error response from which a fault was decoded, or None for any other fault."""
    status: Any = fault.details.get("status")
    return status if isinstance(status, int) else None
