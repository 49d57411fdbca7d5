"""Upload of files before commit: those that callers hand over, in messages or to a thread, are in the store before
anything that names them is committed.
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
from babelgate.gateway.storage.reads import Reads


async def keep_messages(blobs: Blobs, messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages with ids, and with their files in the store."""
    if not messages:
        return ()
    kept = await blobs.keep_all(messages)
    return tuple(m if m.message_id else m.replace(message_id=new_id()) for m in kept)


class Uploads:
    def __init__(self, journal: Journal, reads: Reads, blobs: Blobs) -> None:
        self._journal = journal
        self._reads = reads
        self._blobs = blobs

    async def add(self, owner: str, thread_id: str, file: FilePart, folder: str | None, key: str | None) -> Artifact:
        """`babelgate.canonical.hub.Hub.upload`."""
        await self._reads.thread(owner, thread_id)  # before its bytes are stored
        part = await self._blobs.keep(file)
        artifact_id = new_id() if key is None else str(uuid5(NAMESPACE_OID, f"{thread_id}/upload/{key}"))
        added = ArtifactAdded(artifact_id=artifact_id, name=file.name, part=part, origin="caller", folder=folder)
        before = None
        if key is not None:
            fold = await self._reads.snapshot(owner, thread_id, Fold, partial(Fold, thread_id, owner))
            if artifact_id in fold.artifacts:
                return _as_before(fold.artifacts[artifact_id], added)
            before = fold.seq
        record = await self._journal.write(thread_commands.upload, owner, thread_id, added, after=before)
        kept = record.event
        assert isinstance(kept, ArtifactAdded)
        made = Artifact(
            artifact_id=kept.artifact_id,
            name=kept.name,
            parts=(kept.part,),
            origin="caller",
            folder=kept.folder,
            created_at=record.at,
        )
        return made if kept is added else _as_before(made, added)


def _as_before(known: Artifact, added: ArtifactAdded) -> Artifact:
    """What was uploaded before under the key of this upload."""
    if (known.parts, known.name, known.folder) != ((added.part,), added.name, added.folder):
        raise FaultError(FaultCode.INVALID, "Another file was uploaded with this key")
    return known
