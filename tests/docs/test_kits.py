"""docs/conformance/kits.md speaks of what there is, and says why wherever the verdicts differ."""

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
def test_there_is_a_reason_wherever_the_verdicts_differ_and_nowhere_else(kit: Mapping[str, Any]) -> None:
    for server, run in kit.get("ran", {}).items():
        assert set(run["found"]) == set(kit["tests"])
        verdicts = runs()[kit["set"]][server]
        outcomes = {test: outcome(theirs, kit["tests"][test], verdicts) for test, theirs in run["found"].items()}
        assert {test for test, judged in outcomes.items() if judged == "differs"} == set(run["why"])


@every_kit
def test_a_violation_that_a_kit_sees_is_one_of_the_scripted_server(kit: Mapping[str, Any]) -> None:
    if "scripted" not in kit:
        return
    module = import_module(f"tests.conformance.servers.{re.sub('[-.]', '_', kit['set'])}")
    names = {each.name for each in module.SERVER.violations}
    seen = kit["scripted"]["violations"]
    assert seen.keys() <= names
    assert kit["scripted"]["tried"] <= len(names)
    assert {test for tests in seen.values() for test in tests} <= kit["tests"].keys()
    assert kit["scripted"]["right"].keys() <= kit["tests"].keys()
