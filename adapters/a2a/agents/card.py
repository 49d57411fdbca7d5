"""AgentInfo → agent cards: pure 1.0, pure 0.3, and both in one document.

The merged card is what a URL without a version gives: clients of either generation find their fields in it and ignore
the rest. Every URL in it is built from the base URL that the gateway vouches for.
"""

import hashlib
from collections.abc import Set
from typing import Literal

from babelgate.adapters.kit.client.agent_name import legal_name
from babelgate.adapters.kit.extension import URI, params
from babelgate.canonical import AgentInfo
from babelgate.canonical.value import JsonObject

CardForm = Literal["merged", "1.0", "0.3"]

JSON_RPC, REST = "JSONRPC", "HTTP+JSON"
V1, V0_3 = "1.0", "0.3.0"
MINOR_0_3 = "0.3"
"""As 1.0 wants versions in cards: without a patch number (3.6.1)."""

_SCHEMES_0_3: dict[str, JsonObject] = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
}
_SCHEMES_1_0: dict[str, JsonObject] = {
    "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
    "apiKey": {"apiKeySecurityScheme": {"location": "header", "name": "X-Api-Key"}},
}


_EXTENSION: JsonObject = {
    "uri": URI,
    "description": "The records of the log, beside what A2A has words for.",
    "required": False,
    "params": params(),
}
"""Declaration of the Babelgate extension on a card of any version (AgentExtension)."""


def card(form: CardForm, agent: AgentInfo, base_url: str, *, keyed: bool) -> JsonObject:
    match form:
        case "1.0":
            return card_1_0(agent, base_url, keyed=keyed)
        case "0.3":
            return card_0_3(agent, base_url, keyed=keyed)
        case "merged":
            return merged_card(agent, base_url, keyed=keyed)


def versions_of(version: str) -> CardForm:
    """The form of card for a caller that names a version, or none."""
    # Specification 1.0, 3.6.2 takes nothing said for 0.3; but a card is asked for before anything is known of it.
    return "merged" if not version else "0.3" if version.startswith("0.") else "1.0"


def etag(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def _card_fields(agent: AgentInfo) -> JsonObject:
    own = _own(agent)
    called = own.get("name")
    described: JsonObject = {
        **(own.get("card") or {}),
        # Specification 1.0, 4.4.1: for people to read, so any words. One that is called otherwise here has its own.
        "name": called if isinstance(called, str) and legal_name(called) == agent.name else agent.name,
        # REQUIRED in both versions, so an agent that says nothing of itself is at least named.
        "description": agent.description or f"The agent {agent.name}.",
        "version": agent.version,
        "defaultInputModes": list(agent.input_types),
        "defaultOutputModes": list(agent.output_types),
        "skills": _skills(agent),
    }
    for ours, theirs in (("documentation_url", "documentationUrl"), ("icon_url", "iconUrl")):
        if isinstance(agent.metadata.get(ours), str):
            described[theirs] = agent.metadata[ours]
    if "provider" in own:
        described["provider"] = own["provider"]
    return described


def _own(agent: AgentInfo) -> JsonObject:
    """What the agent's own A2A server says of it, and canonical has no word for."""
    return agent.metadata.get("a2a") or {}


def _skills(agent: AgentInfo) -> list[JsonObject]:
    """An agent without skills has one: what it is for. Both versions require the list, and the tags of each skill."""
    if not agent.skills:
        described = agent.description or f"The agent {agent.name}."
        return [{"id": agent.name, "name": agent.name, "description": described, "tags": [agent.name]}]
    unknown: JsonObject = _own(agent).get("skills") or {}
    skills: list[JsonObject] = []
    for skill in agent.skills:
        encoded: JsonObject = {
            **(unknown.get(skill.id) or {}),
            "id": skill.id,
            "name": skill.name,
            "description": skill.description or skill.name,
            "tags": list(skill.tags) or [agent.name],
        }
        if skill.examples:
            encoded["examples"] = list(skill.examples)
        skills.append(encoded)
    return skills


def _url(agent: AgentInfo, base_url: str) -> str:
    return f"{base_url}/a2a/{agent.name}"


def _capabilities(agent: AgentInfo, more: JsonObject) -> JsonObject:
    """The gateway's own, and what the agent's server says of it that is true here, too (`interface.describe`)."""
    theirs: JsonObject = _own(agent).get("capabilities") or {}
    extensions = [_EXTENSION, *(theirs.get("extensions") or ())]
    return {**theirs, "streaming": True, "pushNotifications": True, **more, "extensions": extensions}


def relayed_extensions(agent: AgentInfo) -> Set[str]:
    """The URIs of those that the agent's own server has, and that a request may activate."""
    theirs: JsonObject = _own(agent).get("capabilities") or {}
    return {each["uri"] for each in theirs.get("extensions") or ()}


def _connection_1_0(agent: AgentInfo, base_url: str, *, keyed: bool) -> JsonObject:
    url = _url(agent, base_url)
    connection: JsonObject = {
        "supportedInterfaces": [
            {"url": url, "protocolBinding": binding, "protocolVersion": version}
            # Specification 1.0, 4.4.6: in the order of preference.
            for version in (V1, MINOR_0_3)
            for binding in (JSON_RPC, REST)
        ],
        "capabilities": _capabilities(agent, {"extendedAgentCard": keyed}),
    }
    if keyed:
        connection["securitySchemes"] = _SCHEMES_1_0
        # Any one of them is enough: the list is an OR (specification 1.0, 4.5).
        connection["securityRequirements"] = [{"schemes": {name: {"list": []}}} for name in _SCHEMES_1_0]
    return connection


def _connection_0_3(agent: AgentInfo, base_url: str, *, keyed: bool) -> JsonObject:
    url = _url(agent, base_url)
    connection: JsonObject = {
        "protocolVersion": V0_3,
        "url": url,
        "preferredTransport": JSON_RPC,
        # 5.6.2: the list should name the preferred transport too.
        "additionalInterfaces": [{"url": url, "transport": binding} for binding in (JSON_RPC, REST)],
        # Specification 0.3, 5.5.2; the last is gone in 1.0.
        "capabilities": _capabilities(agent, {"stateTransitionHistory": False}),
        "supportsAuthenticatedExtendedCard": keyed,
    }
    if keyed:
        connection["securitySchemes"] = _SCHEMES_0_3
        connection["security"] = [{name: []} for name in _SCHEMES_0_3]
    return connection


def card_1_0(agent: AgentInfo, base_url: str, *, keyed: bool) -> JsonObject:
    return {**_card_fields(agent), **_connection_1_0(agent, base_url, keyed=keyed)}


def card_0_3(agent: AgentInfo, base_url: str, *, keyed: bool) -> JsonObject:
    return {**_card_fields(agent), **_connection_0_3(agent, base_url, keyed=keyed)}


def merged_card(agent: AgentInfo, base_url: str, *, keyed: bool) -> JsonObject:
    """Both generations' fields. Where they share a name (capabilities, securitySchemes), its members are joined: the
    members themselves have different names."""
    old = _connection_0_3(agent, base_url, keyed=keyed)
    new = _connection_1_0(agent, base_url, keyed=keyed)
    # a2a-sdk 0.3.26 cannot read a card without `url`; 1.3.0 ignores what it does not know.
    merged = {**_card_fields(agent), **new, **old}
    merged["capabilities"] = {**new["capabilities"], **old["capabilities"]}
    if keyed:
        merged["securitySchemes"] = {name: {**_SCHEMES_0_3[name], **_SCHEMES_1_0[name]} for name in _SCHEMES_1_0}
    return merged
