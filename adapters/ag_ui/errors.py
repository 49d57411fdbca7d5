"""Faults in AG-UI: the body of an error response, and the event `RUN_ERROR`."""

from typing import Final

from babelgate.adapters.ag_ui import wire as w
from babelgate.adapters.kit.server.statuses import STATUSES
from babelgate.canonical import Fault, FaultCode
from babelgate.canonical.json import as_object, as_text
from babelgate.canonical.value import Json

_DETAILS: Final = frozenset({"errors", "interrupts", "reason"})
"""Members of `Fault.details` that an error response includes. All others are omitted."""
_AGENT_CODES: Final = {str(code): code for code in FaultCode if code.startswith("agent_")}
"""Fault codes that are accepted in the `RUN_ERROR` of another gateway, by their text. All of them blame the agent. Any
other code of that gateway, such as a limit, becomes agent_failed."""


def encode_fault(fault: Fault) -> tuple[int, w.ErrorResponse]:
    """Return status and body of an error response. The protocol defines no body; clients show it as text."""
    details = {name: value for name, value in fault.details.items() if name in _DETAILS and value}
    error = w.ErrorBody(code=str(fault.code), message=fault.message, details=details or None)
    return STATUSES[fault.code], w.ErrorResponse(error=error)


def decode_run_error(message: str, code: str | None) -> Fault:
    """Return the fault of a run that ended with `RUN_ERROR`. An `agent_` code of another gateway is kept. Any other
    code gives agent_failed, and is stored in the details."""
    gateway_code = _AGENT_CODES.get(code or "")
    if gateway_code is not None:
        return Fault(code=gateway_code, message=message)
    details = {} if code is None else {"ag-ui": {"code": code}}
    return Fault(code=FaultCode.AGENT_FAILED, message=message, details=details)


def error_text(body: Json) -> str:
    """Return the error message in the body of an error response, or an empty text. Servers use different members:
    `error.message`, `error`, `detail` or `message`."""
    members = as_object(body)
    error = members.get("error")
    for text in (as_object(error).get("message"), error, members.get("detail"), members.get("message")):
        if as_text(text):
            return as_text(text)
    return ""
