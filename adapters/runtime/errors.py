"""Faults as the minimal runtime tells them: a status, and `{"error": {"code", "message"}}`, where the code is that of
the gateway and members of a body that are wrong are named in `errors`."""

from collections.abc import Mapping
from typing import Final

from babelgate.adapters.kit.server.statuses import STATUSES
from babelgate.canonical import Fault, FaultCode
from babelgate.canonical.value import JsonObject

_STATUSES: Final[Mapping[FaultCode, int]] = {**STATUSES, FaultCode.UNSUPPORTED_TYPE: 415}
"""Of calls that could not be answered. An agent that fails is a run with an error, and its status is 200."""


def encode_fault(fault: Fault) -> tuple[int, JsonObject]:
    error: JsonObject = {"code": str(fault.code), "message": fault.message}
    if errors := fault.details.get("errors"):
        error["errors"] = errors
    return _STATUSES[fault.code], {"error": error}
