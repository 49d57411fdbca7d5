"""docs/conformance/kits.md names existing requirements, with a reason for each different verdict."""

import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import pytest

from babelgate.conformance.requirement import load_set, set_names
from docs.kits import outcome, pages, recorded
from docs.traceability import recorded as runs

every_kit = pytest.mark.parametrize("kit", recorded(), ids=lambda each: each["kit"])


@every_kit
def test_every_counterpart_is_a_requirement(kit: Mapping[str, Any]) -> None:
    names = {each.name for each in load_set(kit["set"]).requirements}
    assert {name for counterparts in kit["tests"].values() for name in counterparts} <= names


def test_every_requirement_that_the_page_names_exists() -> None:
    (text,) = pages(runs()).values()
    named = set(re.findall(rf"`((?:{'|'.join(map(re.escape, set_names()))})/[^`]+)`", text))
    assert named
    assert named <= {each.id for name in set_names() for each in load_set(name).requirements}


@every_kit
def test_exactly_the_different_verdicts_have_a_reason(kit: Mapping[str, Any]) -> None:
    for server, run in kit.get("ran", {}).items():
        assert set(run["found"]) == set(kit["tests"])
        verdicts = runs()[kit["set"]][server]
        outcomes = {test: outcome(verdict, kit["tests"][test], verdicts) for test, verdict in run["found"].items()}
        assert {test for test, judged in outcomes.items() if judged == "differs"} == set(run["why"])


@every_kit
def test_violations_found_by_a_kit_are_scripted_ones(kit: Mapping[str, Any]) -> None:
    if "scripted" not in kit:
        return
    module = import_module(f"tests.conformance.servers.{re.sub('[-.]', '_', kit['set'])}")
    names = {each.name for each in module.SERVER.violations}
    violations = kit["scripted"]["violations"]
    assert violations.keys() <= names
    assert kit["scripted"]["tried"] <= len(names)
    assert {test for tests in violations.values() for test in tests} <= kit["tests"].keys()
    assert kit["scripted"]["right"].keys() <= kit["tests"].keys()
