"""Faults in AG-UI: the body of an error response, and the event `RUN_ERROR`."""

from typing import Final

from babelgate.adapters.ag_ui import wire as w
from babelgate.adapters.kit.server.statuses import STATUSES
from babelgate.canonical import Fault, FaultCode
from babelgate.canonical.json import as_object, as_text
from babelgate.canonical.value import Json

_DETAILS: Final = frozenset({"errors", "interrupts", "reason"})
"""Details of a fault that an error response includes."""
_AGENT_CODES: Final = {str(code): code for code in FaultCode if code.startswith("agent_")}
"""Fault codes that are accepted from another gateway: a fault of that gateway itself is not a fault of this one."""


def encode_fault(fault: Fault) -> tuple[int, w.ErrorResponse]:
    """Return status and body of an error response. The protocol defines no body; clients show it as text."""
    details = {name: value for name, value in fault.details.items() if name in _DETAILS and value}
    error = w.ErrorBody(code=str(fault.code), message=fault.message, details=details or None)
    return STATUSES[fault.code], w.ErrorResponse(error=error)


def decode_run_error(message: str, code: str | None) -> Fault:
    """Return the fault of a run that ended with `RUN_ERROR`. The codes of other servers are free texts."""
    gateway_code = _AGENT_CODES.get(code or "")
    if gateway_code is not None:
        return Fault(code=gateway_code, message=message)
    details = {} if code is None else {"ag-ui": {"code": code}}
    return Fault(code=FaultCode.AGENT_FAILED, message=message, details=details)


def error_text(body: Json) -> str:
    """Return the text of an error response's body, or an empty text if it has none. Servers use different forms."""
    members = as_object(body)
    error = members.get("error")
    for text in (as_object(error).get("message"), error, members.get("detail"), members.get("message")):
        if as_text(text):
            return as_text(text)
    return ""
