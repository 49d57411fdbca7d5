"""Ids of runs that wait for an answer. An id encodes the task's id and a digest (SHA-256, without a key) over the task
and the purpose of the id, so that changed ids are detected without stored state.

They hold no secret. An id gives the owner of its task no additional rights, and other owners do not find the task.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as BinasciiError
from collections.abc import Iterable
from hashlib import sha256
from typing import Final
from uuid import UUID

from babelgate.canonical import FaultCode, FaultError

_PREFIX: Final = "run_"
_LENGTH: Final = 32
"""Length of an id before its encoding, in bytes: 16 for the task, the rest for the digest."""


def encode_run_id(task_id: str, purpose: str = "") -> str:
    """Return an id for a task, `run_…`. It is valid only for the given purpose."""
    task = UUID(task_id).bytes
    digest = sha256(task + purpose.encode()).digest()
    return _PREFIX + urlsafe_b64encode(task + digest[: _LENGTH - len(task)]).decode().rstrip("=")


def decode_run_id(run_id: str, purpose: str = "") -> str:
    """Return the task's id in a run id. Raises invalid unless `encode_run_id` created it for the same purpose."""
    try:
        raw = urlsafe_b64decode(run_id.removeprefix(_PREFIX).encode("ascii") + b"=")
        task_id = str(UUID(bytes=raw[:16]))
    except (BinasciiError, UnicodeEncodeError, ValueError) as error:
        raise _changed_id() from error
    if encode_run_id(task_id, purpose) != run_id:
        raise _changed_id()
    return task_id


def encode_state(task_id: str, tool: str, question_ids: Iterable[str]) -> str:
    """Return the `requestState` with which the caller repeats a call of `tool` to answer these questions of a task."""
    turn = sha256(" ".join(question_ids).encode()).hexdigest()[:8]
    return f"{encode_run_id(task_id, f'state {tool} {turn}')}.{turn}"


def decode_state(state: str, tool: str) -> str:
    """Return the task's id in a `requestState`. Raises invalid unless `encode_state` created it for a call of
    `tool`."""
    run_id, _, turn = state.rpartition(".")
    return decode_run_id(run_id, f"state {tool} {turn}")


def _changed_id() -> FaultError:
    return FaultError(FaultCode.INVALID, "No run of this gateway has this id.")
