"""Budgets over the administration API."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from babelgate.canonical import Event, Invocation
from babelgate.canonical.event import RunEnded
from babelgate.gateway.storage.spend import read_ratios
from tests.gateway.admin.administering import ALICE, OPS, administered, two_nodes
from tests.running import Running

BUDGETS = {
    "month": {"per": "key", "cost": 3, "every": "month"},
    "talk": {"per": "thread", "tokens": 5, "on_limit": "pause"},
}


async def planner(call: Invocation) -> AsyncIterator[Event]:
    """Use 5 tokens."""
    yield RunEnded(usage={"input_tokens": 5, "cost": 1.5})


async def responses(gateway: Running) -> int:
    response = await gateway.http.post("/v1/responses", json={"model": "planner", "input": "hi"}, headers=ALICE)
    return response.status_code


async def ratios(gateway: Running) -> dict[str, float]:
    """Return the used part of each budget, as the metric shows it."""
    limits = gateway.hub.budgets.list_ratio_limits()
    return dict(zip(limits, await gateway.hub.journal.query(read_ratios, limits.values()), strict=True))


async def test_an_operator_sees_and_raises_a_budget(tmp_path: Path) -> None:
    async with administered(tmp_path, {"planner": planner}, budgets=BUDGETS) as gateway:
        assert await ratios(gateway) == {"month": 0}
        assert [await responses(gateway) for _ in range(3)] == [200, 200, 429]
        month, talk = (await gateway.http.get("/admin/budgets", headers=OPS)).json()["budgets"]
        assert month["scopes"] == [
            {
                "scope": "key:alice",
                "used": {"cost": 3.0, "tokens": 10, "runs": 2},
                "allowed": {"cost": 3.0},
                "currency": "USD",
                "ratio": 1.0,
            }
        ]
        assert talk["resets_at"] is None and len(talk["scopes"]) == 2
        usage = (await gateway.http.get("/admin/usage", headers=OPS)).json()
        assert [each["name"] for each in usage["budgets"]] == ["month", "talk"]
        path = "/admin/budgets/month/raise"
        raised = await gateway.http.post(path, json={"scope": "key:alice", "cost": 1.5}, headers=OPS)
        assert raised.json()["allowed"] == {"cost": 4.5}
        assert await ratios(gateway) == {"month": pytest.approx(3 / 4.5)}
        assert [await responses(gateway) for _ in range(2)] == [200, 429]
        (record,) = (await gateway.http.get("/admin/audit?action=budget.raise", headers=OPS)).json()["records"]
        assert record["actor"]["subject"] == "key:ops" and "month|key:alice" in record["reason"]


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("nothing", {"scope": "a", "runs": 1}, 404),
        ("month", {"scope": "a"}, 400),
        ("month", {"scope": "a", "cost": -1}, 400),
        ("month", {"runs": 1}, 400),
    ],
)
async def test_a_wrong_raise_is_refused(tmp_path: Path, name: str, body: dict[str, Any], status: int) -> None:
    async with administered(tmp_path, {"planner": planner}, budgets=BUDGETS) as gateway:
        response = await gateway.http.post(f"/admin/budgets/{name}/raise", json=body, headers=OPS)
        assert response.status_code == status, response.text


async def test_nodes_share_a_budget_and_its_raise(tmp_path: Path, postgres_url: str) -> None:
    budgets = {"few": {"per": "owner", "runs": 4}}
    async with two_nodes(tmp_path, postgres_url, {"planner": planner}, budgets=budgets) as (first, second):
        assert [await responses(node) for node in (first, second, first, second, first)] == [200] * 4 + [429]
        body = {"scope": "alice", "runs": 1}
        assert (await second.http.post("/admin/budgets/few/raise", json=body, headers=OPS)).status_code == 200
        assert await ratios(first) == {"few": 0.8}
        assert [await responses(first), await responses(second)] == [200, 429]
