"""Errors (faults): what went wrong, and whose fault it is. Adapters turn a code into their protocol's own error; nobody
parses messages."""

from enum import StrEnum
from typing import Final, Literal

from babelgate.canonical.value import JsonObject, Value

Blame = Literal["caller", "upstream", "us"]

BUSY: Final = "busy"
"""`details.reason` of a conflict with a run of the thread that has not ended."""


class FaultCode(StrEnum):
    INVALID = "invalid"
    """The request does not say what its protocol asks for."""
    UNSUPPORTED = "unsupported"
    """Well-formed, and this agent or gateway does not do it."""
    UNSUPPORTED_TYPE = "unsupported_type"
    """A content type that the agent does not take."""
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    """The gateway does not answer whoever asks in this way, with or without a key."""
    NOT_FOUND = "not_found"
    """No such thing for this owner: another owner's thing is answered in the same words."""
    METHOD_NOT_ALLOWED = "method_not_allowed"
    CONFLICT = "conflict"
    """The id is taken, or the thread is busy and the caller asked not to wait."""
    TASK_ENDED = "task_ended"
    """A terminal task takes no more input and cannot be cancelled."""
    NOT_AWAITING = "not_awaiting"
    """An answer where no question is open, or where it was answered before."""
    TOO_LARGE = "too_large"
    QUEUE_FULL = "queue_full"
    """Bounded queues are full: come back after `details.retry_after` seconds."""
    AGENT_FAILED = "agent_failed"
    """The agent said that it failed, or raised."""
    AGENT_INVALID = "agent_invalid"
    """The agent's answer breaks its protocol or ours."""
    AGENT_UNREACHABLE = "agent_unreachable"
    AGENT_TIMEOUT = "agent_timeout"
    AGENT_NOT_REPLAYABLE = "agent_not_replayable"
    """The agent was started again to continue a paused task and did not repeat what it had said before."""
    EXPIRED = "expired"
    """Nobody answered the question in time."""
    GATEWAY_RESTARTED = "gateway_restarted"
    """The gateway stopped while the run was active and the agent could be neither re-attached nor started again."""
    SHUTTING_DOWN = "shutting_down"
    UNAVAILABLE = "unavailable"
    """The gateway's own database or store of files is away or full: what was asked for was not stored, and may be
    asked for again after `details.retry_after` seconds."""
    INTERNAL = "internal"


BLAME: Final[dict[FaultCode, Blame]] = {
    FaultCode.INVALID: "caller",
    FaultCode.UNSUPPORTED: "caller",
    FaultCode.UNSUPPORTED_TYPE: "caller",
    FaultCode.UNAUTHENTICATED: "caller",
    FaultCode.FORBIDDEN: "caller",
    FaultCode.NOT_FOUND: "caller",
    FaultCode.METHOD_NOT_ALLOWED: "caller",
    FaultCode.CONFLICT: "caller",
    FaultCode.TASK_ENDED: "caller",
    FaultCode.NOT_AWAITING: "caller",
    FaultCode.TOO_LARGE: "caller",
    FaultCode.QUEUE_FULL: "us",
    FaultCode.AGENT_FAILED: "upstream",
    FaultCode.AGENT_INVALID: "upstream",
    FaultCode.AGENT_UNREACHABLE: "upstream",
    FaultCode.AGENT_TIMEOUT: "upstream",
    FaultCode.AGENT_NOT_REPLAYABLE: "upstream",
    FaultCode.EXPIRED: "caller",
    FaultCode.GATEWAY_RESTARTED: "us",
    FaultCode.SHUTTING_DOWN: "us",
    FaultCode.UNAVAILABLE: "us",
    FaultCode.INTERNAL: "us",
}


class Fault(Value):
    """One thing that went wrong. `message` is for people and never holds a secret or a stack trace."""

    code: FaultCode
    message: str
    details: JsonObject = {}
    """Facts for programs: `field`, `retry_after` (seconds), `interrupts`, `reason` (as `BUSY`); what each code gives is
    up to its raiser."""

    @property
    def blame(self) -> Blame:
        return BLAME[self.code]


class FaultError(Exception):
    """A `Fault` on its way to whoever can tell the caller."""

    def __init__(self, code: FaultCode, message: str, **details: object) -> None:
        super().__init__(message)
        self.fault = Fault(code=code, message=message, details=details)

    @classmethod
    def of(cls, fault: Fault) -> "FaultError":
        return cls(fault.code, fault.message, **fault.details)
