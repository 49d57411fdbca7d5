"""View of one reply: the ids and options that determine its chunks."""

from base64 import b64encode
from typing import Final

import msgspec

from babelgate.adapters.vercel_ui import wire as w
from babelgate.canonical import FilePart, Record
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    MessageEnded,
    MessageStarted,
    PartAdded,
    PartDelta,
    PartEnded,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
)

_CONTENT: Final = (
    *(MessageStarted, PartAdded, PartDelta, PartEnded, MessageEnded),
    *(ToolStarted, ToolEnded, ArtifactAdded, Custom, StepStarted, StepEnded),
)
"""Events that a restart makes void."""


class Restart(msgspec.Struct, frozen=True):
    """Start of a run that makes earlier content of it void."""

    run_id: str
    seq: int
    void: tuple[str, ...] | None
    """Ids of the void messages; None if all content is void (`babelgate.canonical.event.RunStarted.void`)."""

    def has_voided(self, record: Record) -> bool:
        """Return True if a record is content of the run that is void."""
        if record.run_id != self.run_id or record.seq > self.seq or not isinstance(record.event, _CONTENT):
            return False
        return self.void is None or getattr(record.event, "message_id", None) in self.void


class ReplyView(msgspec.Struct, frozen=True, kw_only=True):
    """One message of the assistant, as one version of the SDK reads it. Readers of equal views get equal chunks."""

    message_id: str
    """Id of the message: that of the task for its first message, and else that of the run that begins the message."""
    agent: str
    base_url: str
    thread_id: str
    task_id: str
    sdk: int = w.DEFAULT_SDK
    restarts: tuple[Restart, ...] = ()
    """Restarts before the reader joined. What they made void is not sent."""
    steps: bool = False
    """True if the caller requests the named steps of the agent."""

    def file_url(self, part: FilePart) -> str:
        """Return the URL of a file: its bytes, if the reader has them, or an address."""
        if part.inline is not None:
            return f"data:{media_type_of(part)};base64,{b64encode(part.inline).decode()}"
        if part.url is not None:
            return part.url
        return self.stored_url(part)

    def stored_url(self, part: FilePart) -> str:
        """Return the address of a file: the gateway's own for a stored file."""
        if part.blob is None:
            return part.url or ""
        return f"{self.base_url}/vercel-ui/{self.agent}/{self.thread_id}/files/{part.blob}"


def media_type_of(part: FilePart) -> str:
    """Return the media type of a file, which every chunk must have."""
    return part.media_type or "application/octet-stream"
