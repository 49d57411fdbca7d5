"""Promises of docs/security.md name tests that exist, and its commands print what the page shows."""

import os
import re
from pathlib import Path

import pytest
import yaml

from babelgate.adapters import ADAPTERS
from babelgate.canonical import FaultError, Principal
from babelgate.canonical.grant import GRANT_LEVELS
from babelgate.canonical.principal import OPERATIONS
from babelgate.gateway.access.rules import policy_of
from babelgate.gateway.settings.model import Settings
from tests.docs.test_authentication import check_commands
from tests.gateway.agents.test_card_checks import REFUSED
from tests.gateway.command import ROOT, served
from tests.interop.peers import peer_python
from tests.serving import listen


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


def subsection(title: str) -> str:
    return section("Signed cards").partition(f"### {title}\n")[2].partition("\n### ")[0]


@pytest.mark.timeout(180)
def test_examples_of_signed_cards_match_the_page(tmp_path: Path) -> None:
    verify = subsection("Verify a card")
    (tmp_path / "verify.py").write_text(verify.partition("```python\n")[2].partition("```")[0])
    # `python` is one that has the official SDK.
    variables = {"PATH": f"{peer_python('a2a-signing').parent}{os.pathsep}{os.environ['PATH']}"}
    with listen() as listener:
        port = listener.getsockname()[1]
    urls = {"http://127.0.0.1:8000": f"http://127.0.0.1:{port}"}  # the URL in the card, too
    check_commands(subsection("Sign the cards"), tmp_path, urls, variables)
    with served(tmp_path, "--port", str(port)):
        check_commands(verify, tmp_path, urls, variables)


def test_the_settings_of_verified_cards_are_valid() -> None:
    text = subsection("Verify the cards of agents")
    settings = Settings.model_validate(yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0]))
    assert settings.agents["planner"].card.verify == "require"
    assert f"`{REFUSED}…`" in text
