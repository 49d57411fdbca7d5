"""Notices of commits, which gateways that share a database send to each other with NOTIFY, and their compact
encoding."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

_THREADS_PER_NOTICE: Final = 100
"""Maximum number of threads in one notice. Chosen: PostgreSQL limits a notice to 8,000 bytes."""


ADMINISTRATION: Final = 0
"""Key in a notice that reports a change of API keys, agents or disabled agents. No thread has this key."""

GRANTS: Final = -1
"""Key in a notice that reports a grant to a new grantee. No thread has this key."""


class Remote(msgspec.Struct, frozen=True, array_like=True):
    """Notice of one or several commits of another gateway to one thread."""

    pk: int
    """Database key of the thread, or `ADMINISTRATION` or `GRANTS`."""
    seq: int
    """Sequence number of the newest record of the thread."""
    erased: bool = False
    rewritten: bool = False
    """True if the content or meaning of earlier records has changed, for example because a run was removed."""
    created: bool = False
    """True if the commit created the thread."""

    @property
    def is_thread(self) -> bool:
        """True for a notice about a thread, False for one about the administration or grants."""
        return self.pk > ADMINISTRATION


class Notice(msgspec.Struct, frozen=True, array_like=True):
    node: str
    """Id of the gateway that made the commits in `threads`."""
    threads: tuple[Remote, ...]


_DECODER: Final = msgspec.json.Decoder(Notice)


def merge(first: Remote, second: Remote) -> Remote:
    """Combine two notices of one thread: the higher sequence number, and every flag that is set in either."""
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
    """Decode a notice. Return None if it is malformed, because any user of the database can send to the channel."""
    try:
        return _DECODER.decode(payload)
    except (msgspec.DecodeError, ValueError):
        return None
