"""Why a task of another A2A server failed."""

from babelgate.adapters.a2a.codec.marks import error_of
from babelgate.adapters.a2a.frameworks.framework import DecodedContent
from babelgate.adapters.a2a.wire import replies as w
from babelgate.canonical import BLAME, Fault, FaultCode
from babelgate.canonical.message import text_of
from babelgate.canonical.value import JsonObject


def decode_fault(
    message: w.Message | None, decoded: DecodedContent, metadata: JsonObject | None, *, rejected: bool
) -> Fault:
    """In the agent's own words. A gateway like this one names the code of the fault beside them."""
    about = (message.metadata if message else None) or {}
    own: object = about.get("babelgate")
    named: object = own.get("fault") if isinstance(own, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    code = FaultCode.AGENT_FAILED
    if isinstance(named, str) and named in BLAME and BLAME[FaultCode(named)] == "upstream":
        code = FaultCode(named)
    told, details = error_of(about, metadata)
    unsaid = f"The agent {'refused the task' if rejected else 'failed'} and did not say why."
    words = text_of(tuple(decoded.parts)) or told or unsaid
    return Fault(code=code, message=words, details={**details, **({"rejected": True} if rejected else {})})
