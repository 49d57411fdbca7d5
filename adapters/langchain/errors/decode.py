"""Errors of another server → faults: its error responses, and the errors of its runs."""

import re
from collections.abc import Mapping
from typing import Any, Final

from babelgate.adapters.kit.client.status import fault_code
from babelgate.adapters.kit.json import json_text
from babelgate.adapters.langchain.errors.encode import error_name
from babelgate.canonical import Fault, FaultCode, FaultError
from babelgate.canonical.fault import BLAME
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Json, JsonObject

_LONGEST: Final = 10_000
"""Characters of a message that are repeated."""
_NAMED: Final[Mapping[str, FaultCode]] = {
    error_name(code): code for code in FaultCode if BLAME[code] == "upstream" and code is not FaultCode.AGENT_FAILED
}
"""As a gateway like this one names the failures of its agents."""


def decode_error(wire: Json) -> Fault:
    """Of a run: `{error, message}`, where `error` is the type of an exception; or only one of the two, or a text."""
    told = as_object(wire)
    if isinstance(wire, str):
        return Fault(code=FaultCode.AGENT_FAILED, message=wire[:_LONGEST] or _WORDLESS)
    name: Any = told.get("error")
    words: Any = told.get("message", told.get("detail"))
    if words is not None and not isinstance(words, str):
        words = json_text(words)
    if not isinstance(name, str) or not name:
        return Fault(code=FaultCode.AGENT_FAILED, message=(words or _WORDLESS)[:_LONGEST])
    code = _NAMED.get(name, FaultCode.AGENT_FAILED)
    # Its server is well: it answered, and told of it.
    details: JsonObject = {"langchain": {"error": name}, "status": 200}
    return Fault(code=code, message=(words or name)[:_LONGEST], details=details)


_WORDLESS: Final = "The agent failed and did not say why."


class ModeRefused(FaultError):
    """A server refused a run because of its stream modes."""


_MODE: Final = re.compile(r"stream[ _-]?mode|messages-tuple|[\"'`](tasks|checkpoints)[\"'`]", re.IGNORECASE)


def is_mode_refusal(status: int, answer: Json) -> bool:
    """Return whether an error response is about the stream modes of a request.

    @langchain/langgraph-api before 1.0 answers 400 with the path and the value (zod), FastAPI 422 with the location.
    """
    return status in (400, 422) and _MODE.search(json_text(answer)) is not None


def decode_error_response(status: int, answer: Json) -> Fault:
    """Of a call. LangGraph says `{"detail": …}`, of a list where its framework speaks; the Agent Protocol `{code,
    message}`, or a string; others `{"error": …}`."""
    words = _words(answer)
    told = f"The agent's server answered {status}"
    return Fault(code=fault_code(status), message=f"{told}: {words[:_LONGEST]}" if words else told)


def _words(answer: Json) -> str:
    if isinstance(answer, str):
        return answer
    told = as_object(answer)
    # In the order in which langgraph-sdk 0.4.14 looks for it (`errors.py`).
    for name in ("message", "detail", "error"):
        said: Any = told.get(name)
        if isinstance(said, list) and said:
            # FastAPI's list of what is wrong: aegra 0.11.0 answers 422 so.
            said = as_object(said[0]).get("msg")  # pyright: ignore[reportUnknownArgumentType]
        if isinstance(said, str) and said:
            return said
        if isinstance(said, dict) and said:  # @langchain/langgraph-api before 1.0: what zod found wrong
            return json_text(said)  # pyright: ignore[reportUnknownArgumentType]
    return ""


def status_of(fault: Fault) -> int | None:
    """The status of the error response that a fault was, if it was one."""
    status: Any = fault.details.get("status")
    return status if isinstance(status, int) else None
