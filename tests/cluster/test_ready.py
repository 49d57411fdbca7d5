"""Readiness answer of a node."""

from pathlib import Path
from typing import Any

import httpx

from tests.bridge import Bridge
from tests.opened import opened
from tests.postgres import empty, url_of


async def test_a_node_shows_its_name_only_with_a_key(postgres_tables: str, tmp_path: Path) -> None:
    empty(postgres_tables)
    shared: dict[str, Any] = {"cluster": True, "node": "first", "blobs": tmp_path / "files"}
    async with (
        opened(tmp_path, database=url_of(postgres_tables), keys={"alice": "a-key"}, **shared) as gateway,
        httpx.AsyncClient(transport=Bridge(gateway.app), base_url="http://localhost") as http,
    ):
        assert gateway.hub.cluster is not None
        assert (await http.get("/readyz")).json()["node"] == gateway.hub.cluster.nodes.node_id
        answer = await http.get("/readyz", headers={"X-Api-Key": "a-key"})
        assert answer.json()["node"] == "first"
