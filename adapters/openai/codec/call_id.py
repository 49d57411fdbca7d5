"""Ids of the tool calls by which callers see questions: an encoding of the task's id and of a digest (SHA-256, without
a key) of the question's id.

So an answer finds its task without stored state. The digest detects an id that was changed. An id holds no secret: it
gives its holder no more than the owner of the task may do, and other owners cannot find the task.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as BinasciiError
from collections.abc import Iterable
from hashlib import sha256
from typing import Final
from uuid import UUID

from babelgate.canonical import FaultCode, FaultError

# At most 64 characters (Open Responses 2026-04-24, FunctionCallItemParam.call_id).
_PREFIX: Final = "call_bgt_"
_LENGTH: Final = 32
"""Length of an id before its encoding, in bytes: 16 for the task, the rest for the digest."""


def encode_call_id(task_id: str, interrupt_id: str) -> str:
    """Return the id of the tool call by which a caller sees a question of a task, `call_…`."""
    task = UUID(task_id).bytes
    digest = sha256(task + interrupt_id.encode("utf-8", "surrogatepass")).digest()
    return _PREFIX + urlsafe_b64encode(task + digest[: _LENGTH - len(task)]).decode().rstrip("=")


def decode_task_id(call_id: str, field: str = "messages") -> str | None:
    """Return the id of the task in a call id, or None if the gateway did not issue the call id. `field` is the
    request's field with the call id. Raises invalid for an id that was changed."""
    if not call_id.startswith(_PREFIX):
        return None
    text = call_id.removeprefix(_PREFIX)
    try:
        raw = urlsafe_b64decode(text.encode("ascii") + b"=")
    except (BinasciiError, UnicodeEncodeError, ValueError) as error:
        raise changed_id(call_id, field) from error
    if len(raw) != _LENGTH or urlsafe_b64encode(raw).decode().rstrip("=") != text:
        raise changed_id(call_id, field)
    return str(UUID(bytes=raw[:16]))


def find_interrupt(call_id: str, task_id: str, interrupt_ids: Iterable[str]) -> str | None:
    """Return the one of `interrupt_ids` for which `encode_call_id` gives this call id, or None."""
    return next((each for each in interrupt_ids if encode_call_id(task_id, each) == call_id), None)


def changed_id(call_id: str, field: str = "messages") -> FaultError:
    """Return the fault invalid for a call id that was changed. `field` is the request's field with the call id."""
    words = f"No tool call was made with the id {call_id[:80]!r}."
    return FaultError(FaultCode.INVALID, words, errors=[{"field": field, "description": words}])
