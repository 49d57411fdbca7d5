"""Ids of the gateway's own: random UUIDs."""

import os
from collections.abc import Iterator
from uuid import UUID

_randomness: Iterator[bytes] = iter(())


def new_id() -> str:
    """A random UUID. Randomness is drawn from the system for many at once: the call costs more than the rest. Taking
    from the iterator is one step of the interpreter, so two threads never take the same."""
    global _randomness
    drawn = next(_randomness, None)
    if drawn is None:
        fresh = os.urandom(4096)
        _randomness = iter([fresh[i : i + 16] for i in range(16, 4096, 16)])
        drawn = fresh[:16]
    return str(UUID(bytes=drawn, version=4))
