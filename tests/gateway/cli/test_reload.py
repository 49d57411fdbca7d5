"""Tests of the reload of the configuration by real gateways: SIGHUP, changed files, mistakes and secrets in files."""

import asyncio
import os
import re
import signal
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.gateway.card_keys import make_pair
from tests.gateway.command import BOUND, Served, served
from tests.gateway.hubs import within
from tests.gateway.load import Load, run_body
from tests.postgres import empty, url_of

AGENTS = """
import asyncio, pathlib

async def patient(text: str):
    yield "begun"
    while not pathlib.Path(text).exists():
        await asyncio.sleep(0.01)
    yield " ended"
"""
ECHO = {"python": "babelgate.gateway.demo:echo"}
PATIENT = {"python": "waiting:patient"}
KEY = "alice-0123456789"
NO_HEADERS: Mapping[str, str] = {}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "waiting.py").write_text(AGENTS)
    return tmp_path


def write(folder: Path, agents: Mapping[str, Any], **settings: Any) -> None:
    """Replace the configuration by rename."""
    new = folder / "new.yaml"
    new.write_text(yaml.safe_dump({"agents": agents, **settings}))
    new.replace(folder / "babelgate.yaml")


@contextmanager
def serving(folder: Path, *arguments: str, **variables: str) -> Generator[Served]:
    with served(folder, *arguments, **variables) as running:
        yield running


def names(running: Served, **headers: str) -> list[str]:
    agents = httpx.get(f"{running.url}/acp/agents", headers=headers, timeout=BOUND).json()["agents"]
    return [each["name"] for each in agents]


def reload(running: Served) -> str:
    """Send SIGHUP, and return the line that reports the reload."""
    running.process.send_signal(signal.SIGHUP)
    return running.logged("configuration")


def config_metrics(url: str) -> dict[str, float]:
    """Return the metrics of reloads by name."""
    lines = httpx.get(url, timeout=BOUND).text.splitlines()
    return {line.split()[0]: float(line.split()[1]) for line in lines if line.startswith("babelgate_config")}


def test_a_hangup_reloads_the_configuration(folder: Path) -> None:
    write(folder, {"a": ECHO})
    with serving(folder) as running:
        write(folder, {"a": ECHO, "b": ECHO}, limits={"run": 60}, log_format="json")
        assert "configuration reloaded applied=2 needs_restart=1" in reload(running)
        assert names(running) == ["a", "b"]
        log = running.stop()
    assert "babelgate.reload log_format: needs a restart" in log
    assert "babelgate.reload limits.run: applied" in log


def test_a_mistake_changes_nothing(folder: Path) -> None:
    metrics: dict[str, Any] = {"telemetry": {"metrics": {"listen": "127.0.0.1:0"}}}
    write(folder, {"a": ECHO}, **metrics)
    with serving(folder) as running:
        place = running.logged("metrics served").partition("url=")[2].strip()
        started = config_metrics(place)
        assert started["babelgate_config_reload_ok"] == 1
        write(folder, {"b": ECHO}, limits={"run": "soon"}, **metrics)
        line = reload(running)
        assert "configuration not reloaded: babelgate.yaml: limits.run: " in line
        assert names(running) == ["a"]
        assert config_metrics(place) == {**started, "babelgate_config_reload_ok": 0}
        write(folder, {"b": ECHO}, **metrics)
        reload(running)
        restored = config_metrics(place)
        assert restored["babelgate_config_reload_ok"] == 1
        time = "babelgate_config_reloaded_timestamp_seconds"
        assert restored[time] > started[time]


def replace_by_rename(folder: Path, text: str) -> None:
    new = folder / "new.yaml"
    new.write_text(text)
    new.replace(folder / "babelgate.yaml")


def replace_by_link(folder: Path, text: str) -> None:
    """Replace the file as Kubernetes replaces the files of a ConfigMap: `..data` becomes a link to another folder."""
    data = Path(tempfile.mkdtemp(dir=folder, prefix="..2026_"))
    (data / "babelgate.yaml").write_text(text)
    link = folder / "..data_tmp"
    link.symlink_to(data.name)
    link.replace(folder / "..data")
    if not (folder / "babelgate.yaml").is_symlink():
        (folder / "babelgate.yaml").symlink_to("..data/babelgate.yaml")


@pytest.mark.parametrize("replace", [replace_by_rename, replace_by_link])
def test_a_replaced_file_is_reloaded_each_time(folder: Path, replace: Callable[[Path, str], None]) -> None:
    def text(*names: str) -> str:
        return yaml.safe_dump({"watch": True, "agents": dict.fromkeys(names, ECHO)})

    replace(folder, text("a"))
    with serving(folder) as running:
        for agents in (["a", "b"], ["b"], ["b", "c"]):
            replace(folder, text(*agents))
            running.logged("configuration reloaded applied=")
            assert names(running) == agents


def test_a_changed_secret_file_is_reloaded(folder: Path) -> None:
    (folder / "key").write_text(f"{KEY}\n")
    write(folder, {"a": ECHO}, watch=True, keys={"alice": f"${{file:{folder / 'key'}}}"})
    with serving(folder) as running:
        assert names(running, **{"X-Api-Key": KEY}) == ["a"]
        (folder / "new-key").write_text("another-0123456789")
        (folder / "new-key").replace(folder / "key")
        running.logged("configuration reloaded applied=1")
        assert names(running, **{"X-Api-Key": "another-0123456789"}) == ["a"]
        assert httpx.get(f"{running.url}/acp/agents", headers={"X-Api-Key": KEY}).status_code == 401
        (folder / "key").unlink()
        line = running.logged("configuration not reloaded")
        assert f"the file {folder / 'key'} cannot be read: No such file or directory" in line
        assert names(running, **{"X-Api-Key": "another-0123456789"}) == ["a"]


def test_a_changed_signing_key_is_reloaded(folder: Path) -> None:
    old, new = make_pair(folder, "card"), make_pair(folder, "new")
    write(folder, {"a": ECHO}, watch=True, signing={"keys": ["card.pem"]})
    with serving(folder) as running:
        assert kids(running) == [old.key.kid]
        new.file.replace(old.file)
        running.logged("configuration reloaded applied=0")
        assert kids(running) == [new.key.kid]
        old.file.unlink()
        assert "signing.keys.0: the file cannot be read" in running.logged("configuration not reloaded")
        assert kids(running) == [new.key.kid]


def kids(running: Served) -> list[str]:
    return [key["kid"] for key in httpx.get(f"{running.url}/.well-known/jwks.json").json()["keys"]]


def test_a_revoked_key_ends_its_stream(folder: Path) -> None:
    write(folder, {"patient": PATIENT}, keys={"alice": KEY, "bob": "bob-0123456789ab"})
    with serving(folder) as running:
        body, headers = run_body("patient", str(folder / "go"), "stream"), {"X-Api-Key": KEY}
        with httpx.stream("POST", f"{running.url}/acp/runs", json=body, headers=headers, timeout=BOUND) as response:
            lines = response.iter_lines()
            assert any("begun" in line for line in lines)
            write(folder, {"patient": PATIENT}, keys={"bob": "bob-0123456789ab"})
            reload(running)
            with pytest.raises(httpx.RemoteProtocolError):
                assert not any("run.completed" in line for line in lines)
        (folder / "go").touch()


def test_a_run_of_a_removed_agent_ends_normally(folder: Path) -> None:
    write(folder, {"patient": PATIENT, "a": ECHO})
    with serving(folder) as running:
        body = run_body("patient", str(folder / "go"), "stream")
        with httpx.stream("POST", f"{running.url}/acp/runs", json=body, timeout=BOUND) as response:
            lines = response.iter_lines()
            assert any("begun" in line for line in lines)
            write(folder, {"a": ECHO})
            reload(running)
            assert names(running) == ["a"]
            (folder / "go").touch()
            assert any("run.completed" in line for line in lines)


async def load_during_reloads(running: Served, folder: Path, workers: int) -> int:
    """Reload ten times under load, with other agents and limits each time, and return the number of calls."""
    load = Load(running.url, "a", [NO_HEADERS] * 8)
    calling = asyncio.ensure_future(load.run())
    try:
        for number in range(10):
            await load.more(20)
            write(
                folder,
                {"a": {"python": "babelgate.gateway.demo:stream"}, f"b{number}": ECHO},
                limits={"run": 60 + number},
            )
            running.process.send_signal(signal.SIGHUP)
            for _ in range(workers):
                await asyncio.to_thread(running.logged, "configuration reloaded")
        await load.more(20)
    finally:
        load.end()
        await within(calling)
    return load.calls


async def test_no_call_fails_during_reloads(folder: Path) -> None:
    write(folder, {"a": {"python": "babelgate.gateway.demo:stream"}})
    with serving(folder) as running:
        assert await load_during_reloads(running, folder, 1) >= 200
        assert names(running) == ["a", "b9"]


async def test_no_call_fails_during_reloads_of_workers(folder: Path, postgres_tables: str) -> None:
    empty(postgres_tables)
    write(folder, {"a": {"python": "babelgate.gateway.demo:stream"}})
    with serving(folder, "--database", url_of(postgres_tables), "--workers", "2") as running:
        assert await load_during_reloads(running, folder, 2) >= 200
        assert names(running) == ["a", "b9"]


def test_a_restarted_worker_has_the_reloaded_configuration(folder: Path, postgres_tables: str) -> None:
    empty(postgres_tables)
    write(folder, {"a": ECHO})
    with serving(folder, "--database", url_of(postgres_tables), "--workers", "2") as running:
        write(folder, {"a": ECHO, "b": ECHO})
        reload(running)
        running.logged("configuration reloaded")
        (number, pid) = re.findall(r"worker (\d) \(process (\d+)\) is ready", running.log)[0]
        os.kill(int(pid), signal.SIGKILL)
        running.logged(f"worker {number} (process")
        running.logged("is ready")
        assert all(names(running) == ["a", "b"] for _ in range(20))


def test_a_hangup_during_the_start_is_not_lost(folder: Path) -> None:
    write(folder, {"slow": {"python": "slow_start:agent"}})
    (folder / "slow_start.py").write_text(
        "import pathlib, os, signal\n"
        "pathlib.Path('babelgate.yaml').write_text('{agents: {a: {python: \"babelgate.gateway.demo:echo\"}}}')\n"
        "os.kill(os.getpid(), signal.SIGHUP)\n"
        "async def agent(text: str) -> str:\n    return text\n"
    )
    with serving(folder) as running:
        running.logged("configuration reloaded applied=2")
        assert names(running) == ["a"]


def test_a_reload_cannot_open_the_gateway_to_others(folder: Path) -> None:
    write(folder, {"a": ECHO}, keys={"alice": KEY}, host="0.0.0.0")
    with serving(folder) as running:
        write(folder, {"a": ECHO}, host="0.0.0.0")
        assert "configuration not reloaded: 0.0.0.0 can be reached by others and there are no API keys" in reload(
            running
        )
        assert httpx.get(f"{running.url}/acp/agents", timeout=BOUND).status_code == 401


async def until_configuration(running: Served, expected: str) -> None:
    """Wait until the member `configuration` of a node's /readyz, which compares the nodes' configurations, has this
    value."""
    async with httpx.AsyncClient(base_url=running.url, trust_env=False) as http:
        while True:
            if (await http.get("/readyz")).json()["configuration"] == expected:
                return
            await asyncio.sleep(0.05)


async def test_nodes_tell_of_different_configurations(folder: Path, postgres_tables: str) -> None:
    empty(postgres_tables)
    variables = {"BABELGATE_CLUSTER": "true", "BABELGATE_BLOBS": str(folder / "blobs")}
    write(folder, {"a": ECHO})
    arguments = ("--database", url_of(postgres_tables))
    with (
        serving(folder, *arguments, BABELGATE_NODE="one", **variables) as one,
        serving(folder, *arguments, BABELGATE_NODE="two", **variables) as two,
    ):
        await within(until_configuration(two, "ok"))
        write(folder, {"a": ECHO, "b": ECHO})
        reload(one)
        await within(until_configuration(one, "differs from two"))
        await within(until_configuration(two, "differs from one"))
        reload(two)
        await within(until_configuration(one, "ok"))
        await within(until_configuration(two, "ok"))


def test_the_administration_api_reloads_all_workers(folder: Path, postgres_tables: str) -> None:
    empty(postgres_tables)
    settings = {"keys": {"alice": KEY}, "access": [{"who": "key:alice", "allow": ["*"]}]}
    write(folder, {"a": ECHO}, **settings)
    with serving(folder, "--database", url_of(postgres_tables), "--workers", "2") as running:
        write(folder, {"a": ECHO, "b": ECHO}, **settings)
        answer = httpx.post(f"{running.url}/admin/reload", headers={"X-Api-Key": KEY}, timeout=BOUND)
        assert answer.status_code == 200, answer.text
        assert answer.json()["applied"] == ["agents.b"]
        running.logged("configuration reloaded applied=1")
        running.logged("configuration reloaded applied=1")
        assert all(names(running, **{"X-Api-Key": KEY}) == ["a", "b"] for _ in range(10))
