"""Static files of the console: they need no key, are compressed and cached, and no other page can use them."""

import gzip
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final
from urllib.parse import urljoin

import httpx
import pytest
import pytest_asyncio

from babelgate.gateway.console.pages import FOLDER, is_static, read_files
from tests.gateway.admin.administering import ALICE, administered
from tests.running import running

pytestmark = pytest.mark.asyncio(loop_scope="module")
POLICY: Final = (
    "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def keyed(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[httpx.AsyncClient]:
    """Client without a key of a gateway with keys."""
    async with running(tmp_path_factory.mktemp("keyed"), keys={"alice": "alice-0123456789"}) as gateway:
        yield gateway.http


async def file_paths(http: httpx.AsyncClient) -> list[str]:
    """Return the paths of the files that the page refers to."""
    page = await http.get("/console/")
    return [f"/console/{name}" for name in re.findall(r'(?:href|src)="([0-9a-f]{16}/[^"]+)"', page.text)]


@pytest.mark.parametrize("prefix", ["", "/agent/echo"])
async def test_static_files_need_no_key(keyed: httpx.AsyncClient, prefix: str) -> None:
    page = await keyed.get(f"{prefix}/console/")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    for name in re.findall(r'(?:href|src)="([0-9a-f]{16}/[^"]+)"', page.text):
        response = await keyed.get(f"{prefix}/console/{name}")
        assert response.status_code == 200, name
    assert (await keyed.get(f"{prefix}/console/api/v1/me")).status_code == 401


async def test_console_page_does_not_reveal_whether_an_agent_exists(tmp_path: Path) -> None:
    async with administered(tmp_path) as gateway:
        page = await gateway.http.get("/console/")
        for name in ("echo", "nobody"):
            assert (await gateway.http.get(f"/agent/{name}/console/")).content == page.content
            assert (await gateway.http.get(f"/agent/{name}/console/api/v1/me")).status_code == 401
        assert (await gateway.http.get("/agent/echo/console/api/v1/me", headers=ALICE)).status_code == 200
        assert (await gateway.http.get("/agent/nobody/console/api/v1/me", headers=ALICE)).status_code == 404
        assert (await gateway.http.get("/agent/echo/agent/echo/console/", headers=ALICE)).status_code == 404


async def test_every_static_file_is_served_as_it_is(keyed: httpx.AsyncClient) -> None:
    digest = (await file_paths(keyed))[0].split("/")[2]
    names = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.suffix in (".css", ".js")}
    assert {"main.js", "console.css", "vendor/preact.js"} <= names
    for name in names:
        response = await keyed.get(f"/console/{digest}/{name}")
        assert response.content == (FOLDER / name).read_bytes(), name
        assert response.headers["content-type"].partition(";")[0] in ("text/css", "text/javascript")


@pytest.mark.parametrize("prefix", ["", "/agent/echo"])
async def test_missing_slash_is_a_relative_redirect(keyed: httpx.AsyncClient, prefix: str) -> None:
    response = await keyed.get(f"{prefix}/console")
    assert (response.status_code, response.headers["location"]) == (307, "console/")


async def test_urls_of_the_page_keep_the_prefix_of_a_proxy(keyed: httpx.AsyncClient) -> None:
    outside = "https://example.com/gate/console"
    redirect = await keyed.get("/console")
    page = urljoin(outside, redirect.headers["location"])
    assert page == f"{outside}/"
    references = re.findall(r'(?:href|src)="([^"]+)"', (await keyed.get("/console/")).text)
    assert len(references) >= 2
    for each in references:
        url = urljoin(page, each)
        assert each.startswith("data:") or url.startswith(page), each
        if not each.startswith("data:"):
            assert (await keyed.get(url.removeprefix("https://example.com/gate"))).status_code == 200


async def test_page_is_revalidated_and_other_files_are_immutable(keyed: httpx.AsyncClient) -> None:
    page = await keyed.get("/console/")
    assert page.headers["cache-control"] == "no-cache"
    for path in await file_paths(keyed):
        response = await keyed.get(path)
        assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
    for etag in (page.headers["etag"], f'"other", W/{page.headers["etag"]}', "*"):
        unchanged = await keyed.get("/console/", headers={"If-None-Match": etag})
        assert (unchanged.status_code, unchanged.content) == (304, b"")
        assert unchanged.headers["etag"] == page.headers["etag"]
    assert (await keyed.get("/console/", headers={"If-None-Match": '"other"'})).status_code == 200


@pytest.mark.parametrize(
    ("header", "coding"),
    [("gzip, br", "gzip"), ("*", "gzip"), ("br, GZIP;q=0.5", "gzip"), ("gzip;q=0, br", None), ("br", None), ("", None)],
)
async def test_files_are_compressed_as_the_client_accepts(
    keyed: httpx.AsyncClient, header: str, coding: str | None
) -> None:
    async with keyed.stream("GET", "/console/", headers={"Accept-Encoding": header}) as response:
        content = b"".join([each async for each in response.aiter_raw()])
    assert response.headers.get("content-encoding") == coding
    assert (gzip.decompress(content) if coding else content).startswith(b"<!doctype html>")
    assert "Accept-Encoding" in response.headers.get_list("vary")


async def test_every_file_has_the_headers_of_isolation(keyed: httpx.AsyncClient) -> None:
    for path in ["/console/", *await file_paths(keyed)]:
        headers = (await keyed.get(path, headers={"Origin": "http://localhost:3000"})).headers
        assert headers["content-security-policy"] == POLICY
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers


async def test_page_has_nothing_that_its_policy_blocks() -> None:
    page = (FOLDER / "index.html").read_text()
    assert not re.search(r"<script(?![^>]* src=)|<style| style=| on\w+=|https?:", page)


@pytest.mark.parametrize(
    "path",
    ["/console//api/v1/me", "/console/api/v1/me", "/console/../acp/agents",
     "/console/0123456789abcdef/../../acp/agents", "/consoles", "/console/x"],
)  # fmt: skip
async def test_only_static_files_are_open(keyed: httpx.AsyncClient, path: str) -> None:
    assert not is_static(path)
    assert (await keyed.get(path)).status_code == 401


async def test_unknown_file_is_not_found(keyed: httpx.AsyncClient) -> None:
    response = await keyed.get("/console/0123456789abcdef/main.js")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")
    assert "reload the page" in response.json()["error"]["message"]


async def test_changed_file_gets_a_new_url(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<script src="./main.js"></script>')
    (tmp_path / "main.js").write_text("1")
    before = read_files(tmp_path)
    (tmp_path / "main.js").write_text("2")
    after = read_files(tmp_path)
    assert set(before) & set(after) == {""}
    assert before[""].etag != after[""].etag
    (name,) = set(after) - {""}
    assert f'src="{name}"'.encode() in after[""].content
