"""Checkpoints of LangGraph graphs as values: what the rows of the database hold.

The module imports no database library, because the processes of agents exchange these values with the gateway.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingWrite:
    task_id: str
    idx: int
    """Index of the write in its task. Writes with a negative index are replaced by a later write of that index; of all
    others, the first is kept."""
    task_path: str
    channel: str
    form: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelValue:
    """Value of one channel of a graph, whole or as a difference, stored with the checkpoint that changed the
    channel."""

    channel: str
    checkpoint_id: str
    base_id: str | None
    """Id of the checkpoint to whose value of this channel the body is a difference. None if the body is the whole
    value."""
    form: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCheckpoint:
    ns: str
    checkpoint_id: str
    parent_id: str | None
    run_id: str | None
    form: str
    body: bytes
    channels: Mapping[str, str] | None = None
    """Id of the checkpoint that last changed a channel and has its value, by channel. None if all values are in the
    body."""
    values: Sequence[ChannelValue] = ()
    """Values of the channels. A checkpoint to be written has only the changed ones. One that was read has all, and each
    difference is followed by the values that it is based on."""
    writes: Sequence[PendingWrite] = ()
    """Pending writes, in the order in which the next step applies them."""
