"""The extension on HTTP: the response confirms that it is active if the request names it."""

from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pytest
from litestar import Request

from babelgate.adapters.kit.extension import HEADER, URI
from babelgate.adapters.kit.server.extended import confirm, is_activated
from babelgate.canonical import Artifact, FilePart, Invocation
from tests.running import running

V1: Final = {"A2A-Version": "1.0"}


def _request(*headers: tuple[str, str]) -> Request[Any, Any, Any]:
    raw = [(name.lower().encode(), value.encode()) for name, value in headers]
    scope: Any = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": raw, "state": {}}
    return Request(scope)


@pytest.mark.parametrize(
    ("value", "active"), [(URI, True), (f"https://example.com/x, {URI}", True), (f"{URI}2", False), ("", False)]
)
def test_the_extension_is_active_if_the_header_names_it(value: str, active: bool) -> None:
    assert is_activated(_request((HEADER, value))) == active
    assert confirm(active=active) == ({HEADER: URI} if active else {})


def test_the_extension_is_inactive_without_the_header() -> None:
    assert not is_activated(_request())


@pytest.mark.parametrize(
    ("name", "media_type"),
    [("ä\r\nX-Injected: 1", "text/plain\r\nX-Injected: 1"), ("n" * 200_000, "t" * 200_000), ("🙂" * 100_000, None)],
)
async def test_file_headers_are_valid_for_any_name_and_type(tmp_path: Path, name: str, media_type: str | None) -> None:
    async def files(call: Invocation) -> Artifact:
        file = FilePart(name=name, media_type=media_type, inline=b"hi" * 50_000, size=100_000)
        return Artifact(artifact_id="a", name="a", parts=(file,))

    async with running(tmp_path, {"files": files}) as gateway:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Hi"}]}
        await gateway.http.post("/a2a/files/message:send", json={"message": message}, headers=V1)
        blob = sha256(b"hi" * 50_000).hexdigest()
        answer = await gateway.http.get(f"/a2a/files/files/{blob}", headers=V1)
        assert answer.content == b"hi" * 50_000
        assert "x-injected" not in answer.headers
        assert sum(len(key) + len(value) for key, value in answer.headers.raw) < 8 * 1024
