from typing import Any

import pytest

from babelgate.adapters.a2a.agents.card import card, card_0_3, card_1_0, etag, merged_card, versions_of
from babelgate.adapters.a2a.agents.interface import describe
from babelgate.adapters.kit.extension import URI, params
from babelgate.adapters.kit.server.caller import Authentication, Issuer
from babelgate.canonical import AgentInfo, Skill
from babelgate.canonical.value import JsonObject
from tests.adapters.a2a.far import card_1_0 as far_card
from tests.adapters.a2a.schema import check
from tests.difference import differences

NONE, KEYS = Authentication(), Authentication(accepts_keys=True)
CORP = Issuer("corp", "https://login.example.com", "https://login.example.com/.well-known/openid-configuration")
TOKENS, BOTH = Authentication(issuers=(CORP,)), Authentication(accepts_keys=True, issuers=(CORP,))
BASE = "https://agents.example.com"
PLAIN = AgentInfo(name="echo")
RICH = AgentInfo(
    name="weather",
    description="Knows the weather.",
    version="2.1.0",
    input_types=("text/plain", "image/*"),
    output_types=("application/json",),
    skills=(Skill(id="s", name="Forecast", tags=("rain",), examples=("Rain?",)), Skill(id="t", name="Now")),
    metadata={"documentation_url": "https://docs.example.com"},
)


@pytest.mark.parametrize("access", [NONE, KEYS, BOTH, TOKENS])
@pytest.mark.parametrize("agent", [PLAIN, RICH])
def test_cards_of_one_version_have_only_its_members(agent: AgentInfo, access: Authentication) -> None:
    check("card", "1.0", card_1_0(agent, BASE, access))
    check("card", "0.3", card_0_3(agent, BASE, access))


def test_merged_card_has_the_members_of_both_versions() -> None:
    merged = merged_card(RICH, BASE, KEYS)
    assert merged.keys() == card_1_0(RICH, BASE, KEYS).keys() | card_0_3(RICH, BASE, KEYS).keys()
    assert merged["url"] == f"{BASE}/a2a/weather"
    assert merged["protocolVersion"] == "0.3.0"
    assert merged["capabilities"]["extendedAgentCard"] is True
    assert merged["supportsAuthenticatedExtendedCard"] is True
    scheme: Any = merged["securitySchemes"]["bearer"]
    assert (scheme["type"], scheme["httpAuthSecurityScheme"]) == ("http", {"scheme": "Bearer"})


def test_card_lists_json_rpc_of_1_0_first() -> None:
    faces = card_1_0(PLAIN, BASE, NONE)["supportedInterfaces"]
    assert [(face["protocolVersion"], face["protocolBinding"]) for face in faces] == [
        ("1.0", "JSONRPC"),
        ("1.0", "HTTP+JSON"),
        ("0.3", "JSONRPC"),
        ("0.3", "HTTP+JSON"),
    ]


def test_every_url_starts_with_the_base_url() -> None:
    new, old = card_1_0(PLAIN, BASE, NONE), card_0_3(PLAIN, BASE, NONE)
    for face in [*new["supportedInterfaces"], *old["additionalInterfaces"], old]:
        assert face["url"] == f"{BASE}/a2a/echo"


def test_card_declares_no_security_without_keys() -> None:
    merged = merged_card(PLAIN, BASE, NONE)
    assert not {"security", "securitySchemes", "securityRequirements"} & merged.keys()
    assert merged["capabilities"]["extendedAgentCard"] is False
    assert merged["supportsAuthenticatedExtendedCard"] is False


def test_the_requirement_of_an_issuer_names_its_scopes() -> None:
    access = Authentication(accepts_keys=True, issuers=(CORP,), scopes=("agents:read", "agents:run"))
    scopes = ["agents:read", "agents:run"]
    assert card_1_0(PLAIN, BASE, access)["securityRequirements"] == [
        {"schemes": {"bearer": {"list": []}}},
        {"schemes": {"apiKey": {"list": []}}},
        {"schemes": {"openIdConnect-corp": {"list": scopes}}},
    ]
    assert card_0_3(PLAIN, BASE, access)["security"] == [
        {"bearer": []},
        {"apiKey": []},
        {"openIdConnect-corp": scopes},
    ]


def test_a_card_has_a_scheme_for_each_issuer() -> None:
    for card_of_version in (card_1_0, card_0_3, merged_card):
        card = card_of_version(PLAIN, BASE, BOTH)
        assert list(card["securitySchemes"]) == ["bearer", "apiKey", "openIdConnect-corp"]
        assert list(card_of_version(PLAIN, BASE, TOKENS)["securitySchemes"]) == ["bearer", "openIdConnect-corp"]
    new, old = card_1_0(PLAIN, BASE, BOTH), card_0_3(PLAIN, BASE, BOTH)
    url = {"openIdConnectUrl": CORP.discovery_url}
    assert new["securitySchemes"]["openIdConnect-corp"] == {"openIdConnectSecurityScheme": url}
    assert old["securitySchemes"]["openIdConnect-corp"] == {"type": "openIdConnect", **url}
    assert new["securityRequirements"][2] == {"schemes": {"openIdConnect-corp": {"list": []}}}
    assert old["security"][2] == {"openIdConnect-corp": []}


def test_version_of_the_caller_selects_the_card() -> None:
    assert [versions_of(version) for version in ("", "0.3", "0.2.5", "1.0", "1.1")] == [
        "merged",
        "0.3",
        "0.3",
        "1.0",
        "1.0",
    ]


def test_card_relays_extensions_that_work_through_the_gateway() -> None:
    relayed: list[JsonObject] = [
        {"uri": "https://a2a-extensions.agentstack.beeai.dev/ui/trajectory/v1", "required": False},
        {"uri": "https://example.com/x", "description": "Any", "params": {"n": [1]}},
        {"uri": "https://example.com/needed", "required": True},
    ]
    dropped: list[Any] = [
        {"uri": URI, "params": {"max_bytes": 1}},
        {"uri": "https://langchain.com/a2a/extensions/history-scope/v1"},
        {"uri": "https://example.com/with\r\nline: feed"},
        {"uri": "https://example.com/one,https://example.com/two"},
        {"uri": "https://example.com/" + "x" * 500},
        {"uri": "https://a2a-extensions.agentstack.beeai.dev/services/llm/v1"},
        {"uri": "https://a2a-extensions.agentstack.beeai.dev/auth/secrets/v1"},
        {"uri": 7},
        "https://example.com/text",
    ]
    upstream = {
        "streaming": False,
        "stateTransitionHistory": True,
        "x-more": {"k": 1},
        "extensions": [*dropped, *relayed],
    }
    agent = describe({"name": "far", "url": "http://far", "capabilities": upstream})
    for make_card in (card_1_0, card_0_3, merged_card):
        capabilities = make_card(agent, BASE, NONE)["capabilities"]
        gateway_extension, *others = capabilities["extensions"]
        assert (gateway_extension["uri"], gateway_extension["params"]) == (URI, params())
        assert others == relayed
        assert (capabilities["x-more"], capabilities["streaming"]) == ({"k": 1}, True)
        assert capabilities.get("stateTransitionHistory") is not True


@pytest.mark.parametrize("capabilities", [7, [], {"extensions": 7}, {"extensions": {}}])
def test_invalid_capabilities_are_ignored(capabilities: Any) -> None:
    agent = describe({"name": "far", "url": "http://far", "capabilities": capabilities})
    assert card_1_0(agent, BASE, NONE) == card_1_0(describe({"name": "far", "url": "u"}), BASE, NONE)


def test_an_etag_changes_with_the_card() -> None:
    assert etag(b"a") == etag(b"a") != etag(b"b")


# Members of another server's card

UNKNOWN = {"k": [1, "ü", None]}
"""A member that no version of the protocol has."""

CARD: dict[str, Any] = far_card(
    "http://far",
    provider={"organization": "Far", "url": "http://far.example", "x-provider": UNKNOWN},
    documentationUrl="http://far.example/docs",
    iconUrl="http://far.example/icon",
    skills=[
        {
            "id": "echo",
            "name": "Echo",
            "description": "Says it again.",
            "tags": ["demo"],
            "examples": ["Hi"],
            "inputModes": ["text/plain"],
            "outputModes": ["text/plain"],
            "x-skill": UNKNOWN,
        }
    ],
    **{"x-card": UNKNOWN},
)
CONNECTION = {
    "supportedInterfaces": "how the gateway is called",
    "capabilities": "what the gateway can",
    "signatures": "of another document",
    "securitySchemes": "the gateway's keys",
    "securityRequirements": "the gateway's keys",
}


def test_card_relays_all_members_of_the_upstream_card() -> None:
    relayed = card("1.0", describe(CARD), "http://gateway", NONE)
    found = list(differences(CARD, relayed))
    assert [each for each in found if each[1:].partition(".")[0].partition("[")[0] not in CONNECTION] == []


def test_large_unknown_members_are_not_relayed() -> None:
    relayed = card("1.0", describe({**CARD, "x-card": "x" * 70_000}), "http://gateway", NONE)
    assert "x-card" not in relayed


def test_renamed_agent_has_its_new_name_on_the_card() -> None:
    relayed = card("1.0", describe(CARD).replace(name="other"), "http://gateway", NONE)
    assert relayed["name"] == "other"
