"""Uploads, which are files of the next step, and downloads of artifacts. No file name leads out of the store."""

import asyncio
import hashlib
import re
from pathlib import Path

import pytest

from babelgate.canonical import FilePart
from tests.adapters.aief.site import OWNER, Site, opened
from tests.adapters.langchain.site import SHARED

pytestmark = SHARED

NAMES = [
    "../../evil.txt",
    "../" * 40 + "tmp/evil.txt",
    "/etc/passwd",
    "/tmp/evil-babelgate.txt",
    "..\\..\\evil.txt",
    "C:\\evil.txt",
    "..",
    ".",
    "a\0b.txt",
    "x" * 2000 + ".txt",
    "日本 – ü.txt",
    "%2e%2e%2fevil.txt",
    "gateway.db",
    "a;b=c.txt",
    "'quoted'.txt",
]


async def test_an_upload_is_an_artifact_created_by_the_caller(site: Site) -> None:
    task_id = await site.create("files")
    answer = await site.upload("files", task_id, "in.txt", b"content", "src/")
    uploaded = answer.json()
    assert answer.status_code == 200
    assert (uploaded["file_name"], uploaded["relative_path"], uploaded["agent_created"]) == ("in.txt", "src/", False)
    assert uploaded["created_at"].endswith("Z")
    assert (await site.task("files", task_id))["artifacts"] == [uploaded] == await site.artifacts("files", task_id)
    downloaded = await site.download("files", task_id, uploaded["artifact_id"])
    assert (downloaded.status_code, downloaded.content) == (200, b"content")


async def test_uploads_are_files_of_the_next_step_only(site: Site) -> None:
    task_id = await site.create("inputs")
    await site.upload("inputs", task_id, "a.txt", b"aa")
    await site.upload("inputs", task_id, "b.bin", b"\0" * 5)
    first = await site.post("inputs", task_id)
    assert first["additional_output"]["output"]["files"] == [["a.txt", 2], ["b.bin", 5]]
    assert (await site.post("inputs", task_id))["additional_output"]["output"]["files"] == []
    await site.upload("inputs", task_id, "c.txt", b"")
    assert (await site.post("inputs", task_id))["additional_output"]["output"]["files"] == [["c.txt", 0]]


async def test_an_upload_repeated_with_its_key_is_stored_once(site: Site) -> None:
    task_id = await site.create("inputs")
    key = {"idempotency_key": '"8e03978e-40d5-43e8-bc93-6894a57f9324"'}
    again = [site.upload("inputs", task_id, "a.txt", b"aa", "src/", **key) for _ in range(5)]
    uploads = [answer.json() for answer in await asyncio.gather(*again)]
    assert uploads == [uploads[0]] * 5 == [*await site.artifacts("inputs", task_id)] * 5
    first = await site.post("inputs", task_id)
    assert first["additional_output"]["output"]["files"] == [["a.txt", 2]]
    late = await site.upload("inputs", task_id, "a.txt", b"aa", "src/", **key)
    assert late.json() == uploads[0]
    assert (await site.post("inputs", task_id))["additional_output"]["output"]["files"] == []
    other = await site.upload("inputs", task_id, "a.txt", b"aa", "src/", idempotency_key="other")
    assert other.json()["artifact_id"] != uploads[0]["artifact_id"]
    elsewhere = await site.upload("inputs", await site.create("inputs"), "a.txt", b"aa", "src/", **key)
    assert elsewhere.json()["artifact_id"] != uploads[0]["artifact_id"]


@pytest.mark.parametrize("other", [("b.txt", b"aa", "src/"), ("a.txt", b"bb", "src/"), ("a.txt", b"aa", "lib/")])
async def test_a_key_cannot_be_reused_for_another_file(site: Site, other: tuple[str, bytes, str]) -> None:
    task_id = await site.create("inputs")
    first = await site.upload("inputs", task_id, "a.txt", b"aa", "src/", idempotency_key="k")
    refused = await site.upload("inputs", task_id, *other, idempotency_key="k")
    assert (refused.status_code, refused.json()["message"]) == (422, "Another file was uploaded with this key")
    assert await site.artifacts("inputs", task_id) == [first.json()]


@pytest.mark.parametrize("key", ["", '""', "k" * 256, "a\tb"])
async def test_an_invalid_key_is_refused(site: Site, key: str) -> None:
    task_id = await site.create("inputs")
    refused = await site.upload("inputs", task_id, "a.txt", b"aa", idempotency_key=key)
    assert refused.status_code == 422
    assert await site.artifacts("inputs", task_id) == []


async def test_an_uploaded_file_belongs_to_the_task_and_no_step(site: Site) -> None:
    task_id = await site.create("files")
    await site.upload("files", task_id, "in.txt", b"content")
    step = await site.post("files", task_id)
    assert [(each["file_name"], each["agent_created"]) for each in step["artifacts"]] == [
        ("in.txt", True),
        ("report.txt", True),
    ]
    assert [each["agent_created"] for each in await site.artifacts("files", task_id)] == [False, True, True]
    assert (await site.step("files", task_id, step["step_id"]))["artifacts"] == step["artifacts"]


async def test_a_download_is_an_attachment_of_bytes_with_a_hash(site: Site) -> None:
    task_id = await site.create("files", "report me")
    [report] = (await site.post("files", task_id))["artifacts"]
    downloaded = await site.download("files", task_id, report["artifact_id"])
    assert downloaded.content == b"report me"
    assert downloaded.headers["content-type"] == "application/octet-stream"
    assert downloaded.headers["content-disposition"] == 'attachment; filename="report.txt"'
    assert downloaded.headers["x-content-type-options"] == "nosniff"
    assert downloaded.headers["etag"] == f'"{hashlib.sha256(b"report me").hexdigest()}"'


async def test_artifacts_of_every_kind_are_files(site: Site) -> None:
    task_id = await site.create("kinds")
    step = await site.post("kinds", task_id)
    found = {each["file_name"]: each for each in step["artifacts"]}
    contents = {
        name: (await site.download("kinds", task_id, each["artifact_id"])).content for name, each in found.items()
    }
    assert contents == {
        "notes.txt": b"one two",
        "table.json": b'{"a":[1,2]}',
        "far.pdf.uri": b"https://files.invalid/far.pdf\r\n",
        "evil.py": b"print(1)\n",
        "said.bin": b"\0\1",
    }
    assert found["evil.py"]["relative_path"] == "src/deep/"
    assert step["output"] == "Here."


async def test_artifacts_with_one_name_in_two_turns_are_distinct(site: Site) -> None:
    task_id = await site.create("files", None)
    for text in ("one", "two"):
        await site.post("files", task_id, text)
    found = await site.artifacts("files", task_id)
    assert [each["file_name"] for each in found] == ["report.txt"] * 2
    contents = [(await site.download("files", task_id, each["artifact_id"])).content for each in found]
    assert contents == [b"one", b"two"]


async def test_an_artifact_is_found_only_on_its_task(site: Site) -> None:
    mine, other = await site.create("files"), await site.create("files")
    uploaded = (await site.upload("files", mine, "a.txt", b"x")).json()
    assert (await site.download("files", other, uploaded["artifact_id"])).status_code == 404
    assert (await site.download("files", mine, hashlib.sha256(b"x").hexdigest())).status_code == 404


async def test_no_file_name_leads_out_of_the_store(site: Site) -> None:
    for name in NAMES:
        task_id = await site.create("files")
        raw = (
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="' + name.encode() + b'"\r\n\r\ncontent\r\n'
            b'--b\r\nContent-Disposition: form-data; name="relative_path"\r\n\r\n' + name.encode() + b"\r\n--b--\r\n"
        )
        headers = {"Content-Type": "multipart/form-data; boundary=b"}
        answer = await site.http.post(site.at("files", f"/{task_id}/artifacts"), content=raw, headers=headers)
        assert answer.status_code == 200, answer.text
        for artifact in (answer.json(), *(await site.post("files", task_id))["artifacts"]):
            assert artifact["file_name"] not in ("", ".", "..")
            assert not set(artifact["file_name"]) & set("/\\\0\r\n")
            folder = artifact["relative_path"]
            assert folder is None or not ({"..", ""} & set(re.split(r"[/\\]", folder.removesuffix("/"))))
        downloaded = await site.download("files", task_id, answer.json()["artifact_id"])
        assert downloaded.content == b"content"
        assert downloaded.headers["content-disposition"].isascii()
    check_folder(site.folder)


def check_folder(folder: Path) -> None:
    """Check that the folder contains only the database, and files named by their hash."""
    for path in folder.rglob("*"):
        if path.is_file():
            name = str(path.relative_to(folder))
            assert name.startswith("gateway.db") or re.fullmatch(r"[^/]*blobs/[0-9a-f]{2}/[0-9a-f]{64}", name), name
    assert not Path("/tmp/evil-babelgate.txt").exists()
    assert not (folder.parent / "evil.txt").exists()


async def test_a_file_over_the_limit_is_413(tmp_path: Path) -> None:
    async with opened(tmp_path, limits={"artifact": 100}) as site:
        task_id = await site.create("files")
        answer = await site.upload("files", task_id, "big.bin", b"x" * 101)
        assert (answer.status_code, list(answer.json())) == (413, ["message"])
        assert await site.artifacts("files", task_id) == []


async def test_large_files_are_downloaded_unchanged(site: Site) -> None:
    content = bytes(range(256)) * 8192 + b"\r\n--b--\r\n"
    task_id = await site.create("files")
    uploaded = (await site.upload("files", task_id, "big.bin", content)).json()
    assert (await site.download("files", task_id, uploaded["artifact_id"])).content == content


async def test_names_of_files_from_other_protocols_are_cleaned(site: Site) -> None:
    task_id = await site.create("files")
    file = FilePart(name="../../../etc/cron.d/evil", media_type="text/html", inline=b"<script>")
    await site.hub.upload(OWNER, task_id, file, "/etc/../")
    [artifact] = await site.artifacts("files", task_id)
    assert (artifact["file_name"], artifact["relative_path"]) == ("evil", "etc/")
    downloaded = await site.download("files", task_id, artifact["artifact_id"])
    assert downloaded.headers["content-type"] == "application/octet-stream"
    assert downloaded.headers["content-disposition"] == 'attachment; filename="evil"'
