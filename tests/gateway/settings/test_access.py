"""Tests of the settings of authorization: forms of rules, error texts and advice."""

from pathlib import Path
from typing import Final

import pytest

from babelgate.gateway.settings.access import scopes_of
from babelgate.gateway.settings.load import ConfigError, advise, load
from tests.gateway.settings.problems import problem

EXAMPLE: Final = """
keys: {ci: a-key-of-sixteen-letters}
issuers: {corp: {issuer: "https://login.example.com", audience: [gateway]}}
agents: {echo: {python: "m:f"}, dev-a: {python: "m:f"}, planner: {python: "m:f"}, finance-x: {python: "m:f"}}
access:
  - {who: "*", allow: [discover, read, cancel, answer]}
  - {who: "group:dev", agents: ["dev-*", echo], allow: [run, write]}
  - {who: "key:ci", agents: [planner], protocols: [a2a], allow: [run]}
  - {who: "scope:agents:run", allow: [run]}
  - {who: ["group:ops", "user:corp:alice"], allow: ["*"]}
  - {who: "group:contractors", agents: ["finance-*"], deny: ["*"]}
"""
OPERATIONS: Final = "discover, run, answer, read, cancel, write, delete, webhook, admin, or * for all"


def test_every_form_of_a_rule_is_valid(file: Path) -> None:
    file.write_text(EXAMPLE)
    rules = load(file).access
    assert [rule.who[0] for rule in rules][:3] == ["*", "group:dev", "key:ci"]
    assert rules[4].who == ("group:ops", "user:corp:alice")
    assert rules[1].has_agent("dev-b") and rules[1].has_agent("echo") and not rules[1].has_agent("planner")
    assert rules[0].has_all_agents and not rules[1].has_all_agents
    assert scopes_of(rules) == ["agents:run"]
    assert advise(file) == []


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        (
            "{who: a, allow: [run]}",
            "access, rule 2, who: allowed callers: *, key:NAME, user:ISSUER:SUBJECT",
        ),
        ("{who: 'user:alice', allow: [run]}", "access, rule 2, who: allowed callers: *, key:NAME"),
        ("{who: [], allow: [run]}", "access, rule 2, who: allowed callers: *, key:NAME"),
        ("{allow: [run]}", "access, rule 2, who: field required"),
        ("{who: '*', allow: [start]}", f"access, rule 2, allow: allowed operations: {OPERATIONS}"),
        ("{who: '*', deny: Run}", f"access, rule 2, deny: allowed operations: {OPERATIONS}"),
        ("{who: '*'}", "access, rule 2: needs allow or deny, with a list of operations"),
        ("{who: '*', allow: '*', agents: ['Dev *']}", "access, rule 2, agents: names of agents, or patterns with *"),
        ("{who: '*', allow: '*', protocols: [soap]}", "access, rule 2, protocols: allowed protocols: acp, a2a"),
        ("{who: '*', alow: run}", "access, rule 2, alow: there is no such key; there are who, agents, protocols"),
        ("run", "access, rule 2: a mapping of keys is expected: who, agents, protocols, allow, deny"),
    ],
)
def test_a_mistake_in_a_rule_names_its_number(file: Path, rule: str, line: str) -> None:
    assert problem(file, f"access:\n  - {{who: '*', allow: '*'}}\n  - {rule}").startswith(line)


def test_a_mistake_in_a_variable_names_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BABELGATE_ACCESS", '[{"who": "*", "allow": ["start"]}]')
    with pytest.raises(ConfigError, match="BABELGATE_ACCESS, rule 1, allow: allowed operations"):
        load()


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        ("{who: '*', agents: [echo, 'x-*'], allow: run}", "no agent matches x-*"),
        ("{who: 'key:cd', allow: run}", "keys has no entry for one of its callers of the form key:NAME"),
        ("{who: 'user:corb:x', allow: run}", "issuers has no entry for one of its callers of the form user:ISSUER:…"),
    ],
)
def test_a_rule_without_an_effect_gives_advice(file: Path, rule: str, line: str) -> None:
    file.write_text(f"{EXAMPLE}  - {rule}\n")
    assert advise(file) == [f"{file}: access, rule 7: {line}"]
