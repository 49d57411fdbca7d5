"""Notices: what gateways that share a database tell one another of their commits, in as few bytes as there may be."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

_EACH: Final = 100
"""Threads in one notice: PostgreSQL takes less than 8,000 bytes."""


class Remote(msgspec.Struct, frozen=True, array_like=True):
    """What another gateway has committed to a thread."""

    pk: int
    seq: int
    """Of the newest record."""
    erased: bool = False
    rewritten: bool = False
    """Records that were there before say something else now."""
    created: bool = False
    """There was no such thread before."""


class Notice(msgspec.Struct, frozen=True, array_like=True):
    node: str
    """Who says it."""
    threads: tuple[Remote, ...]


_DECODER: Final = msgspec.json.Decoder(Notice)


def merge(first: Remote, second: Remote) -> Remote:
    """Combine two notices of one thread: the newest record, and every flag that either of them has."""
    return Remote(
        first.pk,
        max(first.seq, second.seq),
        erased=first.erased or second.erased,
        rewritten=first.rewritten or second.rewritten,
        created=first.created or second.created,
    )


def encode_notices(node: str, threads: Sequence[Remote]) -> Iterator[str]:
    for start in range(0, len(threads), _EACH):
        yield msgspec.json.encode(Notice(node, tuple(threads[start : start + _EACH]))).decode()


def decode_notice(said: str) -> Notice | None:
    """None where it is not one of ours: whoever may use the database can say something."""
    try:
        return _DECODER.decode(said)
    except (msgspec.DecodeError, ValueError):
        return None
