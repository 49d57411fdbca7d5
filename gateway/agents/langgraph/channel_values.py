"""Stored form of a graph's channel values.

Each value is stored once. For a list or an object that grows, only the new items or members are stored. A value that
has doubled since it was last stored whole is stored whole again. So reading a value takes at most twice its size, and a
value that only grows takes at most three times its size in the database.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import takewhile
from typing import Any, Final, Protocol, cast

import msgspec

from babelgate.gateway.storage.stored_checkpoint import ChannelValue

_LIST: Final = "list"
_OBJECT: Final = "object"
"""Value of the column `form` of a stored channel value that is an object. `_LIST` is that of a list. Each item or
member is stored separately, in a form of the serializer."""

Piece = tuple[str, bytes]
"""Serialized item or member: its form, such as `msgpack`, and its bytes."""
Pieces = list[Piece] | dict[str, Piece]
_Digests = list[bytes] | dict[str, bytes]


class Serializer(Protocol):
    """Methods of LangGraph's `SerializerProtocol` that this module calls."""

    def dumps_typed(self, obj: Any) -> Piece: ...

    def loads_typed(self, data: Piece) -> Any: ...


@dataclass(frozen=True, slots=True)
class KeptValue:
    """Description of a stored channel value, which is needed to store the channel's next value as a difference."""

    version: Any
    checkpoint_id: str
    """Id of the checkpoint with which the value was stored."""
    digests: _Digests | None = None
    """Digests of the value's items or members; None if it is neither a list nor an object."""
    whole: int = 0
    """Size of the channel's last value that was stored whole, in bytes."""
    added: int = 0
    """Size of the differences stored since that value, in bytes."""


def encode_value(
    serde: Serializer, channel: str, checkpoint_id: str, version: Any, value: Any, before: KeptValue | None
) -> tuple[KeptValue, ChannelValue]:
    """Return the description of a channel's value, and the database row that stores it with the checkpoint
    `checkpoint_id`. `version` is LangGraph's version of the channel.

    `before` describes the channel's previous value, or is None if that is not cached; then the value is stored whole.
    """
    pieces = _split(serde, value)
    if pieces is None:
        form, body = serde.dumps_typed(value)
        description = KeptValue(version, checkpoint_id)
        return description, ChannelValue(
            channel=channel, checkpoint_id=checkpoint_id, base_id=None, form=form, body=body
        )
    form = _LIST if isinstance(pieces, list) else _OBJECT
    digests = _digest(pieces)
    new = None if before is None else _find_new(before.digests, digests, pieces)
    body = b"" if new is None else msgspec.msgpack.encode(new)
    if before is None or new is None or before.added + len(body) > before.whole:
        body = msgspec.msgpack.encode((0 if isinstance(pieces, list) else (), pieces))
        description = KeptValue(version, checkpoint_id, digests, whole=len(body))
        return description, ChannelValue(
            channel=channel, checkpoint_id=checkpoint_id, base_id=None, form=form, body=body
        )
    description = KeptValue(version, checkpoint_id, digests, before.whole, before.added + len(body))
    base_id = before.checkpoint_id
    return description, ChannelValue(
        channel=channel, checkpoint_id=checkpoint_id, base_id=base_id, form=form, body=body
    )


def decode_value(serde: Serializer, version: Any, chain: Sequence[ChannelValue]) -> tuple[KeptValue, Any]:
    """Return the description of a stored value, and the value.

    `chain` begins with the row of the value. Each row that stores a difference is followed by the row of the earlier
    value that it changes, up to a row with a whole value.
    """
    last = chain[0]
    if last.form not in (_LIST, _OBJECT):
        return KeptValue(version, last.checkpoint_id), serde.loads_typed((last.form, last.body))
    sizes = [len(row.body) for row in chain]
    about = {"whole": sizes[-1], "added": sum(sizes[:-1])}
    if last.form == _LIST:
        items: list[Piece] = []
        for row in reversed(chain):
            keep, add = msgspec.msgpack.decode(row.body, type=tuple[int, list[Piece]])
            items = items[:keep] + add
        value: Any = [serde.loads_typed(piece) for piece in items]
        return KeptValue(version, last.checkpoint_id, _digest(items), **about), value
    members: dict[str, Piece] = {}
    for row in reversed(chain):
        drop, new = msgspec.msgpack.decode(row.body, type=tuple[list[str], dict[str, Piece]])
        for name in drop:
            del members[name]
        members |= new
    value = {name: serde.loads_typed(piece) for name, piece in members.items()}
    return KeptValue(version, last.checkpoint_id, _digest(members), **about), value


def _split(serde: Serializer, value: Any) -> Pieces | None:
    """Return the serialized items of a list or members of a dict. Return None for any other value, and for a dict whose
    keys are not all printable strings."""
    if type(value) is list:
        return [serde.dumps_typed(item) for item in cast("list[Any]", value)]
    if type(value) is dict and all(type(name) is str and name.isprintable() for name in cast("dict[Any, Any]", value)):
        return {name: serde.dumps_typed(member) for name, member in cast("dict[str, Any]", value).items()}
    return None


def _digest(pieces: Pieces) -> _Digests:
    def digest(piece: Piece) -> bytes:
        return blake2b(piece[1], digest_size=16, key=piece[0].encode()[:64]).digest()

    if isinstance(pieces, list):
        return [digest(piece) for piece in pieces]
    return {name: digest(piece) for name, piece in pieces.items()}


def _find_new(before: _Digests | None, now: _Digests, pieces: Pieces) -> tuple[Any, Pieces] | None:
    """Return the difference between a value and the previous one, or None if the value has to be stored whole. `before`
    and `now` are the digests of both, and `pieces` are the items or members of the value.

    For a list, the difference is the number of equal first items, and the items after them. For an object, it is the
    removed names, and the new or changed members.
    """
    if isinstance(before, list) and isinstance(now, list) and isinstance(pieces, list):
        common = sum(1 for _ in takewhile(bool, (one == other for one, other in zip(before, now, strict=False))))
        return (common, pieces[common:]) if common else None
    if isinstance(before, dict) and isinstance(now, dict) and isinstance(pieces, dict):
        removed = [name for name in before if name not in now]
        new = {name: pieces[name] for name, digest in now.items() if before.get(name) != digest}
        # The order of the members must be preserved.
        merged: Mapping[str, None] = dict.fromkeys([*(name for name in before if name in now), *new])
        return (removed, new) if list(merged) == list(now) else None
    return None
