"""The settings in force in the console: values, sources, and no secret."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from babelgate.gateway.console.configuration import list_settings
from babelgate.gateway.settings.load import find_sources, load
from tests.gateway.admin.administering import ACCESS, ALICE, KEYS, OPS, administered
from tests.running import running

SETTINGS = "/console/api/v1/settings"
FILE = """
limits: {run: 60}
console: false
webhook_secret: hook-secret-0123456789
keys: {ops: {key: key-of-ops-0123456789, groups: [ops]}, carol: key-of-carol-0123456789}
access: [{who: "group:ops", allow: admin}]
database: postgresql://user:password-0123@db.example/name
admin: {agent_secrets: [SECRET_NAME]}
agents:
  near: {python: "babelgate.gateway.demo:echo"}
  far: {url: "https://far.example/secret-path-0123456789", headers: {X-Api-Key: header-0123456789}}
"""
SECRETS = ("0123", "SECRET_NAME", "carol")


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    """Rows of a file, a variable and a flag, by key."""
    path, flags = tmp_path / "babelgate.yaml", {"port": 1, "agents": {"hi": {"python": "babelgate.gateway.demo:echo"}}}
    path.write_text(FILE)
    monkeypatch.setenv("BABELGATE_LIMITS__BODY", "1MB")
    monkeypatch.delenv("PORT", raising=False)
    listed = list_settings(load(path, flags), {**find_sources(path, flags), "agents.hi": "agents.hi"})
    return {str(row["key"]): {**row, "where": str(row["where"]).replace(str(path), "FILE")} for row in listed}


@pytest.mark.parametrize(
    ("key", "value", "origin", "where"),
    [
        ("limits.run", 60.0, "file", "FILE: limits.run"),
        ("limits.body", 2**20, "variable", "BABELGATE_LIMITS__BODY"),
        ("limits.event", 8 * 2**20, "default", "None"),
        ("port", 1, "flag", "--port"),
        ("console.enabled", False, "file", "FILE: console"),
        ("console.wire", "failures", "file", "FILE: console"),
        ("agents.near.python", "babelgate.gateway.demo:echo", "file", "FILE: agents.near"),
        ("agents.hi.python", "babelgate.gateway.demo:echo", "flag", "agents.hi"),
        ("agents.far.url", "https://far.example/…", "file", "FILE: agents.far"),
        ("database", "postgresql://db.example/…", "file", "FILE: database"),
        ("cors", [], "default", "None"),
    ],
)
def test_every_value_has_its_source(rows: Mapping[str, Any], key: str, value: object, origin: str, where: str) -> None:
    assert rows[key] == {"key": key, "value": value, "from": origin, "where": where, "secret": False}


@pytest.mark.parametrize(
    ("key", "value", "where"),
    [
        ("webhook_secret", None, "FILE: webhook_secret"),
        ("agents.far.headers.X-Api-Key", None, "FILE: agents.far"),
        ("admin.agent_secrets", None, "FILE: admin.agent_secrets"),
    ],
)
def test_secret_shows_neither_value_nor_length(rows: Mapping[str, Any], key: str, value: object, where: str) -> None:
    assert rows[key] == {"key": key, "value": value, "from": "file", "where": where, "secret": True}
    assert not any(secret in repr(rows) for secret in SECRETS)


def test_owners_of_keys_are_numbers(rows: Mapping[str, Any]) -> None:
    assert rows["keys.entry 1"]["value"][0]["groups"] == ["ops"]
    assert [rows[f"keys.entry {n}"]["where"] for n in (1, 2)] == ["FILE: keys, entry 1", "FILE: keys, entry 2"]
    assert all(rows[f"keys.entry {n}"]["secret"] for n in (1, 2))


async def test_only_operators_see_the_settings(tmp_path: Path) -> None:
    async with administered(tmp_path) as gateway:
        assert (await gateway.http.get(SETTINGS, headers=ALICE)).status_code == 403
        body = (await gateway.http.get(SETTINGS, headers=OPS)).json()
        assert body["next"] is None
        assert {"key": "port", "value": 8000, "from": "default", "where": None, "secret": False} in body["items"]
        assert "key-of" not in str(body)


async def test_operator_sees_the_settings_after_a_reload(tmp_path: Path) -> None:
    async with running(tmp_path, keys=KEYS, access=ACCESS) as gateway:
        await gateway.generations.apply(gateway.settings.model_copy(update={"cors": ("https://a.example",)}))
        items = (await gateway.http.get(SETTINGS, headers=OPS)).json()["items"]
        assert next(row["value"] for row in items if row["key"] == "cors") == ["https://a.example"]


async def test_anonymous_caller_beyond_loopback_is_no_operator(tmp_path: Path) -> None:
    async with running(tmp_path, host="0.0.0.0", allow_anonymous=True) as gateway:
        refused = await gateway.http.get(SETTINGS)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
        assert "has no operator" in refused.text
    async with running(tmp_path) as gateway:
        assert (await gateway.http.get(SETTINGS)).status_code == 200
