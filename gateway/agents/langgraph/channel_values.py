"""Values of a graph's channels in the form in which they are kept: each once, and of a list or an object that grows
what is new in it.

A value that has grown by as much as there was of it is kept whole again: what is read for a value is never more than
twice its size, and what is kept of one that only grows, three times.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import takewhile
from typing import Any, Final, Protocol, cast

import msgspec

from babelgate.gateway.storage.checkpoints import ChannelValue

_LIST: Final = "list"
_OBJECT: Final = "object"
"""Forms of ours, which no serializer has: items, and members by name, each in a form of its own."""

Piece = tuple[str, bytes]
"""An item or a member as the serializer has made it: its form and its bytes."""
Pieces = list[Piece] | dict[str, Piece]
_Digests = list[bytes] | dict[str, bytes]


class Serializer(Protocol):
    """What is used of LangGraph's `SerializerProtocol`."""

    def dumps_typed(self, obj: Any) -> Piece: ...

    def loads_typed(self, data: Piece) -> Any: ...


@dataclass(frozen=True, slots=True)
class KeptValue:
    """What is to be known of a value that is kept, to keep the next one of its channel."""

    version: Any
    checkpoint_id: str
    """With which it was kept."""
    digests: _Digests | None = None
    """Of its pieces; None = it has none."""
    whole: int = 0
    """Bytes of the value that was kept whole last."""
    added: int = 0
    """Bytes that were added since."""


def encode_value(
    serde: Serializer, channel: str, checkpoint_id: str, version: Any, value: Any, before: KeptValue | None
) -> tuple[KeptValue, ChannelValue]:
    """`before` = the value that the channel had, if it is known."""
    pieces = _split(serde, value)
    if pieces is None:
        form, body = serde.dumps_typed(value)
        kept = KeptValue(version, checkpoint_id)
        return kept, ChannelValue(channel=channel, checkpoint_id=checkpoint_id, base_id=None, form=form, body=body)
    form = _LIST if isinstance(pieces, list) else _OBJECT
    digests = _digest(pieces)
    new = None if before is None else _find_new(before.digests, digests, pieces)
    body = b"" if new is None else msgspec.msgpack.encode(new)
    if before is None or new is None or before.added + len(body) > before.whole:
        body = msgspec.msgpack.encode((0 if isinstance(pieces, list) else (), pieces))
        kept = KeptValue(version, checkpoint_id, digests, whole=len(body))
        return kept, ChannelValue(channel=channel, checkpoint_id=checkpoint_id, base_id=None, form=form, body=body)
    kept = KeptValue(version, checkpoint_id, digests, before.whole, before.added + len(body))
    base_id = before.checkpoint_id
    return kept, ChannelValue(channel=channel, checkpoint_id=checkpoint_id, base_id=base_id, form=form, body=body)


def decode_value(serde: Serializer, version: Any, chain: Sequence[ChannelValue]) -> tuple[KeptValue, Any]:
    """`chain` = the value's own row first, then what it goes on from, up to one that is whole."""
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
    """None for what is no plain list, and no plain object with names."""
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
    """What is to stay of the value before, or is to go, and what comes; None if they have nothing in common."""
    if isinstance(before, list) and isinstance(now, list) and isinstance(pieces, list):
        kept = sum(1 for _ in takewhile(bool, (one == other for one, other in zip(before, now, strict=False))))
        return (kept, pieces[kept:]) if kept else None
    if isinstance(before, dict) and isinstance(now, dict) and isinstance(pieces, dict):
        gone = [name for name in before if name not in now]
        new = {name: pieces[name] for name, digest in now.items() if before.get(name) != digest}
        # The order of the members is theirs, too.
        merged: Mapping[str, None] = dict.fromkeys([*(name for name in before if name in now), *new])
        return (gone, new) if list(merged) == list(now) else None
    return None
