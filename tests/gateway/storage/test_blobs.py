"""Tests of the artifact store, in a folder and in S3.

Files that a thread names are kept, all others are swept, and no name from outside is a path.
"""

import asyncio
import gc
import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from babelgate.canonical import DataPart, FaultCode, FaultError, FilePart, Message, TextPart
from babelgate.gateway.storage.blob_store import open_blobs
from babelgate.gateway.storage.blobs import Blobs, FolderBlobs
from tests.gateway.storage.s3_server import BUCKET, s3_server, variables

LATER = 10**12
"""Time after all tests, in seconds since 1970."""


@pytest.fixture
def folder(tmp_path: Path) -> FolderBlobs:
    return FolderBlobs(tmp_path / "blobs", 1000)


@pytest.fixture(scope="module")
def s3_port() -> Iterator[int]:
    with s3_server() as port:
        yield port


@pytest.fixture(params=["folder", "s3"])
def blobs(request: pytest.FixtureRequest, folder: FolderBlobs, monkeypatch: pytest.MonkeyPatch) -> Blobs:
    """An empty store of each kind."""
    if request.param == "folder":
        return folder
    for name, value in variables(request.getfixturevalue("s3_port")).items():
        monkeypatch.setenv(name, value)
    return open_blobs(f"s3://{BUCKET}/{uuid4()}/artifacts", folder.folder, 1000)


def age(folder: FolderBlobs, blob: str) -> None:
    """Set the age of a file to many years."""
    os.utime(folder.path(blob), (0, 0))


async def is_not_found(blobs: Blobs, name: str) -> None:
    """Assert that every way to read the file raises `not_found`."""
    for read in (
        lambda: asyncio.to_thread(blobs.get, name),
        lambda: blobs.size(name),
        lambda: anext(blobs.pieces(name)),
    ):
        with pytest.raises(FaultError) as error:
            await read()
        assert error.value.fault.code is FaultCode.NOT_FOUND


# Both


async def test_bytes_are_stored_under_their_hash(blobs: Blobs) -> None:
    blob = blobs.put(b"abc")
    assert blob == hashlib.sha256(b"abc").hexdigest()
    assert blobs.get(blob) == b"abc"
    assert await blobs.size(blob) == 3
    assert blobs.put(b"abc") == blob
    empty = blobs.put(b"")
    assert empty != blob and blobs.get(empty) == b""
    assert blobs.sweep(set(), LATER) == 2
    await is_not_found(blobs, blob)


async def test_a_large_file_is_read_in_chunks(blobs: Blobs) -> None:
    blobs.limit = 2**24
    data = os.urandom(11 * 2**20)  # large enough for a multipart upload to S3
    part = await blobs.keep(FilePart(inline=data))
    assert isinstance(part, FilePart) and part.blob is not None
    pieces = [piece async for piece in blobs.pieces(part.blob)]
    assert b"".join(pieces) == data and len(pieces) > 10
    assert max(map(len, pieces)) < 2**20


async def test_an_existing_file_can_be_put_again(blobs: Blobs, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"head" + b"abc")
    with (tmp_path / "file").open("rb") as file:
        file.seek(4)
        blobs.put_file(file, hashlib.sha256(b"abc").hexdigest())
    assert blobs.get(hashlib.sha256(b"abc").hexdigest()) == b"abc"


async def test_concurrent_puts_of_a_file_succeed(blobs: Blobs) -> None:
    parts = await asyncio.gather(*(blobs.keep(FilePart(inline=b"the same")) for _ in range(20)))
    (blob,) = {part.blob for part in parts if isinstance(part, FilePart)}
    assert blob is not None and blobs.get(blob) == b"the same"
    assert blobs.sweep(set(), LATER) == 1


async def test_the_sweep_spares_new_and_used_files(blobs: Blobs) -> None:
    used, unused = blobs.put(b"used"), blobs.put(b"unused")
    assert blobs.sweep(set(), 1000) == 0
    assert blobs.sweep({used}, LATER) == 1
    assert blobs.get(used) == b"used"
    await is_not_found(blobs, unused)
    assert blobs.sweep({used}, LATER) == 0


@pytest.mark.parametrize(
    "name", ["", "..", "../../etc/passwd", "a" * 63, "A" * 64, "a" * 64 + "\n", "a" * 65, "/etc/passwd", "é" * 64]
)
async def test_an_invalid_hash_never_reaches_the_store(blobs: Blobs, name: str) -> None:
    await is_not_found(blobs, name)
    with pytest.raises(FaultError) as error:
        await blobs.renew(name)
    assert error.value.fault.code is FaultCode.NOT_FOUND


async def test_an_unknown_hash_is_not_found(blobs: Blobs) -> None:
    await is_not_found(blobs, "0" * 64)
    assert not await blobs.renew("0" * 64)


def test_a_file_that_is_too_large_is_refused(blobs: Blobs) -> None:
    assert blobs.put(b"x" * 1000)
    with pytest.raises(FaultError) as error:
        blobs.put(b"x" * 1001)
    assert error.value.fault.code is FaultCode.TOO_LARGE


async def test_bytes_of_parts_are_stored_and_loaded_again(blobs: Blobs) -> None:
    part = await blobs.keep(FilePart(name="a", inline=b"abc"))
    assert isinstance(part, FilePart)
    assert (part.name, part.size, part.inline, part.blob) == ("a", 3, None, hashlib.sha256(b"abc").hexdigest())
    assert (await blobs.load(part)).inline == b"abc"
    assert (await blobs.load(part, limit=3)).inline == b"abc"
    assert (await blobs.load(part, limit=2)).inline is None
    by_url = FilePart(url="https://example.com/a")
    assert await blobs.keep(by_url) == by_url
    assert await blobs.load(by_url) == by_url


async def test_readers_of_a_file_share_its_bytes(blobs: Blobs) -> None:
    part = await blobs.keep(FilePart(name="a", inline=b"abc"))
    assert isinstance(part, FilePart)
    first, *others = await asyncio.gather(*(blobs.load(part, limit=3) for _ in range(100)))
    later = await blobs.load(part.replace(name="b"), limit=3)
    assert all(other.inline is first.inline for other in (*others, later))
    assert (first.name, later.name) == ("a", "b")
    assert blobs.sweep(set(), LATER) == 1
    assert (await blobs.load(part)).inline == b"abc"
    del first, others, later
    gc.collect()
    with pytest.raises(FaultError):
        await blobs.load(part)


async def test_a_part_must_name_an_existing_file(blobs: Blobs) -> None:
    part = FilePart(blob=blobs.put(b"abc"))
    assert await blobs.keep(part) == part
    with pytest.raises(FaultError) as error:
        await blobs.keep(FilePart(blob="0" * 64))
    assert error.value.fault.code is FaultCode.NOT_FOUND
    with pytest.raises(FaultError):
        await blobs.keep(FilePart(blob="../../etc/passwd"))


async def test_only_file_parts_of_a_message_are_changed(blobs: Blobs) -> None:
    plain = Message(parts=(TextPart(text="a"), DataPart(data=1)))
    mixed = Message(parts=(TextPart(text="a"), FilePart(inline=b"abc")))
    stored = await blobs.keep_all([plain, mixed])
    assert stored[0] is plain
    assert stored[1].parts[0] == mixed.parts[0]
    assert isinstance(stored[1].parts[1], FilePart) and stored[1].parts[1].inline is None


# A folder


def test_bytes_are_synced_before_the_rename(folder: FolderBlobs, monkeypatch: pytest.MonkeyPatch) -> None:
    named_at_sync: list[list[str]] = []
    sync = os.fsync

    def noting(file: int) -> None:
        named_at_sync.append([path.name for path in folder.folder.glob("??/*") if len(path.name) == 64])
        sync(file)

    monkeypatch.setattr(os, "fsync", noting)
    blob = folder.put(b"abc")
    assert named_at_sync == [[], [blob]]  # first the bytes, then the folder with the name


def test_a_failed_disk_write_is_unavailable_and_leaves_no_file(
    folder: FolderBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FaultError) as error:
        folder.put(b"abc")
    assert error.value.fault.code is FaultCode.UNAVAILABLE
    assert list(folder.folder.glob("??/*")) == []


def test_the_sweep_deletes_old_unused_files(folder: FolderBlobs) -> None:
    used, unused, young = folder.put(b"used"), folder.put(b"unused"), folder.put(b"young")
    leftover = folder.path(unused).with_name("tmpabc")
    leftover.write_bytes(b"of a gateway that was killed")
    for blob in (used, unused):
        age(folder, blob)
    os.utime(leftover, (0, 0))
    assert folder.sweep({used}, 1000) == 2
    assert folder.get(used) == b"used"
    assert folder.get(young) == b"young"
    assert not folder.path(unused).exists()
    assert folder.sweep({used}, 1000) == 0


async def test_putting_or_naming_a_file_renews_its_age(folder: FolderBlobs) -> None:
    blob = folder.put(b"abc")
    age(folder, blob)
    folder.put(b"abc")
    assert folder.sweep(set(), 1000) == 0
    age(folder, blob)
    assert await folder.keep(FilePart(blob=blob)) == FilePart(blob=blob)
    assert folder.sweep(set(), 1000) == 0
    assert folder.get(blob) == b"abc"


def test_a_file_put_during_the_sweep_stays(folder: FolderBlobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the file after the sweep has read its age, and before it removes it."""
    blob = folder.put(b"abc")
    age(folder, blob)
    putting = threading.Thread(target=folder.put, args=(b"abc",))
    look = Path.stat

    def looking(path: Path, **options: Any) -> os.stat_result:
        status = look(path, **options)
        if path.name == blob and threading.current_thread() is threading.main_thread() and not putting.ident:
            putting.start()
            putting.join(0.2)  # the thread may finish now, or must wait for the sweep
        return status

    monkeypatch.setattr(Path, "stat", looking)
    folder.sweep(set(), 1000)
    putting.join()
    assert folder.get(blob) == b"abc"
