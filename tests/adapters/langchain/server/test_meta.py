"""Endpoints that clients probe first: `/ok` and `/info`."""

from importlib.metadata import version
from pathlib import Path

import pytest

from tests.running import running


async def test_ok_needs_no_key_and_can_check_the_database(tmp_path: Path) -> None:
    async with running(tmp_path, keys={"alice": "a-key"}) as gateway:
        for query in ("", "?check_db=0", "?check_db=1", "?check_db=true"):
            answer = await gateway.http.get(f"/ok{query}")
            assert (answer.status_code, answer.json()) == (200, {"ok": True, "services": {}})


async def test_ok_fails_if_the_database_is_unreadable(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        await gateway.hub.journal.close()
        assert (await gateway.http.get("/ok")).status_code == 200
        answer = await gateway.http.get("/ok?check_db=1")
        assert answer.status_code == 503
        assert set(answer.json()) == {"detail"}


async def test_an_invalid_check_db_is_rejected(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        assert (await gateway.http.get("/ok?check_db=perhaps")).status_code == 422


@pytest.mark.parametrize("base", ["", "/agent/echo"])
async def test_info_describes_the_gateway_and_not_langgraph(tmp_path: Path, base: str) -> None:
    async with running(tmp_path) as gateway:
        answer = await gateway.http.get(f"{base}/info")
    assert answer.status_code == 200
    info = answer.json()
    assert info["version"] == version("babelgate")
    assert not [name for name in info if name.startswith("langgraph")]
    assert info["flags"] == {"assistants": True, "crons": True, "langsmith": False}
    assert info["host"] == {"kind": "self-hosted"}
    assert answer.headers["babelgate"].startswith(version("babelgate"))


async def test_a_page_on_another_local_port_can_read_pagination(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        origin = {"Origin": "http://localhost:3000"}
        answer = await gateway.http.get("/info", headers=origin)
        assert answer.headers["access-control-allow-origin"] == origin["Origin"]
        exposed = answer.headers["access-control-expose-headers"].lower()
        assert "x-pagination-total" in exposed and "x-pagination-next" in exposed
