"""Download of the files that records of the Babelgate extension reference by hash, from the server that sent the
records."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from babelgate.adapters.kit.client.status import is_retryable
from babelgate.adapters.kit.extension import blobs_of, with_bytes
from babelgate.canonical import Event, FaultError, Feature
from babelgate.canonical.event import LossNoted

NO_FILE: Final = LossNoted(
    feature=Feature.FILE_BYTES, how="a file that the agent's server no longer has, or that is too large"
)
"""Loss that is recorded for a file that could not be downloaded."""


async def with_files(events: Sequence[Event], fetch: Callable[[str], Awaitable[bytes]]) -> Sequence[Event]:
    """Return the events with the bytes of their files, which `fetch` downloads by hash. If a file is not available, a
    `NO_FILE` loss precedes its event. Raises agent_unreachable or agent_timeout if the server does not respond."""
    filled: list[Event] = []
    for event in events:
        files: dict[str, bytes | None] = {}
        for part in blobs_of(event):
            if part.blob is not None and part.blob not in files:
                files[part.blob] = await _try(fetch, part.blob)
        if None in files.values():
            filled.append(NO_FILE)
        filled.append(with_bytes(event, files) if files else event)
    return filled


async def _try(fetch: Callable[[str], Awaitable[bytes]], blob: str) -> bytes | None:
    """Download the file with the hash `blob`. Return None if the server refuses or fails. Raises agent_unreachable or
    agent_timeout if the server does not respond."""
    try:
        return await fetch(blob)
    except FaultError as error:
        if is_retryable(error.fault):
            raise
        return None
