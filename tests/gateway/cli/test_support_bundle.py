"""Tests of `babelgate support-bundle`: its parts, and what it must not contain."""

import json
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from babelgate.gateway.storage.database import HEAD
from tests.gateway.command import babelgate, served
from tests.gateway.settings.test_redaction import SECRETS, write_planted
from tests.gateway.telemetry.scrape import Metered

PARTS = ["versions.json", "limits.json", "settings.yaml", "database.json", "readyz.json", "metrics.txt", "stacks.txt"]
KEY = "alice-0123456789abcdef"
BODY = "a private message of a caller"


def contents(file: Path) -> dict[str, str]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_a_running_gateway_adds_health_metrics_and_stacks(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"keys": {"alice": KEY}, "telemetry": {"metrics": {"listen": "127.0.0.1:0"}}}
    (tmp_path / "babelgate.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    log = tmp_path / "babelgate.log"
    log.write_text("".join(f"line {number} key={KEY}\n" for number in range(2500)), encoding="utf-8")
    with served(tmp_path) as gateway:
        metered = Metered(gateway)
        listen = metered.url.split("/")[2]
        body = {"model": "echo", "messages": [{"role": "user", "content": BODY}]}
        response = httpx.post(f"{gateway.url}/v1/chat/completions", json=body, headers={"X-Api-Key": KEY})
        assert BODY in response.text
        arguments = ("--out", "bundle.zip", "--log", "babelgate.log", "--url", gateway.url, "--key", KEY)
        done = babelgate(tmp_path, "support-bundle", *arguments, BABELGATE_TELEMETRY__METRICS__LISTEN=listen)
        metered.close()
    assert (done.returncode, done.stderr) == (0, "")
    found = contents(tmp_path / "bundle.zip")
    assert done.stdout == f"bundle.zip: {', '.join([*PARTS, 'log.txt', 'manifest.json'])}\n"
    assert json.loads(found["manifest.json"])["missing"] == {}
    database = json.loads(found["database.json"])
    assert (database["revision"], database["expected"], database["rows"]["run"]) == (HEAD, HEAD, 1)
    assert json.loads(found["readyz.json"])["journal"] == "ok"
    assert "babelgate_runs_total" in found["metrics.txt"]
    assert "Thread MainThread" in found["stacks.txt"]
    assert "Task sampler of metrics" in found["stacks.txt"]
    assert json.loads(found["versions.json"])["packages"]["litestar"]
    assert found["log.txt"].splitlines() == [f"line {number} key=***" for number in range(500, 2500)]
    for name, text in found.items():
        assert KEY not in text, name
        assert BODY not in text, name
    assert (tmp_path / "bundle.zip").stat().st_mode & 0o777 == 0o600


def test_a_bundle_contains_none_of_the_planted_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_planted(tmp_path, monkeypatch)
    lines = [f"reason={secret}" for name, secret in SECRETS.items() if name != "option"]
    (tmp_path / "babelgate.log").write_text("\n".join(lines), encoding="utf-8")
    done = babelgate(
        tmp_path, "support-bundle", "--out", "bundle.zip", "--log", "babelgate.log", PLANTED="variable-0123456789"
    )
    assert done.returncode == 0
    found = contents(tmp_path / "bundle.zip")
    texts = {**found, "stdout": done.stdout, "stderr": done.stderr}
    assert [(part, name) for part in texts for name, secret in SECRETS.items() if secret in texts[part]] == []
    missing = json.loads(found["manifest.json"])["missing"]
    assert set(missing) == {"database.json", "readyz.json", "metrics.txt", "stacks.txt"}
    assert missing["metrics.txt"] == "telemetry.metrics.listen is not set"


def test_an_invalid_configuration_is_described_by_its_errors(tmp_path: Path) -> None:
    (tmp_path / "babelgate.yaml").write_text("port: many\n", encoding="utf-8")
    (tmp_path / "babelgate.log").write_text(f"key={KEY}\n", encoding="utf-8")
    done = babelgate(tmp_path, "support-bundle", "--out", "bundle.zip", "--log", "babelgate.log")
    assert done.returncode == 0
    found = contents(tmp_path / "bundle.zip")
    assert "log.txt" not in found  # the secrets to remove from it are not known
    assert found["settings.yaml"].startswith("babelgate.yaml: port: ")
    why = f"the configuration could not be read: {found['settings.yaml'].strip()}"
    assert json.loads(found["manifest.json"])["missing"]["database.json"] == why
    assert f"warning: {why}" in done.stderr


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "bundle.zip").write_text("precious", encoding="utf-8")
    done = babelgate(tmp_path, "support-bundle", "--out", "bundle.zip")
    assert (done.returncode, done.stderr) == (1, "babelgate: bundle.zip: the file exists already; give another name\n")
    assert (tmp_path / "bundle.zip").read_text() == "precious"
    done = babelgate(tmp_path, "support-bundle", "--out", "missing/bundle.zip")
    assert (done.returncode, done.stderr) == (
        1,
        "babelgate: missing/bundle.zip: it cannot be written: No such file or directory\n",
    )
