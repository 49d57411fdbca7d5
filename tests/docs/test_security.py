"""Promises of docs/security.md name tests that exist."""

import re

import pytest
import yaml

from babelgate.adapters import ADAPTERS
from babelgate.canonical import FaultError, Principal
from babelgate.canonical.grant import GRANT_LEVELS
from babelgate.canonical.principal import OPERATIONS
from babelgate.gateway.access.rules import policy_of
from babelgate.gateway.settings.model import Settings
from tests.gateway.command import ROOT


def test_each_promise_names_an_existing_test() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    section = page.partition("## What is promised\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 10
    for row in rows:
        (test,) = re.findall(r"\| `(tests/[\w/]+\.py)` \|$", row)
        assert (ROOT / test).is_file(), test


def section(title: str) -> str:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    return page.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_the_refusal_of_the_page_follows_from_its_rules() -> None:
    text = section("Access rules")
    rules = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    words = text.partition("```text\n")[2].partition("```")[0].strip()
    ci = Principal(subject="key:ci", owner="ci")
    with pytest.raises(FaultError) as raised:
        policy_of(Settings.model_validate(rules).access).check(ci, "run", "echo", "a2a")
    assert raised.value.fault.message == words


def test_the_page_has_every_operation_protocol_and_level() -> None:
    text = section("Access rules")
    assert re.findall(r"^\| `(\w+)` \| [a-z]", text.partition("| operation |")[2], re.MULTILINE) == list(OPERATIONS)
    assert all(f"`{adapter.name}`" in text for adapter in ADAPTERS)
    assert all(f"`{level}`" in section("Shared threads") for level in GRANT_LEVELS)
