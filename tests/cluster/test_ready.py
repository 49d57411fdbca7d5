"""What a node says of itself."""

from pathlib import Path
from typing import Any

import httpx

from tests.bridge import Bridge
from tests.opened import opened
from tests.postgres import empty, url_of


async def test_a_node_of_a_cluster_names_itself_to_those_with_a_key(postgres_tables: str, tmp_path: Path) -> None:
    empty(postgres_tables)
    shared: dict[str, Any] = {"cluster": True, "node": "first", "blobs": tmp_path / "files"}
    async with (
        opened(tmp_path, database=url_of(postgres_tables), keys={"alice": "a-key"}, **shared) as made,
        httpx.AsyncClient(transport=Bridge(made.app), base_url="http://localhost") as http,
    ):
        assert made.hub.cluster is not None
        assert (await http.get("/readyz")).json()["node"] == made.hub.cluster.nodes.node_id
        known = await http.get("/readyz", headers={"X-Api-Key": "a-key"})
        assert known.json()["node"] == "first"
