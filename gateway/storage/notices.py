"""Notices of commits, which gateways that share a database send to each other. Their encoding is compact."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

_THREADS_PER_NOTICE: Final = 100
"""Maximum number of threads in one notice. The limit of PostgreSQL is 8,000 bytes."""


ADMINISTRATION: Final = 0
"""Key in notices of changes of the administration: keys, agents and disabled agents. No thread has it."""

GRANTS: Final = -1
"""Key in notices of grants to new grantees. No thread has it."""


class Remote(msgspec.Struct, frozen=True, array_like=True):
    """Summary of another gateway's commits to one thread."""

    pk: int
    """Key of the thread."""
    seq: int
    """Sequence number of the newest record."""
    erased: bool = False
    rewritten: bool = False
    """True if the meaning of earlier records changed, as when a run is removed."""
    created: bool = False
    """True if the thread is new."""

    @property
    def is_thread(self) -> bool:
        """False if the key is one that no thread has."""
        return self.pk > ADMINISTRATION


class Notice(msgspec.Struct, frozen=True, array_like=True):
    node: str
    """Id of the gateway that committed."""
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
    for start in range(0, len(threads), _THREADS_PER_NOTICE):
        yield msgspec.json.encode(Notice(node, tuple(threads[start : start + _THREADS_PER_NOTICE]))).decode()


def decode_notice(payload: str) -> Notice | None:
    """Decode a notice. Return None if a gateway did not send it: any user of the database can notify the channel."""
    try:
        return _DECODER.decode(payload)
    except (msgspec.DecodeError, ValueError):
        return None
