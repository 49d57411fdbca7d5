"""Errors (faults): a code, a message for people, and who is to blame. Adapters map the code to their protocol's own
error; no program parses messages."""

from enum import StrEnum
from typing import Final, Literal

from babelgate.canonical.value import JsonObject, Value

Blame = Literal["caller", "upstream", "us"]
LimitKind = Literal["rate", "concurrency", "budget", "chain"]
"""Values of `details.limit` in a fault with the code `limited`. They name the limited quantity: runs started per period
(`rate`), runs at the same time (`concurrency`), cost, tokens or runs (`budget`), or the depth and number of agents that
call each other (`chain`)."""

LASTING_LIMITS: Final = frozenset({"budget", "chain"})
"""Values of `details.limit` after which a retry does not help soon."""

THREAD_EXISTS: Final = "thread_exists"
"""Reason of a conflict: the submission has to begin a new thread, and its thread exists already."""
BUSY: Final = "busy"
"""Value of `details.reason` in a `conflict` if a run of the thread is still pending or running."""

ANSWER_SCHEMA: Final = "answer_schema"
"""Value of `details.reason` for an answer that violates the JSON Schema of its question."""

DISABLED: Final = "disabled"
"""Value of `details.reason` in `unavailable` if an administrator has disabled the agent. A retry does not help."""

INVALID_TOKEN: Final = "invalid_token"
"""Value of `details.reason` in `unauthenticated` if a credential was sent, but is not accepted (RFC 6750, 3.1)."""

INSUFFICIENT_SCOPE: Final = "insufficient_scope"
"""Value of `details.reason` in `forbidden` if a token with one more scope would be allowed (RFC 6750, 3.1).
`details.scopes` names the scopes."""


class FaultCode(StrEnum):
    INVALID = "invalid"
    """The request violates its protocol."""
    UNSUPPORTED = "unsupported"
    """The request is well-formed, but this agent or gateway does not support it."""
    UNSUPPORTED_TYPE = "unsupported_type"
    """The agent does not accept the content type of a part of the input."""
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    """The caller may not do this operation, or the gateway refuses the way of access, for example an unknown host
    name."""
    NOT_FOUND = "not_found"
    """The owner has no such object. An object of another owner is reported with the same text."""
    METHOD_NOT_ALLOWED = "method_not_allowed"
    CONFLICT = "conflict"
    """The id is taken, or the thread is busy and the caller chose not to wait."""
    TASK_ENDED = "task_ended"
    """The task is terminal: it takes no more input and cannot be cancelled."""
    NOT_AWAITING = "not_awaiting"
    """The answer has no open question, or its question has already been answered."""
    TOO_LARGE = "too_large"
    QUEUE_FULL = "queue_full"
    """A queue of waiting runs is full, or the owner has the maximum number of objects, such as crons. For a queue,
    `details.retry_after` is the time to wait in seconds."""
    LIMITED = "limited"
    """A limit of the configuration, or of the agent's server, refuses the run. `details.limit` names its kind
    (`LimitKind`), `used` and `allowed` are numbers; those of a server are not known. Unless a retry is useless,
    `retry_after` is a number of whole seconds, and `resets_at` the same as a time."""
    AGENT_FAILED = "agent_failed"
    """The agent reported a failure or raised an exception."""
    AGENT_INVALID = "agent_invalid"
    """The agent's answer violates its protocol or the canonical model."""
    AGENT_UNREACHABLE = "agent_unreachable"
    AGENT_TIMEOUT = "agent_timeout"
    AGENT_NOT_REPLAYABLE = "agent_not_replayable"
    """The agent was started again to continue a paused task and did not repeat its earlier events."""
    EXPIRED = "expired"
    """The question was not answered in time."""
    GATEWAY_RESTARTED = "gateway_restarted"
    """The gateway stopped while the run was active, and could neither re-attach to the agent nor start it again."""
    SHUTTING_DOWN = "shutting_down"
    UNAVAILABLE = "unavailable"
    """The gateway's database or file store is unreachable or full. The request was not stored; retry it after
    `details.retry_after` seconds."""
    INTERNAL = "internal"


RELAYED: Final = frozenset(code for code in FaultCode if code.startswith("agent_")) | {FaultCode.LIMITED}
"""Fault codes that this gateway keeps if the agent's server is another gateway and reports a failed run with them. A
fault with any other code concerns that gateway itself, and becomes `agent_failed` here."""

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
    FaultCode.LIMITED: "caller",
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
    """Error of one operation. `message` is for people and never contains a secret or a stack trace."""

    code: FaultCode
    message: str
    details: JsonObject = {}
    """Facts for programs, which the function that raises the fault chooses. Examples are `field` (path of the wrong
    member in the request), `interrupts` (ids of the questions that are open), `reason` (such as `BUSY`), and
    `retry_after` in seconds."""

    @property
    def blame(self) -> Blame:
        # Limits of this gateway always have their kind. Those of a server have the status of its response, if any.
        is_of_server = "status" in self.details or "limit" not in self.details
        return "upstream" if self.code is FaultCode.LIMITED and is_of_server else BLAME[self.code]

    @property
    def is_scope_missing(self) -> bool:
        """True if the operation was refused, but a token with one more scope would be allowed
        (`INSUFFICIENT_SCOPE`)."""
        return self.code is FaultCode.FORBIDDEN and self.details.get("reason") == INSUFFICIENT_SCOPE

    @property
    def is_lasting_limit(self) -> bool:
        """True if a limit refuses the run and a retry does not help soon: a budget is used up, or a chain is too
        long."""
        return self.code is FaultCode.LIMITED and self.details.get("limit") in LASTING_LIMITS


class FaultError(Exception):
    """Exception that carries a `Fault` to the code that reports it to the caller."""

    def __init__(self, code: FaultCode, message: str, **details: object) -> None:
        super().__init__(message)
        self.fault = Fault(code=code, message=message, details=details)

    @classmethod
    def of(cls, fault: Fault) -> "FaultError":
        return cls(fault.code, fault.message, **fault.details)
