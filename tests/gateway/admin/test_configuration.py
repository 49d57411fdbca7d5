"""Tests of the configuration in force, its reload, and the use of the gateway."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from babelgate.canonical.hub import Submission
from babelgate.gateway.settings.load import ConfigError, find_sources, load
from tests.gateway.admin.administering import ACCESS, ALICE, KEYS, OPS, administered, until
from tests.running import Running


async def test_the_configuration_contains_no_secrets(tmp_path: Path) -> None:
    agents = {"far": {"url": "http://127.0.0.1:9", "headers": {"A": "x-y-z"}}}
    async with administered(tmp_path, configured=agents, webhook_secret="hook-secret") as gateway:
        response = await gateway.http.get("/admin/config", headers=OPS)
        for secret in ("hook-secret", "x-y-z", "key-of-ops", "key-of-alice"):
            assert secret not in response.text
        settings = response.json()["settings"]
        assert settings["limits"]["run"] == 3600
        assert settings["agents"]["far"]["headers"] == {"A": "**********"}
        assert [each["groups"] for each in settings["keys"]["ops"]] == [["ops"]]


async def test_the_source_of_each_value_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "babelgate.yaml"
    path.write_text("limits: {run: 60}\nkeys: {ops: key-of-ops}\nagents: {a: {python: 'gateway.demo:echo'}}\n")
    monkeypatch.setenv("BABELGATE_CORS", "https://a.example")
    async with administered(tmp_path) as gateway:
        gateway.generations.find_sources = lambda: find_sources(path, {"port": 1})
        sources = (await gateway.http.get("/admin/config", headers=OPS)).json()["sources"]
    assert sources == {
        "limits.run": f"{path}: limits.run",
        "keys.ops": f"{path}: keys, entry 1",
        "agents.a": f"{path}: agents.a",
        "cors": "BABELGATE_CORS",
        "port": "--port",
    }


async def records(gateway: Running, count: int) -> list[dict[str, Any]]:
    async def get() -> Any:
        return await gateway.http.get("/admin/audit?action=settings.reload", headers=OPS)

    response = await until(get, lambda found: len(found.json()["records"]) == count, "the record")
    return response.json()["records"]


async def test_a_reload_reports_what_it_applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "babelgate.yaml"
    async with administered(tmp_path) as gateway:
        refused = await gateway.http.post("/admin/reload", headers=OPS)
        assert refused.status_code == 422
        assert refused.json()["mistakes"] == ["this gateway has no configuration to read again"]

        def read() -> Any:
            return load(
                path,
                {
                    "keys": KEYS,
                    "access": ACCESS,
                    "database": gateway.settings.database,
                    "network": {"allow": ["127.0.0.0/8"]},
                },
            )

        monkeypatch.setattr(gateway.generations, "_load", read)
        path.write_text("limits: {run: 60}\nport: 1\n")
        report = (await gateway.http.post("/admin/reload", headers=OPS)).json()
        assert report["reloaded"]
        assert "limits.run" in report["applied"]
        assert report["needs_restart"] == ["port"]
        path.write_text("limits: {run: never}\n")
        failed = await gateway.http.post("/admin/reload", headers=OPS)
        assert (failed.status_code, failed.json()["reloaded"]) == (422, False)
        assert "limits.run" in failed.json()["mistakes"][0]
        with pytest.raises(ConfigError):
            read()
        found = await records(gateway, 2)
        assert sorted(each["outcome"] for each in found) == ["allow", "error"]
        assert {each["actor"]["subject"] for each in found} == {"key:ops"}


async def test_an_answer_counts_for_the_key_of_its_caller(tmp_path: Path) -> None:
    async with administered(tmp_path) as gateway:
        body = {"agent_name": "ask", "input": [{"parts": [{"content": "Hi"}]}], "mode": "sync"}
        run = (await gateway.http.post("/acp/runs", json=body, headers=ALICE)).json()
        assert run["status"] == "awaiting"
        resume = {"run_id": run["run_id"], "await_resume": {"message": body["input"][0]}, "mode": "sync"}
        assert (await gateway.http.post(f"/acp/runs/{run['run_id']}", json=resume, headers=ALICE)).status_code == 200
        (usage,) = (await gateway.http.get("/admin/usage?by=key", headers=OPS)).json()["usage"]
        assert (usage["key"], usage["runs"]) == (sha256(b"key-of-alice").hexdigest()[:8], 2)


async def test_runs_and_tokens_are_counted_by_owner_and_agent(tmp_path: Path) -> None:
    async with administered(tmp_path) as gateway:
        body = {"agent_name": "echo", "input": [{"parts": [{"content": "Hi"}]}], "mode": "sync"}
        for headers in (ALICE, ALICE, OPS):
            assert (await gateway.http.post("/acp/runs", json=body, headers=headers)).status_code == 200
        usage = (await gateway.http.get("/admin/usage", headers=OPS)).json()["usage"]
        counts = {"input_tokens": 0, "output_tokens": 0}
        assert usage == [
            {"owner": "alice", "agent": "echo", "runs": 2, **counts},
            {"owner": "ops", "agent": "echo", "runs": 1, **counts},
        ]
        by_key = (await gateway.http.get("/admin/usage?by=owner,key", headers=OPS)).json()["usage"]
        alice, ops = (sha256(f"key-of-{owner}".encode()).hexdigest()[:8] for owner in ("alice", "ops"))
        assert [(each["owner"], each["key"], each["runs"]) for each in by_key] == [("alice", alice, 2), ("ops", ops, 1)]
        by_day = (await gateway.http.get("/admin/usage?by=day", headers=OPS)).json()["usage"]
        assert [each["runs"] for each in by_day] == [3]
        earlier = await gateway.http.get("/admin/usage?since=2020-01-01&until=2020-02-01", headers=OPS)
        assert earlier.json()["usage"] == []
        await gateway.hub.submit("alice", Submission(agent="echo"))  # as a run that an earlier release has stored
        (without_key, *_) = (await gateway.http.get("/admin/usage?by=key", headers=OPS)).json()["usage"]
        assert (without_key["key"], without_key["runs"]) == ("", 1)
        for query, words in (("by=color", "by: expected some of"), ("since=2020-01-01", "at most 92 days")):
            refused = await gateway.http.get(f"/admin/usage?{query}", headers=OPS)
            assert (refused.status_code, words in refused.text) == (400, True)
