"""Files that records identify by their hash."""

import pytest

from babelgate.adapters.kit.client.blobs import NO_FILE, with_files
from babelgate.canonical import Fault, FaultCode, FaultError, FilePart
from babelgate.canonical.event import ArtifactAdded, Custom, PartAdded

WITH_BLOB = PartAdded(message_id="m1", part=FilePart(name="a.bin", blob="a" * 64))


async def test_a_file_with_a_hash_is_fetched() -> None:
    async def fetch(blob: str) -> bytes:
        return blob[:2].encode()

    artifact = ArtifactAdded(artifact_id="a1", part=FilePart(name="b.bin", blob="b" * 64))
    other = Custom(name="mood", value="good")
    assert await with_files([WITH_BLOB, other, artifact], fetch) == [
        WITH_BLOB.replace(part=FilePart(name="a.bin", inline=b"aa")),
        other,
        artifact.replace(part=FilePart(name="b.bin", inline=b"bb")),
    ]


async def test_a_missing_file_is_a_loss() -> None:
    async def refuse(blob: str) -> bytes:
        raise FaultError(FaultCode.AGENT_FAILED, "No such file.", status=404)

    async def vanish(blob: str) -> bytes:
        raise FaultError.of(Fault(code=FaultCode.AGENT_UNREACHABLE, message="gone"))

    assert await with_files([WITH_BLOB], refuse) == [NO_FILE, WITH_BLOB.replace(part=FilePart(name="a.bin"))]
    with pytest.raises(FaultError):
        await with_files([WITH_BLOB], vanish)
