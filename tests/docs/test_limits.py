"""Commands of docs/limits.md print what the page shows, on one gateway with the page's configuration and agent."""

import os
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.docs.test_check import pattern
from tests.gateway.command import BOUND, ROOT, served

PAGE: Final = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
KEYS: Final = {"CI_KEY": "ci-0123456789abcdef", "OPS_KEY": "ops-0123456789abcdef"}


def block(language: str) -> str:
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return text


def test_the_commands_print_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "planner.py").write_text(block("python"))
    (tmp_path / "babelgate.yaml").write_text(block("yaml"))
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    script, expected = list[str](), list[str]()
    for text in re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
            script += [command, "echo; echo ----"]
            expected.append(output.strip())
    assert len(expected) >= 10
    with served(tmp_path) as gateway:
        lines = "\n".join(script).replace("localhost:8080", gateway.url)
        done = subprocess.run(
            ["bash", "-c", lines], capture_output=True, text=True, timeout=BOUND, check=True, env={**os.environ, **KEYS}
        )
    outputs = [each.strip() for each in done.stdout.split("----\n")[:-1]]
    assert len(outputs) == len(expected)
    for actual, wanted in zip(outputs, expected, strict=True):
        assert re.fullmatch(pattern(wanted), actual), f"{wanted}\n{actual}"
