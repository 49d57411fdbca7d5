"""Files in both directions: what is uploaded comes with the next step, what an agent makes can be fetched, and no name
reaches anything beside the artifact store."""

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


async def test_an_upload_is_an_artifact_of_the_task_that_its_caller_made(site: Site) -> None:
    task_id = await site.create("files")
    answer = await site.upload("files", task_id, "in.txt", b"content", "src/")
    made = answer.json()
    assert answer.status_code == 200
    assert (made["file_name"], made["relative_path"], made["agent_created"]) == ("in.txt", "src/", False)
    assert made["created_at"].endswith("Z")
    assert (await site.task("files", task_id))["artifacts"] == [made] == await site.artifacts("files", task_id)
    got = await site.download("files", task_id, made["artifact_id"])
    assert (got.status_code, got.content) == (200, b"content")


async def test_uploads_are_the_files_of_the_next_step_and_of_no_later_one(site: Site) -> None:
    task_id = await site.create("given")
    await site.upload("given", task_id, "a.txt", b"aa")
    await site.upload("given", task_id, "b.bin", b"\0" * 5)
    first = await site.post("given", task_id)
    assert first["additional_output"]["output"]["files"] == [["a.txt", 2], ["b.bin", 5]]
    assert (await site.post("given", task_id))["additional_output"]["output"]["files"] == []
    await site.upload("given", task_id, "c.txt", b"")
    assert (await site.post("given", task_id))["additional_output"]["output"]["files"] == [["c.txt", 0]]


async def test_an_upload_that_is_sent_again_with_its_key_is_kept_once(site: Site) -> None:
    task_id = await site.create("given")
    key = {"idempotency_key": '"8e03978e-40d5-43e8-bc93-6894a57f9324"'}
    again = [site.upload("given", task_id, "a.txt", b"aa", "src/", **key) for _ in range(5)]
    made = [answer.json() for answer in await asyncio.gather(*again)]
    assert made == [made[0]] * 5 == [*await site.artifacts("given", task_id)] * 5
    first = await site.post("given", task_id)
    assert first["additional_output"]["output"]["files"] == [["a.txt", 2]]
    late = await site.upload("given", task_id, "a.txt", b"aa", "src/", **key)
    assert late.json() == made[0]
    assert (await site.post("given", task_id))["additional_output"]["output"]["files"] == []
    other = await site.upload("given", task_id, "a.txt", b"aa", "src/", idempotency_key="other")
    assert other.json()["artifact_id"] != made[0]["artifact_id"]
    elsewhere = await site.upload("given", await site.create("given"), "a.txt", b"aa", "src/", **key)
    assert elsewhere.json()["artifact_id"] != made[0]["artifact_id"]


@pytest.mark.parametrize("other", [("b.txt", b"aa", "src/"), ("a.txt", b"bb", "src/"), ("a.txt", b"aa", "lib/")])
async def test_the_key_of_an_upload_is_not_that_of_another_file(site: Site, other: tuple[str, bytes, str]) -> None:
    task_id = await site.create("given")
    first = await site.upload("given", task_id, "a.txt", b"aa", "src/", idempotency_key="k")
    refused = await site.upload("given", task_id, *other, idempotency_key="k")
    assert (refused.status_code, refused.json()["message"]) == (422, "Another file was uploaded with this key")
    assert await site.artifacts("given", task_id) == [first.json()]


@pytest.mark.parametrize("key", ["", '""', "k" * 256, "a\tb"])
async def test_a_key_that_is_none_is_refused(site: Site, key: str) -> None:
    task_id = await site.create("given")
    refused = await site.upload("given", task_id, "a.txt", b"aa", idempotency_key=key)
    assert refused.status_code == 422
    assert await site.artifacts("given", task_id) == []


async def test_an_uploaded_file_is_on_the_task_and_not_on_a_step(site: Site) -> None:
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
    [made] = (await site.post("files", task_id))["artifacts"]
    got = await site.download("files", task_id, made["artifact_id"])
    assert got.content == b"report me"
    assert got.headers["content-type"] == "application/octet-stream"
    assert got.headers["content-disposition"] == 'attachment; filename="report.txt"'
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["etag"] == f'"{hashlib.sha256(b"report me").hexdigest()}"'


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


async def test_artifacts_of_two_turns_are_two_though_their_agent_named_them_alike(site: Site) -> None:
    task_id = await site.create("files", None)
    for text in ("one", "two"):
        await site.post("files", task_id, text)
    found = await site.artifacts("files", task_id)
    assert [each["file_name"] for each in found] == ["report.txt"] * 2
    got = [(await site.download("files", task_id, each["artifact_id"])).content for each in found]
    assert got == [b"one", b"two"]


async def test_an_artifact_is_found_on_its_own_task_only(site: Site) -> None:
    mine, other = await site.create("files"), await site.create("files")
    made = (await site.upload("files", mine, "a.txt", b"x")).json()
    assert (await site.download("files", other, made["artifact_id"])).status_code == 404
    assert (await site.download("files", mine, hashlib.sha256(b"x").hexdigest())).status_code == 404


async def test_whatever_a_file_is_called_it_stays_in_the_store(site: Site) -> None:
    for name in NAMES:
        task_id = await site.create("files")
        raw = (
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="' + name.encode() + b'"\r\n\r\ncontent\r\n'
            b'--b\r\nContent-Disposition: form-data; name="relative_path"\r\n\r\n' + name.encode() + b"\r\n--b--\r\n"
        )
        headers = {"Content-Type": "multipart/form-data; boundary=b"}
        answer = await site.http.post(site.at("files", f"/{task_id}/artifacts"), content=raw, headers=headers)
        assert answer.status_code == 200, answer.text
        for made in (answer.json(), *(await site.post("files", task_id))["artifacts"]):
            assert made["file_name"] not in ("", ".", "..")
            assert not set(made["file_name"]) & set("/\\\0\r\n")
            folder = made["relative_path"]
            assert folder is None or not ({"..", ""} & set(re.split(r"[/\\]", folder.removesuffix("/"))))
        got = await site.download("files", task_id, answer.json()["artifact_id"])
        assert got.content == b"content"
        assert got.headers["content-disposition"].isascii()
    check_folder(site.folder)


def check_folder(folder: Path) -> None:
    """Nothing was written but the database and files that are named by their hash."""
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


async def test_large_files_come_back_as_they_went(site: Site) -> None:
    content = bytes(range(256)) * 8192 + b"\r\n--b--\r\n"
    task_id = await site.create("files")
    made = (await site.upload("files", task_id, "big.bin", content)).json()
    assert (await site.download("files", task_id, made["artifact_id"])).content == content


async def test_a_file_that_came_by_another_protocol_can_be_named_anything(site: Site) -> None:
    task_id = await site.create("files")
    file = FilePart(name="../../../etc/cron.d/evil", media_type="text/html", inline=b"<script>")
    await site.hub.upload(OWNER, task_id, file, "/etc/../")
    [made] = await site.artifacts("files", task_id)
    assert (made["file_name"], made["relative_path"]) == ("evil", "etc/")
    got = await site.download("files", task_id, made["artifact_id"])
    assert got.headers["content-type"] == "application/octet-stream"
    assert got.headers["content-disposition"] == 'attachment; filename="evil"'
