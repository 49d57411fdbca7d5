"""Promises of docs/security.md name tests that exist."""

import re

from tests.gateway.command import ROOT


def test_each_promise_names_an_existing_test() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    section = page.partition("## What is promised\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 10
    for row in rows:
        (test,) = re.findall(r"\| `(tests/[\w/]+\.py)` \|$", row)
        assert (ROOT / test).is_file(), test
