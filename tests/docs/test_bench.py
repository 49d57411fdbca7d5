"""Examples of docs/bench.md: the command prints what the page shows for the files on that page.

`…` represents parts that differ from run to run.
"""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.test_check import BLOCK, pattern
from tests.gateway.command import ROOT, babelgate

PAGE = (ROOT / "docs" / "bench.md").read_text(encoding="utf-8")
EXAMPLES = BLOCK.findall(PAGE)
FILES = re.findall(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
CODES = {"worse": 1, "small": 3}
"""Exit codes by the folder in --out."""


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_examples_print_what_the_page_shows(tmp_path: Path) -> None:
    assert len(EXAMPLES) >= 6
    for name, text in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    for command, expected_output in EXAMPLES:
        arguments = shlex.split(command)
        done = babelgate(tmp_path, *arguments, bound=120)
        output = done.stdout.rstrip("\n")
        assert re.fullmatch(pattern(expected_output.rstrip("\n")), output), f"{command}\n{output}\n{done.stderr}"
        expected = CODES.get(arguments[-1], 0) if "--out" in arguments else 0
        assert done.returncode == expected, f"{command}\n{done.stderr}"


def test_the_options_on_the_page_exist(tmp_path: Path) -> None:
    help_text = babelgate(tmp_path, "bench", "--help").stdout
    named = set(re.findall(r"--[a-z][-a-z]+", PAGE)) - {"--accept"}
    assert {option for option in named if not re.search(rf"{option}\b", help_text)} == set()


def test_the_workflow_uses_existing_options_and_a_baseline(tmp_path: Path) -> None:
    workflow: Any = yaml.safe_load((ROOT / "docs" / "bench-workflow.yml").read_text(encoding="utf-8"))
    steps = workflow["jobs"]["bench"]["steps"]
    (command,) = [step["run"] for step in steps if step.get("run", "").startswith("babelgate bench")]
    options = set(re.findall(r"--[a-z][-a-z]+", command))
    assert "--baseline" in options
    help_text = babelgate(tmp_path, "bench", "--help").stdout
    assert {option for option in options if not re.search(rf"{option}\b", help_text)} == set()
    # The files that a run on main saves are those that later runs restore.
    (restored,) = [step["with"] for step in steps if "cache/restore" in step.get("uses", "")]
    (saved,) = [step["with"] for step in steps if "cache/save" in step.get("uses", "")]
    assert restored["path"] == saved["path"]
    assert saved["key"].startswith(restored["restore-keys"])
    assert f"{saved['path']}/result.json" in command
