"""Faults as ACP tells them: a status and one of three codes, or the `error` of a failed run."""

from collections.abc import Mapping
from typing import Any, Final, Literal, cast

from babelgate.adapters.acp import wire as w
from babelgate.adapters.kit.server.statuses import STATUSES
from babelgate.canonical import BLAME, Fault, FaultCode
from babelgate.canonical.value import JsonObject

MISMATCH: Final = "session_mismatch"
"""`details.reason` of the one malformed request that is answered 400 and not 422."""

_AGENTS: Final = {str(code): code for code in FaultCode if code.startswith("agent_")}
"""What is wrong with the other gateway is not wrong with this one."""

_CODES: Final = frozenset({"server_error", "invalid_input", "not_found"})

_STATUSES: Final[Mapping[FaultCode, int]] = {
    **STATUSES,
    # SDK 1.0.3: "Run in terminal status … can't be cancelled".
    FaultCode.TASK_ENDED: 403,
    # SDK 1.0.3: "Run … has no await request".
    FaultCode.NOT_AWAITING: 403,
}
_OF_SERVER: Final = frozenset(
    {FaultCode.METHOD_NOT_ALLOWED, FaultCode.TASK_ENDED, FaultCode.NOT_AWAITING, FaultCode.QUEUE_FULL}
)
"""Refusals that SDK 1.0.3 calls `server_error`, although their status is a 4xx."""


def encode_fault(fault: Fault) -> tuple[int, w.Error]:
    status = _STATUSES[fault.code]
    # SDK 1.0.3 answers 400 to two session ids, and 422 to all else that is malformed.
    if fault.details.get("reason") == MISMATCH:
        status = 400
    return status, w.Error(code=_word_for(fault.code), message=fault.message)


def _word_for(code: FaultCode) -> Literal["not_found", "server_error", "invalid_input"]:
    status = _STATUSES[code]
    if status == 404:
        return "not_found"
    return "server_error" if status >= 500 or code in _OF_SERVER else "invalid_input"


def encode_error(fault: Fault | None) -> w.Error:
    """The `error` of a failed run; what an ACP agent said itself goes on in its own words."""
    if fault is None:
        return w.Error(code="server_error", message="The agent failed.")
    own: Mapping[str, Any] = fault.details.get("acp") or {}
    code = own.get("code")
    # components.schemas.Error.code; the TypeScript client of SDK 1.0.3 takes no fourth.
    if code not in _CODES:
        code = "invalid_input" if BLAME[fault.code] == "caller" else "server_error"
    data = own.get("data")
    if data is None and fault.code in _AGENTS and fault.code is not FaultCode.AGENT_FAILED:
        data = {w.OWN: {"code": fault.code}}
    return w.Error(code=code, message=fault.message, data=data)


def encode_own(fault: Fault | None) -> JsonObject | None:
    """A fault where ACP has no place for one."""
    return None if fault is None else {"code": fault.code, "message": fault.message}


def decode_fault(own: object) -> Fault | None:
    """Of a gateway like this one."""
    told = cast("JsonObject", own) if isinstance(own, dict) else {}
    words = told.get("message")
    if not isinstance(words, str):
        return None
    return Fault(code=_AGENTS.get(str(told.get("code")), FaultCode.AGENT_FAILED), message=words)


def decode_error(error: w.Error | None) -> Fault:
    if error is None:
        return Fault(code=FaultCode.AGENT_FAILED, message="The agent failed and did not say why.")
    known = _AGENTS.get(_own_code(error.data))
    if known is not None:
        return Fault(code=known, message=error.message)
    # Any code: the Python client reads a string there.
    own = {"code": error.code, "data": error.data}
    return Fault(code=FaultCode.AGENT_FAILED, message=error.message, details={"acp": own})


def _own_code(data: object) -> str:
    own = cast("JsonObject", data).get(w.OWN) if isinstance(data, dict) else None
    return str(cast("JsonObject", own).get("code")) if isinstance(own, dict) else ""
