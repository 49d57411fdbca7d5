"""Conversion of faults to ACP: the status and one of three codes in an error response, or the `error` of a failed
run."""

from collections.abc import Mapping
from typing import Any, Final, Literal, cast

from babelgate.adapters.acp import wire as w
from babelgate.adapters.kit.server.statuses import STATUSES
from babelgate.canonical import BLAME, Fault, FaultCode
from babelgate.canonical.fault import RELAYED
from babelgate.canonical.value import JsonObject

MISMATCH: Final = "session_mismatch"
"""Value of `details.reason` for the only malformed request whose status is 400 instead of 422."""

_AGENT_CODES: Final = {str(code): code for code in RELAYED}
"""Fault codes that are accepted from another gateway, by their text: faults of its agent, and limits. Any other code
concerns that gateway itself, so that the run here has failed by the agent's fault."""

_CODES: Final = frozenset({"server_error", "invalid_input", "not_found"})
"""Error codes that ACP defines."""

_STATUSES: Final[Mapping[FaultCode, int]] = {
    **STATUSES,
    # SDK 1.0.3: "Run in terminal status … can't be cancelled".
    FaultCode.TASK_ENDED: 403,
    # SDK 1.0.3: "Run … has no await request".
    FaultCode.NOT_AWAITING: 403,
}
_SERVER_ERRORS: Final = frozenset(
    {
        FaultCode.METHOD_NOT_ALLOWED,
        FaultCode.TASK_ENDED,
        FaultCode.NOT_AWAITING,
        FaultCode.QUEUE_FULL,
        FaultCode.LIMITED,
    }
)
"""Codes of faults that SDK 1.0.3 reports as `server_error`, although their status is 4xx."""


def encode_fault(fault: Fault) -> tuple[int, w.Error]:
    """Return the HTTP status and the body of an error response."""
    status = _STATUSES[fault.code]
    # SDK 1.0.3 responds with 400 to two different session ids, and with 422 to all other malformed requests.
    if fault.details.get("reason") == MISMATCH:
        status = 400
    return status, w.Error(code=_wire_code(fault.code), message=fault.message)


def _wire_code(code: FaultCode) -> Literal["not_found", "server_error", "invalid_input"]:
    """Return the ACP error code for a fault code."""
    status = _STATUSES[code]
    if status == 404:
        return "not_found"
    return "server_error" if status >= 500 or code in _SERVER_ERRORS else "invalid_input"


def encode_error(fault: Fault | None) -> w.Error:
    """Return the `error` of a failed run. The error of an agent on another ACP server is passed through unchanged. If
    `fault` is None, return a general error."""
    if fault is None:
        return w.Error(code="server_error", message="The agent failed.")
    native: Mapping[str, Any] = fault.details.get("acp") or {}
    code = native.get("code")
    # components.schemas.Error.code; the TypeScript client of SDK 1.0.3 accepts no fourth code.
    if code not in _CODES:
        is_input = BLAME[fault.code] == "caller" and fault.code not in _SERVER_ERRORS
        code = "invalid_input" if is_input else "server_error"
    data = native.get("data")
    if data is None and fault.code in _AGENT_CODES and fault.code is not FaultCode.AGENT_FAILED:
        data = {w.OWN: {"code": fault.code}}
    return w.Error(code=code, message=fault.message, data=data)


def encode_own(fault: Fault | None) -> JsonObject | None:
    """Return a fault as an object with its code and message, for places where ACP has no error. Return None if there is
    no fault."""
    return None if fault is None else {"code": fault.code, "message": fault.message}


def decode_fault(value: object) -> Fault | None:
    """Return the fault that another gateway has encoded with `encode_own`. Return None for any other value."""
    members = cast("JsonObject", value) if isinstance(value, dict) else {}
    words = members.get("message")
    if not isinstance(words, str):
        return None
    return Fault(code=_AGENT_CODES.get(str(members.get("code")), FaultCode.AGENT_FAILED), message=words)


def decode_error(error: w.Error | None) -> Fault:
    """Return the fault of a failed run from its `error`. Return a general fault if the server reports none."""
    if error is None:
        return Fault(code=FaultCode.AGENT_FAILED, message="The agent failed and did not say why.")
    gateway_code = _AGENT_CODES.get(_gateway_code(error.data))
    if gateway_code is not None:
        return Fault(code=gateway_code, message=error.message)
    # Any code: the Python client accepts a string here.
    native = {"code": error.code, "data": error.data}
    return Fault(code=FaultCode.AGENT_FAILED, message=error.message, details={"acp": native})


def _gateway_code(data: object) -> str:
    """Return the fault code that another gateway has added to the data of an error. Return an empty text if there is
    none."""
    members = cast("JsonObject", data).get(w.OWN) if isinstance(data, dict) else None
    return str(cast("JsonObject", members).get("code")) if isinstance(members, dict) else ""
