"""Examples of docs/administration.md: a gateway logs what the page shows."""

import re
import signal
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml

from babelgate.gateway.settings.changes import NEEDS_RESTART
from babelgate.gateway.settings.model import Settings
from tests.docs.test_check import pattern
from tests.gateway.command import ROOT, served

PAGE: Final = (ROOT / "docs" / "administration.md").read_text(encoding="utf-8")
RELOAD: Final = PAGE.partition("\n## Reload\n")[2].partition("\n## ")[0]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", RELOAD, re.MULTILINE | re.DOTALL)


def test_a_reload_logs_what_the_page_shows(tmp_path: Path) -> None:
    secret = tmp_path / "alice"
    secret.write_text("alice-0123456789\n")
    before, after = (each.replace("/run/secrets/alice", str(secret)) for each in blocks("yaml"))
    applied, refused = (each.partition("\n")[2].rstrip("\n") for each in blocks("console"))
    config = tmp_path / "babelgate.yaml"
    config.write_text(before)
    with served(tmp_path) as gateway:
        for text, expected in ((after, applied), (after.replace("run: 60", "run: soon"), refused)):
            config.write_text(text)
            gateway.process.send_signal(signal.SIGHUP)
            lines = [gateway.logged("babelgate.reload").rstrip("\n") for _ in expected.splitlines()]
            assert re.fullmatch(pattern(expected), "\n".join(lines)), lines


def test_the_page_lists_the_keys_that_need_a_restart() -> None:
    (listed,) = re.findall(r"These keys need a restart: (.*?)\. ", RELOAD, re.DOTALL)
    assert {*re.findall(r"`([\w.]+)`", listed)} == NEEDS_RESTART


def test_the_administration_api_answers_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the commands of the sections after the reload in order, on one gateway."""
    api = PAGE.partition("\n## Operators\n")[2]
    config, example = re.findall(r"^```yaml\n(.*?)^```$", api, re.MULTILINE | re.DOTALL)
    assert Settings.model_validate(yaml.safe_load(example)).admin.agent_providers
    (tmp_path / "babelgate.yaml").write_text(config)
    keys = {"OPS_KEY": "ops-0123456789", "ALICE_KEY": "alice-0123456789"}
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    commands = re.findall(r"^\$ (curl .*)\n(.*)$", api, re.MULTILINE)
    assert len(commands) == 10
    with served(tmp_path) as gateway:
        for command, expected in commands:
            line = command.replace("localhost:8080", gateway.url)
            answer = subprocess.run(line, shell=True, capture_output=True, text=True, check=True, timeout=60).stdout
            assert re.fullmatch(pattern(expected), answer.strip()), f"{command}\n{answer}"
