"""View of one assistant message: the ids and options that determine its chunks."""

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
"""Types of events with an agent's output, which a restart can make void."""


class Restart(msgspec.Struct, frozen=True):
    """Restart of a run that makes earlier content of the run void."""

    run_id: str
    seq: int
    void: tuple[str, ...] | None
    """Ids of the void messages; None if all content is void (`babelgate.canonical.event.RunStarted.void`)."""

    def has_voided(self, record: Record) -> bool:
        """Return True if this restart has made the content in a record void."""
        if record.run_id != self.run_id or record.seq > self.seq or not isinstance(record.event, _CONTENT):
            return False
        return self.void is None or getattr(record.event, "message_id", None) in self.void


class ReplyView(msgspec.Struct, frozen=True, kw_only=True):
    """Ids and options that determine the chunks of one assistant message. Readers with equal views get equal chunks."""

    message_id: str
    """Id of the assistant message: the task's id for the first message of a task, and otherwise the id of the run that
    begins the message."""
    agent: str
    base_url: str
    thread_id: str
    task_id: str
    sdk: int = w.DEFAULT_SDK
    restarts: tuple[Restart, ...] = ()
    """Restarts before the reader joined. The content that they made void is not sent."""
    steps: bool = False
    """True if the reader requests the named steps of the agent (`steps=true`)."""

    def file_url(self, part: FilePart) -> str:
        """Return the URL of a file: a `data:` URL if the part has its bytes, or else its own URL, or else the gateway's
        URL of the stored file."""
        if part.inline is not None:
            return f"data:{media_type_of(part)};base64,{b64encode(part.inline).decode()}"
        if part.url is not None:
            return part.url
        return self.stored_url(part)

    def stored_url(self, part: FilePart) -> str:
        """Return the gateway's URL of a stored file. For a file that is not stored, return its own URL, or an empty
        text."""
        if part.blob is None:
            return part.url or ""
        return f"{self.base_url}/vercel-ui/{self.agent}/{self.thread_id}/files/{part.blob}"


def media_type_of(part: FilePart) -> str:
    """Return the media type of a file, which every chunk must have: `application/octet-stream` if it is unknown."""
    return part.media_type or "application/octet-stream"
