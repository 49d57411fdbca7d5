"""Files that records name by their hash."""

import pytest

from babelgate.adapters.kit.client.blobs import NO_FILE, with_files
from babelgate.canonical import Fault, FaultCode, FaultError, FilePart
from babelgate.canonical.event import ArtifactAdded, Custom, PartAdded

TOLD = PartAdded(message_id="m1", part=FilePart(name="a.bin", blob="a" * 64))


async def test_a_file_that_is_named_by_its_hash_is_fetched() -> None:
    async def fetch(blob: str) -> bytes:
        return blob[:2].encode()

    shown = ArtifactAdded(artifact_id="a1", part=FilePart(name="b.bin", blob="b" * 64))
    other = Custom(name="mood", value="good")
    assert await with_files([TOLD, other, shown], fetch) == [
        TOLD.replace(part=FilePart(name="a.bin", inline=b"aa")),
        other,
        shown.replace(part=FilePart(name="b.bin", inline=b"bb")),
    ]


async def test_one_that_is_not_to_be_had_is_a_loss_and_a_server_that_is_gone_is_none() -> None:
    async def refuse(blob: str) -> bytes:
        raise FaultError(FaultCode.AGENT_FAILED, "No such file.", status=404)

    async def vanish(blob: str) -> bytes:
        raise FaultError.of(Fault(code=FaultCode.AGENT_UNREACHABLE, message="gone"))

    assert await with_files([TOLD], refuse) == [NO_FILE, TOLD.replace(part=FilePart(name="a.bin"))]
    with pytest.raises(FaultError):
        await with_files([TOLD], vanish)
