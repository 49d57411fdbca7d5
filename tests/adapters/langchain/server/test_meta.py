"""What clients probe before anything else."""

from importlib.metadata import version
from pathlib import Path

import pytest

from tests.running import running


async def test_ok_says_so_to_anyone_and_looks_at_the_database_if_it_is_told_to(tmp_path: Path) -> None:
    async with running(tmp_path, keys={"alice": "a-key"}) as gateway:
        for query in ("", "?check_db=0", "?check_db=1", "?check_db=true"):
            answer = await gateway.http.get(f"/ok{query}")
            assert (answer.status_code, answer.json()) == (200, {"ok": True, "services": {}})


async def test_ok_is_not_said_of_a_database_that_cannot_be_read(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        await gateway.hub.journal.close()
        assert (await gateway.http.get("/ok")).status_code == 200
        answer = await gateway.http.get("/ok?check_db=1")
        assert answer.status_code == 503
        assert set(answer.json()) == {"detail"}


async def test_a_check_that_is_neither_true_nor_false_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        assert (await gateway.http.get("/ok?check_db=perhaps")).status_code == 422


@pytest.mark.parametrize("base", ["", "/agent/echo"])
async def test_info_tells_of_the_gateway_and_does_not_pretend_to_be_langgraph(tmp_path: Path, base: str) -> None:
    async with running(tmp_path) as gateway:
        answer = await gateway.http.get(f"{base}/info")
    assert answer.status_code == 200
    info = answer.json()
    assert info["version"] == version("babelgate")
    assert not [name for name in info if name.startswith("langgraph")]
    assert info["flags"] == {"assistants": True, "crons": True, "langsmith": False}
    assert info["host"] == {"kind": "self-hosted"}
    assert answer.headers["babelgate"].startswith(version("babelgate"))


async def test_a_chat_page_on_another_port_of_this_machine_may_probe_and_page(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        origin = {"Origin": "http://localhost:3000"}
        answer = await gateway.http.get("/info", headers=origin)
        assert answer.headers["access-control-allow-origin"] == origin["Origin"]
        exposed = answer.headers["access-control-expose-headers"].lower()
        assert "x-pagination-total" in exposed and "x-pagination-next" in exposed
