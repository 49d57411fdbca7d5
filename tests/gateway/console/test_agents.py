"""Agents in the console: what they are, how busy they are, and what only operators see of them."""

from pathlib import Path
from typing import Any

from tests.gateway.admin.administering import ACCESS
from tests.gateway.console.reading import ALICE, BOB, OPS, shown
from tests.running import running


async def test_agents_show_their_state_and_activity(tmp_path: Path) -> None:
    async with shown(tmp_path, default_agent="echo") as console:
        await console.run("echo", "echo", "Hi")
        await console.run("failed", "fail", "Hi")
        await console.run("of bob", "echo", "Hi", BOB)
        disabled = {"reason": "Costs too much", "running": "drain"}
        await console.gateway.http.post("/admin/agents/slow/disable", json=disabled, headers=OPS)
        agents = {item["name"]: item for item in (await console.get("agents"))["items"]}
        echo = agents["echo"]
        assert (echo["kind"], echo["protocol"], echo["is_default"], echo["servers"]) == ("python", None, True, [])
        assert echo["last24h"] == {"runs": 1, "failed": 0, "is_partial": False}
        assert agents["fail"]["last24h"] == {"runs": 1, "failed": 1, "is_partial": False}
        assert echo["slots"] == {"limit": None, "used": 0, "waiting": 0}
        assert agents["json"]["schemas"]["output"]["properties"]["words"]["type"] == "integer"
        assert echo["checks"] == [] and "url" not in echo and "disabled" not in echo
        assert (agents["slow"]["disabled"]["reason"], "by" in agents["slow"]["disabled"]) == ("Costs too much", False)
        assert await console.get("agents/echo") == echo
        alone = await console.gateway.http.get("/agent/echo/console/api/v1/agents", headers=ALICE)
        assert alone.json()["items"] == [echo]
        operated = await console.get("agents/echo", OPS)
        assert (operated["last24h"]["runs"], operated["url"]) == (2, None)
        assert (await console.get("agents/slow", OPS))["disabled"]["by"] == "key:ops"
        await console.refuse(404, "agents/none")
        await console.refuse(400, "agents", color="red")


async def test_urls_and_reasons_are_for_operators(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    async with running(tmp_path / "far", {"far": _echo}) as far:
        configured: dict[str, Any] = {
            "far": {"url": f"{far.url}/agent/far", "concurrency": 3},
            "away": {"url": "http://127.0.0.1:1/", "protocol": "acp"},
        }
        async with shown(tmp_path, configured=configured) as console:
            of_alice = {item["name"]: item for item in (await console.get("agents"))["items"]}
            operated = {item["name"]: item for item in (await console.get("agents", OPS))["items"]}
            assert (of_alice["far"]["kind"], of_alice["far"]["servers"]) == ("server", [{"state": "ok"}])
            assert of_alice["far"]["slots"]["limit"] == 3 and of_alice["far"]["protocol"]
            assert operated["far"]["url"].startswith(far.url) and operated["far"]["servers"][0]["state"] == "ok"
            assert operated["far"]["because"]
            assert "127.0.0.1" in operated["away"]["broken"] and of_alice["away"]["kind"] == "server"
            assert "127.0.0.1" not in str(of_alice)
            health = await console.get("health")
            assert [(each["name"], each["status"]) for each in health["agents"]] == [("far", "ok"), ("away", "broken")]


async def test_console_of_an_agent_lists_that_agent_alone(tmp_path: Path) -> None:
    async with shown(tmp_path) as console:
        listed = await console.gateway.http.get("/agent/echo/console/api/v1/agents", headers=ALICE)
        assert [item["name"] for item in listed.json()["items"]] == ["echo"]


async def test_hidden_agents_are_not_listed(tmp_path: Path) -> None:
    rules = [{**rule} for rule in ACCESS[1:]] + [{"who": "*", "agents": ["echo"], "allow": "*"}]
    async with shown(tmp_path, access=rules) as console:
        assert [item["name"] for item in (await console.get("agents", ALICE))["items"]] == ["echo"]
        unknown = await console.refuse(404, "agents/none")
        assert await console.refuse(404, "agents/fail") == unknown.replace("none", "fail")


async def _echo(text: str) -> str:
    return text
