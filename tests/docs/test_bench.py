"""What docs/bench.md shows is what the command says of the files on that page; `…` stands for what differs from run to
run."""

import re
import shlex
from pathlib import Path

import pytest

from tests.docs.test_check import BLOCK, pattern
from tests.gateway.command import ROOT, babelgate

PAGE = (ROOT / "docs" / "bench.md").read_text(encoding="utf-8")
EXAMPLES = BLOCK.findall(PAGE)
FILES = re.findall(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
CODES = {"worse": 1, "small": 3}
"""By the folder in --out."""


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_examples_say_what_the_page_says(tmp_path: Path) -> None:
    assert len(EXAMPLES) >= 6
    for name, text in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    for command, shown in EXAMPLES:
        arguments = shlex.split(command)
        done = babelgate(tmp_path, *arguments, bound=120)
        said = done.stdout.rstrip("\n")
        assert re.fullmatch(pattern(shown.rstrip("\n")), said), f"{command}\n{said}\n{done.stderr}"
        expected = CODES.get(arguments[-1], 0) if "--out" in arguments else 0
        assert done.returncode == expected, f"{command}\n{done.stderr}"


def test_the_options_on_the_page_are_those_that_there_are(tmp_path: Path) -> None:
    known = babelgate(tmp_path, "bench", "--help").stdout
    named = set(re.findall(r"--[a-z][-a-z]+", PAGE)) - {"--accept"}
    assert {option for option in named if not re.search(rf"{option}\b", known)} == set()
