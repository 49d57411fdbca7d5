"""Large files: the gateway reads them from disk as fast as their reader takes them."""

import hashlib
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from tests.limits.strain import MB, SLOW, Strained

pytestmark = SLOW

SIZE: Final = 60 * MB
MEMORY: Final = 25 * MB


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def file(gateway: Strained) -> tuple[str, str]:
    """Path of a large file in AIEF, and its hash."""
    data = bytes(range(256)) * (SIZE // 256)
    task_id = (await gateway.http.post("/ap/v1/agent/tasks", json={"input": "hi"})).json()["task_id"]
    path = f"/ap/v1/agent/tasks/{task_id}/artifacts"
    artifact = (await gateway.http.post(path, files={"file": ("x.bin", data)})).json()
    return f"{path}/{artifact['artifact_id']}", hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("path", ["{aief}", "/acp/resources/{hash}", "/a2a/echo/files/{hash}"])
async def test_a_large_file_is_read_piece_by_piece(gateway: Strained, file: tuple[str, str], path: str) -> None:
    aief, hashed = file
    found = hashlib.sha256()
    url = path.format(aief=aief, hash=hashed)
    async with gateway.watched() as strain, gateway.http.stream("GET", url) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-length"] == str(SIZE)
        async for piece in answer.aiter_raw():
            found.update(piece)
    assert found.hexdigest() == hashed
    strain.check(memory=MEMORY)


async def test_a_disconnected_reader_leaves_no_file_open(gateway: Strained, file: tuple[str, str]) -> None:
    async with gateway.http.stream("GET", file[0]) as answer:
        await anext(answer.aiter_raw())
        assert file[1] in _open_files(gateway)
    while file[1] in _open_files(gateway):
        await gateway.http.get("/ok")


def _open_files(gateway: Strained) -> set[str]:
    return {_target(link) for link in Path(f"/proc/{gateway.pid}/fd").iterdir()}


def _target(link: Path) -> str:
    try:
        return link.readlink().name
    except FileNotFoundError:
        return ""
