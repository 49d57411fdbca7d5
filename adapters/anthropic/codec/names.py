"""Ids on the wire: messages, and the tool calls by which callers see questions.

The id of a call encodes the task's id and a digest of the question's id (SHA-256, without a key). So an answer finds
its task without stored state, and an id that was changed is detected. It gives its holder no more than the owner of the
task may do.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as BinasciiError
from collections.abc import Iterable
from hashlib import sha256
from typing import Final
from uuid import UUID

from babelgate.canonical import FaultCode, FaultError

PROTOCOL: Final = "anthropic"
"""Key in `extra` for members that only this protocol has."""
_MESSAGE: Final = "msg_"
_CALL: Final = "toolu_bgt_"
_LENGTH: Final = 32
"""Length of a call id before its encoding, in bytes: 16 for the task, the rest for the digest."""


def message_id_of(run_id: str) -> str:
    """Return the id of the message that shows a run."""
    return _MESSAGE + UUID(run_id).hex


def run_id_of(message_id: str) -> str | None:
    """Return the id of the run that a message shows, or None if the gateway has not issued the message's id."""
    text = message_id.removeprefix(_MESSAGE)
    is_own = len(text) == 32 and all(letter in "0123456789abcdef" for letter in text)
    return str(UUID(hex=text)) if is_own and message_id.startswith(_MESSAGE) else None


def encode_call_id(task_id: str, interrupt_id: str) -> str:
    """Return the id of the tool call by which a caller sees a question of a task."""
    task = UUID(task_id).bytes
    digest = sha256(task + interrupt_id.encode("utf-8", "surrogatepass")).digest()
    return _CALL + urlsafe_b64encode(task + digest[: _LENGTH - len(task)]).decode().rstrip("=")


def decode_task_id(call_id: str) -> str | None:
    """Return the id of the task in a call id, or None if the gateway did not issue the call id. Raises invalid for an
    id that was changed."""
    if not call_id.startswith(_CALL):
        return None
    text = call_id.removeprefix(_CALL)
    try:
        raw = urlsafe_b64decode(text.encode("ascii") + b"=")
    except (BinasciiError, UnicodeEncodeError, ValueError) as error:
        raise changed_id(call_id) from error
    if len(raw) != _LENGTH or urlsafe_b64encode(raw).decode().rstrip("=") != text:
        raise changed_id(call_id)
    return str(UUID(bytes=raw[:16]))


def find_interrupt(call_id: str, task_id: str, interrupt_ids: Iterable[str]) -> str | None:
    """Return the one of `interrupt_ids` for which `encode_call_id` gives this call id, or None."""
    return next((each for each in interrupt_ids if encode_call_id(task_id, each) == call_id), None)


def changed_id(call_id: str) -> FaultError:
    """Return the fault invalid for a call id that was changed."""
    words = f"No tool was called with the id {call_id[:80]!r}."
    return FaultError(FaultCode.INVALID, words, errors=[{"field": "messages", "description": words}])
