"""What docs/check.md shows is what the command says; `…` stands for what differs from run to run."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.gateway.command import ROOT, babelgate, served

PAGE = ROOT / "docs" / "check.md"
BLOCK = re.compile(r"^```console\n\$ babelgate (.*?)\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = BLOCK.findall(PAGE.read_text(encoding="utf-8"))


def pattern(shown: str) -> str:
    """A line of `…` alone stands for any lines, one within a line for the rest of it or a part."""
    lines = ["(?s:.*)" if line == "…" else re.escape(line).replace("…", ".*") for line in shown.splitlines()]
    return "\n".join(lines)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_examples_say_what_the_page_says(tmp_path: Path) -> None:
    assert len(EXAMPLES) >= 3
    with served(tmp_path, BABELGATE_NETWORK='{"allow": ["127.0.0.0/8"]}') as gateway:
        for command, shown in EXAMPLES:
            arguments = [each.replace("http://127.0.0.1:8000", gateway.url) for each in shlex.split(command)]
            done = babelgate(tmp_path, *arguments, bound=120)
            said = done.stdout.replace(gateway.url, "http://127.0.0.1:8000").rstrip("\n")
            assert re.fullmatch(pattern(shown), said), f"{command}\n{said}\n{done.stderr}"


def test_the_workflow_uses_options_that_there_are(tmp_path: Path) -> None:
    workflow: Any = yaml.safe_load((ROOT / "docs" / "check-workflow.yml").read_text(encoding="utf-8"))
    runs = [step.get("run", "") for step in workflow["jobs"]["check"]["steps"]]
    (command,) = [run for run in runs if run.startswith("babelgate check")]
    known = babelgate(tmp_path, "check", "--help").stdout
    for option in re.findall(r"--[a-z]+", command):
        assert option in known
