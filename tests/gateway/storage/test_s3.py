"""Tests of S3 as the artifact store: clear reports of failures, retries of safe requests, no delay of other work.

`test_blobs` has the tests for all stores.
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from uuid import uuid4

import pytest

from babelgate.canonical import FaultCode, FaultError, FilePart, Message, RunInput, Submission
from babelgate.canonical.agent import DEFAULT_OWNER
from babelgate.gateway import demo
from babelgate.gateway.storage.blobs import FolderBlobs
from babelgate.gateway.storage.queries import blobs_in_use
from babelgate.gateway.storage.s3 import S3Blobs
from tests.gateway.command import ROOT, babelgate, bound_socket
from tests.gateway.hubs import ends, submit, within
from tests.gateway.storage.s3_server import BUCKET, SECRET, Way, s3_server, variables
from tests.opened import opened

LATER = 10**12
DATA = b"what is in the file"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with s3_server() as port:
        yield port


@pytest.fixture
def way(port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Way]:
    opened = Way(port)
    for name, value in variables(opened.port).items():
        monkeypatch.setenv(name, value)
    yield opened
    opened.close()


@pytest.fixture
def prefix() -> str:
    return str(uuid4())


async def fails(blobs: S3Blobs, blob: str, caplog: pytest.LogCaptureFixture) -> None:
    """Assert that every use of the store fails with `unavailable`, and logs one line without secrets."""
    for use in (
        lambda: blobs.keep(FilePart(inline=DATA)),
        lambda: blobs.keep(FilePart(blob=blob)),
        lambda: blobs.load(FilePart(blob=blob)),
        lambda: blobs.size(blob),
        lambda: anext(blobs.pieces(blob)),
        lambda: asyncio.to_thread(blobs.sweep, set[str](), LATER),
    ):
        caplog.clear()
        with pytest.raises(FaultError) as error:
            await within(use(), "the failure")
        assert error.value.fault.code is FaultCode.UNAVAILABLE
        assert error.value.fault.message.endswith("the file store fails.")
        (line,) = caplog.messages
        assert "\n" not in line and line.startswith("file store could not ") and SECRET not in line


async def test_an_unavailable_store_is_reported_and_used_again_later(
    way: Way, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    blobs = S3Blobs(BUCKET, prefix, 1000)
    blob = blobs.put(DATA)
    assert await blobs.find_failure() is None
    way.cut()
    await fails(blobs, blob, caplog)
    why = await within(blobs.find_failure(), "the failure")
    assert why is not None and why.startswith("the file store fails: ") and SECRET not in why
    way.refuse = 0
    assert await blobs.find_failure() is None
    assert blobs.get(blob) == DATA


async def test_a_failed_request_is_retried(way: Way, prefix: str) -> None:
    way.refuse = 2
    blobs = S3Blobs(BUCKET, prefix, 1000)
    part = await within(blobs.keep(FilePart(inline=DATA)), "the file")
    assert isinstance(part, FilePart) and blobs.get(part.blob or "") == DATA
    assert way.refused == 2


async def test_a_missing_bucket_is_not_reported_as_a_missing_file(way: Way, caplog: pytest.LogCaptureFixture) -> None:
    blobs = S3Blobs("no-such-bucket", "", 1000)
    assert "NoSuchBucket" in (await blobs.find_failure() or "")
    with pytest.raises(FaultError) as error:
        await blobs.keep(FilePart(inline=DATA))
    assert error.value.fault.code is FaultCode.UNAVAILABLE


async def test_an_incomplete_download_raises_an_error(way: Way, prefix: str) -> None:
    blobs = S3Blobs(BUCKET, prefix, 2**26)
    blob = blobs.put(os.urandom(2**25))
    async with aclosing(blobs.pieces(blob)) as pieces:
        await anext(pieces)
        way.cut()
        with pytest.raises(FaultError):
            async for _ in pieces:
                pass


async def test_a_silent_store_delays_no_other_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    with bound_socket() as silent:
        silent.listen()
        for name, value in variables(silent.getsockname()[1]).items():
            monkeypatch.setenv(name, value)
        blobs, others = S3Blobs(BUCKET, prefix, 1000), FolderBlobs(tmp_path, 1000)
        waiting = [
            asyncio.ensure_future(use)
            for number in range(40)
            for use in (blobs.keep(FilePart(inline=bytes([number]))), blobs.load(FilePart(blob=f"{number:064x}")))
        ]
        stored = await within(others.keep(FilePart(inline=DATA)), "another store's answer")
        assert isinstance(stored, FilePart) and not any(each.done() for each in waiting)
        for each in waiting:
            each.cancel()
        await asyncio.wait(waiting)


async def test_only_an_old_file_is_uploaded_again(way: Way, prefix: str) -> None:
    blobs, old = S3Blobs(BUCKET, prefix, 1000), S3Blobs(BUCKET, prefix, 1000, young=-3600)
    blob = blobs.put(DATA)
    assert await old.renew(blob) and blobs.get(blob) == DATA
    vars(blobs)["_store"].put(f"{blob[:2]}/{blob}", b"what shows whether it is sent")
    assert blobs.put(DATA) == blob and await blobs.renew(blob)
    assert blobs.get(blob) != DATA
    assert old.put(DATA) == blob
    assert blobs.get(blob) == DATA


async def test_a_gateway_keeps_files_used_by_threads_in_s3(
    way: Way, prefix: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    artifacts = f"s3://{BUCKET}/{prefix}"
    async with opened(tmp_path, {"files": demo.files}, artifacts=artifacts) as gateway:
        hub = gateway.hub
        file = FilePart(name="a.bin", inline=DATA)
        receipt = await hub.submit(
            DEFAULT_OWNER, Submission(agent="files", input=RunInput(messages=(Message(role="user", parts=(file,)),)))
        )
        await ends(hub, receipt, owner=DEFAULT_OWNER)
        blob = FolderBlobs(tmp_path, 1000).put(DATA)
        assert (await hub.reads.file(DEFAULT_OWNER, blob)).inline == DATA
        assert not (tmp_path / "gateway.blobs").exists()
        assert await hub.ready() is None
        await move(tmp_path, artifacts, blob)
        for left in (0, 2):
            used = await hub.journal.query(blobs_in_use)
            assert await asyncio.to_thread(S3Blobs(BUCKET, prefix, 1000).sweep, used, LATER) == left
            if not left:
                await hub.delete_thread(DEFAULT_OWNER, receipt.thread_id)
        way.cut()
        vars(vars(hub)["_parts"].readiness)["_probed"] = 0
        assert "the file store fails" in (await within(hub.ready(), "the answer") or "")
    assert SECRET not in caplog.text


async def test_a_gateway_without_its_store_starts_but_is_not_ready(
    way: Way, prefix: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    way.cut()
    async with opened(tmp_path, {"echo": demo.echo}, artifacts=f"s3://{BUCKET}/{prefix}") as gateway:
        assert "the file store fails" in (await within(gateway.hub.ready(), "the answer") or "")
        await ends(gateway.hub, await submit(gateway.hub, "echo"))
        with pytest.raises(FaultError):
            await gateway.hub.sweep_files()
        way.refuse = 0
        assert await gateway.hub.ready() is None
        assert await gateway.hub.sweep_files() == 0


async def move(folder: Path, artifacts: str, blob: str) -> None:
    """Export a thread from the store, and import it to a folder."""
    (folder / "other").mkdir()
    database = ("--database", "sqlite:///gateway.db")
    exported = await asyncio.to_thread(
        babelgate, folder, "export", "--out", "other/all.jsonl", *database, BABELGATE_ARTIFACTS=artifacts
    )
    imported = await asyncio.to_thread(babelgate, folder / "other", "import", "all.jsonl", *database)
    assert (exported.returncode, imported.returncode) == (0, 0), exported.stderr + imported.stderr
    assert FolderBlobs(folder / "other" / "gateway.blobs", 1000).get(blob) == DATA


def test_a_missing_extra_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "obstore.py").write_text("raise ImportError('there is none')")
    ended = babelgate(tmp_path, "serve", BABELGATE_ARTIFACTS="s3://bucket", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert ended.returncode == 2 and ended.stdout == ""
    assert ended.stderr.count("\n") == 1 and "babelgate[s3]" in ended.stderr
