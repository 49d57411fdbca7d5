"""Agreement between the published matrix of pairs and the pair suite."""

import re

import pytest

from babelgate.adapters import ADAPTERS, UPSTREAMS
from babelgate.canonical import Feature
from docs.generate import ROOT
from docs.pairing import (
    AGENTS,
    EXTENDED_AGENTS,
    EXTENDED_SERVERS,
    PLAIN_AGENTS,
    SERVERS,
    SUPPLIED,
    Cell,
    cell,
    count,
)
from tests.pairs import test_pairs
from tests.pairs.house import CALLERS, HOUSES
from tests.pairs.scenario import SCENARIOS, lost
from tests.skip import listed

SUITE = "tests/pairs/test_pairs.py"
HEADING = re.compile(r"^(docs/[\w/-]+\.md), (.+)$")


def every_cell() -> list[tuple[str, str, Feature, Cell]]:
    return [
        (kind, protocol, feature, cell(agent, server, feature))
        for kind, agent in AGENTS.items()
        for protocol, server in SERVERS.items()
        for feature in Feature
    ]


def test_the_suite_skips_exactly_what_the_matrix_calls_lost(accept: bool) -> None:
    if accept:  # the list is rewritten from this run
        return
    expected = {
        f"{SUITE}::{name}[{caller.name}-{house}]": without.why
        for name, scenario in SCENARIOS.items()
        for house, kind in HOUSES.items()
        if kind.has(scenario.agent)
        for caller in kind.callers
        if (without := lost(kind.side, caller, scenario.features)) is not None
    }
    assert {test: why for test, why in listed().items() if test.startswith(SUITE)} == expected


def test_every_test_of_the_suite_is_a_scenario() -> None:
    assert SCENARIOS.keys() == {name for name in vars(test_pairs) if name.startswith("test_")}


def test_every_protocol_has_a_caller_and_a_house() -> None:
    assert {caller.speaks for caller in CALLERS} == SERVERS.keys()
    assert {kind.agent for kind in HOUSES.values()} == AGENTS.keys()
    protocols = {upstream.protocol for upstream in UPSTREAMS}
    plain = {kind.removesuffix("-extended") for kind in AGENTS}
    assert protocols == {kind.partition("-")[0] if kind.startswith("a2a") else kind for kind in plain} - {
        "python",
        "graph",
    }
    assert sum(len(adapter.carries) for adapter in ADAPTERS) == len(SERVERS)


def test_a_scenario_shows_each_feature() -> None:
    features = {feature for each in SCENARIOS.values() for feature in (*each.features, *each.shows)}
    assert features == set(Feature)


def test_each_loss_has_a_reason_and_a_source() -> None:
    for kind, protocol, feature, each in every_cell():
        assert (each.level == "full") == (not each.losses), (kind, protocol, feature)
        assert all(carry.how and carry.source for _, carry in each.losses), (kind, protocol, feature)


@pytest.mark.parametrize("side", ["AGENTS", "SUPPLIED"])
def test_every_heading_that_a_reason_cites_exists(side: str) -> None:
    carries = [carry for agent in AGENTS.values() for carry in agent.carries.values()]
    for carry in carries if side == "AGENTS" else SUPPLIED.values():
        if cited := HEADING.match(carry.source):
            page = (ROOT / cited.group(1)).read_text(encoding="utf-8")
            assert re.search(rf"^#+ {re.escape(cited.group(2))}$", page, re.MULTILINE), carry.source


def test_the_number_of_lossless_cells_does_not_decrease() -> None:
    plain, extended = count(PLAIN_AGENTS, SERVERS), count(EXTENDED_AGENTS, EXTENDED_SERVERS)
    assert sum(plain.values()) == len(PLAIN_AGENTS) * len(SERVERS) * len(Feature)
    assert sum(extended.values()) == len(EXTENDED_AGENTS) * len(EXTENDED_SERVERS) * len(Feature)
    assert plain["full"] >= 0.5 * sum(plain.values())
    assert extended["full"] >= 0.9 * sum(extended.values())
    assert extended["lossy"] <= 0.08 * sum(extended.values())


def test_each_extended_protocol_is_extended_on_both_sides() -> None:
    """Check the extension on both sides of each protocol. The two versions of A2A count as one kind of agents."""
    extended = {
        name
        for name, (adapter, version) in zip(SERVERS, ((a, v) for a in ADAPTERS for v in a.carries), strict=True)
        if version in adapter.extended
    }
    assert {name for name in SERVERS if EXTENDED_SERVERS[name] is not SERVERS[name]} == extended
    behind = {name.removesuffix("-extended") for name in EXTENDED_AGENTS} - {"python", "graph"}
    assert {name.partition("-")[0] if name.startswith(("a2a", "openai")) else name for name in extended} - {
        "mcp"
    } == behind


def test_a_dropped_feature_arrives_only_if_the_gateway_adds_it() -> None:
    for kind, protocol, feature, each in every_cell():
        if AGENTS[kind].carries[feature].level == "dropped" and feature is not Feature.REATTACH:
            assert each.level == "dropped" or SUPPLIED[feature] in {carry for _, carry in each.losses}, protocol
