"""Health in the console: queues, streams, the database, nodes, webhooks and faults."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

from babelgate.gateway.clock import Clock
from babelgate.gateway.http.connection import ConnectionTable
from babelgate.gateway.runs.fault_counts import FaultCount, FaultCounts
from tests.gateway.admin.administering import ALICE, OPS, two_nodes, until
from tests.gateway.console.reading import API, KEYS, shown
from tests.gateway.console.test_changes import following
from tests.postgres import empty, url_of


async def test_operators_see_the_whole_health(tmp_path: Path) -> None:
    released = asyncio.Event()

    async def patient(text: str) -> AsyncGenerator[str]:
        yield "first"
        await released.wait()

    async def broken(text: str) -> str:
        raise ValueError("no")

    agents = {"patient": patient, "broken": broken}
    async with shown(tmp_path, agents) as console:
        gateway = console.gateway
        gateway.generations.connections = ConnectionTable(gateway.settings)
        for _ in range(2):
            await console.run("broken", "broken", "Hi")
        body = {"assistant_id": "patient", "input": "Hi", "background": True}
        await gateway.http.post("/v1/runs", json=body, headers=ALICE)
        async with following(gateway):
            health = await console.get("health", OPS)
        assert health["streams"] == 1 and health["connections"]["limit"] > 0
        assert (health["database"]["kind"], health["database"]["ok"], health["database"]["why"]) == (
            "sqlite",
            True,
            None,
        )
        assert health["database"]["free_bytes"] > 0 and health["uptime_seconds"] > 0
        assert (health["nodes"], health["webhooks"]) == ([], {"due": 0, "failing": 0})
        assert [(each["code"], each["agent"], each["count"]) for each in health["faults"]] == [
            ("agent_failed", "broken", 2)
        ]
        queues = {queue["agent"]: queue for queue in health["queues"]}
        assert queues["patient"] == {"agent": "patient", "limit": None, "used": 1, "waiting": 0, "oldest_seconds": None}
        assert health["agents"] == [{"name": "patient", "status": "ok"}, {"name": "broken", "status": "ok"}]
        assert set(await console.get("health")) == {"agents", "queues"}
        released.set()


async def test_nodes_of_a_cluster_are_listed(tmp_path: Path, postgres_tables: str) -> None:
    empty(postgres_tables)
    async with two_nodes(tmp_path, url_of(postgres_tables), keys=KEYS) as (a, b):
        health = (await b.http.get(f"{API}/health", headers=OPS)).json()
        assert health["database"]["kind"] == "postgresql" and health["database"]["free_bytes"] is None
        assert sorted(node["name"] for node in health["nodes"]) == ["a", "b"]
        assert [node["leads"] for node in health["nodes"]] == [True, False]
        body = {"assistant_id": "slow", "input": "60", "background": True}
        run = (await a.http.post("/v1/runs", json=body, headers=ALICE)).json()
        response = await until(
            lambda: b.http.get(f"{API}/runs/{run['run_id']}", headers=ALICE),
            lambda response: response.json()["status"] == "running",
            "the start of the run",
        )
        assert response.json()["node"] == "a"
        health = (await b.http.get(f"{API}/health", headers=OPS)).json()
        assert {node["name"]: node["runs"] for node in health["nodes"]} == {"a": 1, "b": 0}
        await a.http.post(f"/v1/runs/{run['run_id']}/cancel", headers=ALICE)


def test_counts_of_faults_are_bounded() -> None:
    counts = FaultCounts(Clock(now=lambda: 7))
    for number in range(300):
        counts.note("agent_failed", f"a{number}")
        counts.note("agent_failed", "busy")
    found = counts.all()
    assert len(found) == 200 and ("agent_failed", "a0") not in found
    assert found["agent_failed", "busy"] == FaultCount(300, 7)
