"""Files that records of the Babelgate extension name by their hash: they are on the server that tells the records."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from babelgate.adapters.kit.client.status import is_retryable
from babelgate.adapters.kit.extension import blobs_of, with_bytes
from babelgate.canonical import Event, FaultError, Feature
from babelgate.canonical.event import LossNoted

NO_FILE: Final = LossNoted(
    feature=Feature.FILE_BYTES, how="a file that the agent's server no longer has, or that is too large"
)


async def with_files(events: Sequence[Event], fetch: Callable[[str], Awaitable[bytes]]) -> Sequence[Event]:
    """The events with their files; one that is not to be had is a loss. Raises agent_unreachable, agent_timeout."""
    filled: list[Event] = []
    for event in events:
        found: dict[str, bytes | None] = {}
        for part in blobs_of(event):
            if part.blob is not None and part.blob not in found:
                found[part.blob] = await _try(fetch, part.blob)
        if None in found.values():
            filled.append(NO_FILE)
        filled.append(with_bytes(event, found) if found else event)
    return filled


async def _try(fetch: Callable[[str], Awaitable[bytes]], blob: str) -> bytes | None:
    try:
        return await fetch(blob)
    except FaultError as error:
        if is_retryable(error.fault):
            raise
        return None
