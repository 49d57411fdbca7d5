"""View of one reply: the ids and options that determine its chunks."""

from base64 import b64encode

import msgspec

from babelgate.adapters.vercel_ui import wire as w
from babelgate.canonical import FilePart


class ReplyView(msgspec.Struct, frozen=True, kw_only=True):
    """One message of the assistant, as one version of the SDK reads it. Readers of equal views get equal chunks."""

    message_id: str
    """Id of the message: that of the task for its first message, and else that of the run that begins the message."""
    agent: str
    base_url: str
    thread_id: str
    task_id: str
    sdk: int = w.DEFAULT_SDK
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
