"""Stateless ids with a checksum (SHA-256, without a key) of runs that wait for an answer: which task, for which use,
and a digest that tells an id that was changed.

They hold no secret: whoever has one can do with it what the owner of its task can do, and nobody else finds the task.
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
"""Bytes: the task's id, and the digest."""


def encode_run_id(task_id: str, use: str = "") -> str:
    """`use`: what it is good for, and nothing else."""
    task = UUID(task_id).bytes
    digest = sha256(task + use.encode()).digest()
    return _PREFIX + urlsafe_b64encode(task + digest[: _LENGTH - len(task)]).decode().rstrip("=")


def decode_run_id(run_id: str, use: str = "") -> str:
    """The task. Raises invalid for what was not made here for this use."""
    try:
        raw = urlsafe_b64decode(run_id.removeprefix(_PREFIX).encode("ascii") + b"=")
        task_id = str(UUID(bytes=raw[:16]))
    except (BinasciiError, UnicodeEncodeError, ValueError) as error:
        raise _changed_id() from error
    if encode_run_id(task_id, use) != run_id:
        raise _changed_id()
    return task_id


def encode_state(task_id: str, tool: str, asked: Iterable[str]) -> str:
    """To call that tool again, with answers to what was asked by then."""
    turn = sha256(" ".join(asked).encode()).hexdigest()[:8]
    return f"{encode_run_id(task_id, f'state {tool} {turn}')}.{turn}"


def decode_state(state: str, tool: str) -> str:
    """The task. Raises invalid for what was not made here to call that tool."""
    run_id, _, turn = state.rpartition(".")
    return decode_run_id(run_id, f"state {tool} {turn}")


def _changed_id() -> FaultError:
    return FaultError(FaultCode.INVALID, "This gateway has given no run this id.")
