"""Examples of docs/check.md: the command prints what the page shows.

`…` represents parts that differ from run to run.
"""

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


def pattern(text: str) -> str:
    """Return a pattern for the text.

    A line of `…` alone matches any lines; within a line it matches the rest or a part of it.
    """
    lines = ["(?s:.*)" if line == "…" else re.escape(line).replace("…", ".*") for line in text.splitlines()]
    return "\n".join(lines)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_examples_print_what_the_page_shows(tmp_path: Path) -> None:
    assert len(EXAMPLES) >= 3
    with served(tmp_path, BABELGATE_NETWORK='{"allow": ["127.0.0.0/8"]}') as gateway:
        for command, expected in EXAMPLES:
            arguments = [each.replace("http://127.0.0.1:8000", gateway.url) for each in shlex.split(command)]
            done = babelgate(tmp_path, *arguments, bound=120)
            output = done.stdout.replace(gateway.url, "http://127.0.0.1:8000").rstrip("\n")
            assert re.fullmatch(pattern(expected), output), f"{command}\n{output}\n{done.stderr}"


def test_the_workflow_uses_existing_options(tmp_path: Path) -> None:
    workflow: Any = yaml.safe_load((ROOT / "docs" / "check-workflow.yml").read_text(encoding="utf-8"))
    runs = [step.get("run", "") for step in workflow["jobs"]["check"]["steps"]]
    (command,) = [run for run in runs if run.startswith("babelgate check")]
    help_text = babelgate(tmp_path, "check", "--help").stdout
    for option in re.findall(r"--[a-z]+", command):
        assert option in help_text
