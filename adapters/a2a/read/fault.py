"""Reading of the fault from the status of a failed or rejected task of another A2A server."""

from babelgate.adapters.a2a.codec.marks import error_of
from babelgate.adapters.a2a.frameworks.framework import DecodedContent
from babelgate.adapters.a2a.wire import replies as w
from babelgate.canonical import Fault, FaultCode
from babelgate.canonical.fault import RELAYED
from babelgate.canonical.message import text_of
from babelgate.canonical.value import JsonObject


def decode_fault(
    message: w.Message | None, decoded: DecodedContent, metadata: JsonObject | None, *, rejected: bool
) -> Fault:
    """Return the fault of a task, with the text of the agent.

    `message` is that of the final status, `decoded` its content, and `metadata` those of its update. `rejected` is True
    if the agent refused the task. The code is AGENT_FAILED, unless another gateway names its code in the metadata.
    """
    message_metadata = (message.metadata if message else None) or {}
    members: object = message_metadata.get("babelgate")
    named: object = members.get("fault") if isinstance(members, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    code = FaultCode.AGENT_FAILED
    if isinstance(named, str) and named in RELAYED:
        code = FaultCode(named)
    error_text, details = error_of(message_metadata, metadata)
    default = f"The agent {'refused the task' if rejected else 'failed'} and did not say why."
    words = text_of(tuple(decoded.parts)) or error_text or default
    return Fault(code=code, message=words, details={**details, **({"rejected": True} if rejected else {})})
