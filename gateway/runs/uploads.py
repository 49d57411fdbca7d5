"""Upload of files, in messages or to a thread.

A file is in the blob store before any record that refers to it is committed.
"""

from collections.abc import Sequence
from functools import partial
from uuid import NAMESPACE_OID, uuid5

from babelgate.canonical.event import ArtifactAdded
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.fold import Fold
from babelgate.canonical.message import FilePart, Message
from babelgate.canonical.thread import Artifact
from babelgate.gateway.ids import new_id
from babelgate.gateway.runs import thread_commands
from babelgate.gateway.storage.blobs import Blobs
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.reads import JournalReads


async def keep_messages(blobs: Blobs, messages: Sequence[Message]) -> tuple[Message, ...]:
    """Store the files of messages in the blob store. Return the messages with references to the files, and with an id
    for each message that had none."""
    if not messages:
        return ()
    stored = await blobs.keep_all(messages)
    return tuple(m if m.message_id else m.replace(message_id=new_id()) for m in stored)


class Uploads:
    """Uploads of files to threads, each stored as an artifact of the caller."""

    def __init__(self, journal: Journal, reads: JournalReads, blobs: Blobs) -> None:
        self._journal = journal
        self._reads = reads
        self._blobs = blobs

    async def add(self, owner: str, thread_id: str, file: FilePart, folder: str | None, key: str | None) -> Artifact:
        """Store a file on a thread, and return its artifact (`babelgate.canonical.hub.Hub.upload`)."""
        await self._reads.thread(owner, thread_id)  # fail before the bytes are stored
        part = await self._blobs.keep(file)
        artifact_id = new_id() if key is None else str(uuid5(NAMESPACE_OID, f"{thread_id}/upload/{key}"))
        added = ArtifactAdded(artifact_id=artifact_id, name=file.name, part=part, origin="caller", folder=folder)
        after_seq = None
        if key is not None:
            fold = await self._reads.snapshot(owner, thread_id, Fold, partial(Fold, thread_id, owner))
            if artifact_id in fold.artifacts:
                return _same_upload(fold.artifacts[artifact_id], added)
            after_seq = fold.seq
        record = await self._journal.write(thread_commands.upload, owner, thread_id, added, after=after_seq)
        event = record.event
        assert isinstance(event, ArtifactAdded)
        artifact = Artifact(
            artifact_id=event.artifact_id,
            name=event.name,
            parts=(event.part,),
            origin="caller",
            folder=event.folder,
            created_at=record.at,
        )
        return artifact if event is added else _same_upload(artifact, added)


def _same_upload(earlier: Artifact, added: ArtifactAdded) -> Artifact:
    """Return the artifact of an earlier upload with the same key. Raises invalid if it is a different file."""
    if (earlier.parts, earlier.name, earlier.folder) != ((added.part,), added.name, added.folder):
        raise FaultError(FaultCode.INVALID, "Another file was uploaded with this key")
    return earlier
