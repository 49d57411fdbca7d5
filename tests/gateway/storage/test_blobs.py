"""The artifact store: what is named is there, what is not named goes, and no name from outside is a path."""

import asyncio
import gc
import hashlib
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from canonical import DataPart, FaultCode, FaultError, FilePart, Message, TextPart
from gateway.storage.blobs import Blobs


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "blobs", 1000)


def age(blobs: Blobs, blob: str) -> None:
    """Make a file old."""
    os.utime(blobs.path(blob), (0, 0))


def test_bytes_are_kept_under_their_hash(blobs: Blobs) -> None:
    blob = blobs.put(b"abc")
    assert blob == hashlib.sha256(b"abc").hexdigest()
    assert blobs.get(blob) == b"abc"
    assert blobs.put(b"abc") == blob
    assert blobs.put(b"") != blob
    assert [path.name for path in sorted(blobs.folder.glob("*/*"))] == sorted([blob, hashlib.sha256(b"").hexdigest()])


def test_bytes_are_synced_before_they_have_a_name(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    named_at_sync: list[list[str]] = []
    sync = os.fsync

    def noting(file: int) -> None:
        named_at_sync.append([path.name for path in blobs.folder.glob("??/*") if len(path.name) == 64])
        sync(file)

    monkeypatch.setattr(os, "fsync", noting)
    blob = blobs.put(b"abc")
    assert named_at_sync == [[], [blob]]  # the bytes first; then the folder that holds the name


@pytest.mark.parametrize(
    "name", ["", "..", "../../etc/passwd", "a" * 63, "A" * 64, "a" * 64 + "\n", "a" * 65, "/etc/passwd", "é" * 64]
)
def test_what_is_no_hash_never_reaches_the_file_system(blobs: Blobs, name: str) -> None:
    with pytest.raises(FaultError) as error:
        blobs.get(name)
    assert error.value.fault.code is FaultCode.NOT_FOUND


def test_an_unknown_hash_is_not_found(blobs: Blobs) -> None:
    with pytest.raises(FaultError) as error:
        blobs.get("0" * 64)
    assert error.value.fault.code is FaultCode.NOT_FOUND


def test_a_file_that_is_too_large_is_refused(blobs: Blobs) -> None:
    assert blobs.put(b"x" * 1000)
    with pytest.raises(FaultError) as error:
        blobs.put(b"x" * 1001)
    assert error.value.fault.code is FaultCode.TOO_LARGE


def test_a_disk_that_takes_nothing_is_our_fault_and_leaves_nothing(
    blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FaultError) as error:
        blobs.put(b"abc")
    assert error.value.fault.code is FaultCode.INTERNAL
    assert list(blobs.folder.glob("??/*")) == []


def test_the_sweep_takes_what_is_old_and_unnamed(blobs: Blobs) -> None:
    used, unused, young = blobs.put(b"used"), blobs.put(b"unused"), blobs.put(b"young")
    leftover = blobs.path(unused).with_name("tmpabc")
    leftover.write_bytes(b"of a gateway that was killed")
    for blob in (used, unused):
        age(blobs, blob)
    os.utime(leftover, (0, 0))
    assert blobs.sweep({used}, 1000) == 2
    assert blobs.get(used) == b"used"
    assert blobs.get(young) == b"young"
    assert not blobs.path(unused).exists()
    assert blobs.sweep({used}, 1000) == 0


def test_a_file_that_is_put_again_is_young_again(blobs: Blobs) -> None:
    blob = blobs.put(b"abc")
    age(blobs, blob)
    blobs.put(b"abc")
    assert blobs.sweep(set(), 1000) == 0
    assert blobs.get(blob) == b"abc"


def test_a_file_that_is_put_while_the_sweep_looks_at_it_stays(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep has seen that it is old, and is about to remove it."""
    blob = blobs.put(b"abc")
    age(blobs, blob)
    putting = threading.Thread(target=blobs.put, args=(b"abc",))
    look = Path.stat

    def looking(path: Path, **options: Any) -> os.stat_result:
        seen = look(path, **options)
        if path.name == blob and threading.current_thread() is threading.main_thread() and not putting.ident:
            putting.start()
            putting.join(0.2)  # it may finish now, or has to wait
        return seen

    monkeypatch.setattr(Path, "stat", looking)
    blobs.sweep(set(), 1000)
    putting.join()
    assert blobs.get(blob) == b"abc"


async def test_parts_lose_their_bytes_on_the_way_in_and_get_them_on_the_way_out(blobs: Blobs) -> None:
    part = await blobs.keep(FilePart(name="a", inline=b"abc"))
    assert isinstance(part, FilePart)
    assert (part.name, part.size, part.inline, part.blob) == ("a", 3, None, hashlib.sha256(b"abc").hexdigest())
    assert (await blobs.load(part)).inline == b"abc"
    assert (await blobs.load(part, limit=3)).inline == b"abc"
    assert (await blobs.load(part, limit=2)).inline is None
    by_url = FilePart(url="https://example.com/a")
    assert await blobs.keep(by_url) == by_url
    assert await blobs.load(by_url) == by_url


async def test_all_who_hold_a_file_hold_the_same_bytes(blobs: Blobs) -> None:
    part = await blobs.keep(FilePart(name="a", inline=b"abc"))
    assert isinstance(part, FilePart)
    first, *others = await asyncio.gather(*(blobs.load(part, limit=3) for _ in range(100)))
    later = await blobs.load(part.replace(name="b"), limit=3)
    assert all(other.inline is first.inline for other in (*others, later))
    assert (first.name, later.name) == ("a", "b")
    blobs.path(part.blob or "").unlink()
    assert (await blobs.load(part)).inline == b"abc"
    del first, others, later
    gc.collect()
    with pytest.raises(FaultError):
        await blobs.load(part)


async def test_a_part_that_names_a_file_must_name_one_that_is_there(blobs: Blobs) -> None:
    blob = blobs.put(b"abc")
    age(blobs, blob)
    part = FilePart(blob=blob)
    assert await blobs.keep(part) == part
    assert blobs.sweep(set(), 1000) == 0
    with pytest.raises(FaultError) as error:
        await blobs.keep(FilePart(blob="0" * 64))
    assert error.value.fault.code is FaultCode.NOT_FOUND
    with pytest.raises(FaultError):
        await blobs.keep(FilePart(blob="../../etc/passwd"))


async def test_only_files_of_a_message_are_changed(blobs: Blobs) -> None:
    plain = Message(parts=(TextPart(text="a"), DataPart(data=1)))
    mixed = Message(parts=(TextPart(text="a"), FilePart(inline=b"abc")))
    kept = await blobs.keep_all([plain, mixed])
    assert kept[0] is plain
    assert kept[1].parts[0] == mixed.parts[0]
    assert isinstance(kept[1].parts[1], FilePart) and kept[1].parts[1].inline is None
