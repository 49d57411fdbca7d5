"""The command on the page about OpenAPI prints what the page shows."""

import re
from pathlib import Path

from tests.docs.test_check import pattern
from tests.docs.test_readme import blocks, run
from tests.gateway.command import ROOT, served


def test_the_command_of_the_page_prints_its_output(tmp_path: Path) -> None:
    (example,) = blocks((ROOT / "docs" / "openapi.md").read_text(encoding="utf-8"), "console")
    command, _, expected = example.removeprefix("$ ").partition("\n")
    with served(tmp_path) as gateway:
        output = run(command, tmp_path, gateway)
    assert re.fullmatch(pattern(expected), output), output[:300]
