"""Agent cards of the gateway, created from `AgentInfo`: in the form of 1.0, of 0.3, or of both in one document.

A request without a version gets the merged card: clients of either version find their fields in it, and ignore the
others. Every URL in a card begins with the gateway's own base URL.
"""

import hashlib
from collections.abc import Set
from typing import Literal

from babelgate.adapters.kit.client.agent_name import legal_name
from babelgate.adapters.kit.extension import URI, params
from babelgate.adapters.kit.server.caller import Authentication
from babelgate.canonical import AgentInfo
from babelgate.canonical.value import JsonObject

CardForm = Literal["merged", "1.0", "0.3"]

JSON_RPC, REST, GRPC = "JSONRPC", "HTTP+JSON", "GRPC"
V1, V0_3 = "1.0", "0.3.0"
MINOR_0_3 = "0.3"
"""Version number of 0.3 in a card of 1.0, where version numbers have no patch number (3.6.1)."""

_BEARER, _API_KEY, _ISSUER = "bearer", "apiKey", "openIdConnect"
"""Names of the security schemes in a card. Clients find their credentials by these names. The scheme of an issuer of
tokens has the issuer's name, too: `openIdConnect-<name>`."""

_EXTENSION: JsonObject = {
    "uri": URI,
    "description": "The records of the log, beside what A2A has words for.",
    "required": False,
    "params": params(),
}
"""Declaration of the Babelgate extension on a card of any version (AgentExtension)."""


def card(
    form: CardForm, agent: AgentInfo, base_url: str, access: Authentication, rpc_address: str | None = None
) -> JsonObject:
    """Return the card of an agent in one form. `rpc_address` is the host and port of the gRPC server; None if there is
    none."""
    match form:
        case "1.0":
            return card_1_0(agent, base_url, access, rpc_address)
        case "0.3":
            return card_0_3(agent, base_url, access)
        case "merged":
            return merged_card(agent, base_url, access, rpc_address)


def versions_of(version: str) -> CardForm:
    """Return the form of the card for the version that the caller requests. An empty `version` selects the merged
    card."""
    # By specification 1.0, 3.6.2, no version means 0.3. But a client gets the card before it knows any version.
    return "merged" if not version else "0.3" if version.startswith("0.") else "1.0"


def etag(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def _card_fields(agent: AgentInfo) -> JsonObject:
    upstream = _upstream_card(agent)
    title = upstream.get("name")
    fields: JsonObject = {
        **(upstream.get("card") or {}),
        # Specification 1.0, 4.4.1: a name for people. An agent with another name in the gateway is shown by that.
        "name": title if isinstance(title, str) and legal_name(title) == agent.name else agent.name,
        # REQUIRED in both versions: an agent without a description has at least its name there.
        "description": agent.description or f"The agent {agent.name}.",
        "version": agent.version or "1.0.0",
        "defaultInputModes": list(agent.input_types) or ["text/plain"],
        "defaultOutputModes": list(agent.output_types) or ["text/plain"],
        "skills": _skills(agent),
    }
    for key, name in (("documentation_url", "documentationUrl"), ("icon_url", "iconUrl")):
        if isinstance(agent.metadata.get(key), str):
            fields[name] = agent.metadata[key]
    if "provider" in upstream:
        fields["provider"] = upstream["provider"]
    return fields


def _upstream_card(agent: AgentInfo) -> JsonObject:
    """Return the members of the upstream A2A server's card that no field of `AgentInfo` holds
    (`interface.describe`)."""
    return agent.metadata.get("a2a") or {}


def _skills(agent: AgentInfo) -> list[JsonObject]:
    """Return the skills of an agent as JSON. An agent without skills gets one, with the agent's name and description.

    Both versions require the list, and the tags of each skill.
    """
    if not agent.skills:
        description = agent.description or f"The agent {agent.name}."
        return [{"id": agent.name, "name": agent.name, "description": description, "tags": [agent.name]}]
    unknown: JsonObject = _upstream_card(agent).get("skills") or {}
    skills: list[JsonObject] = []
    for skill in agent.skills:
        encoded: JsonObject = {
            **(unknown.get(skill.id) or {}),
            "id": skill.id,
            "name": skill.name or skill.id,
            "description": skill.description or skill.name or skill.id,
            "tags": list(skill.tags) or [agent.name],
        }
        if skill.examples:
            encoded["examples"] = list(skill.examples)
        skills.append(encoded)
    return skills


def _url(agent: AgentInfo, base_url: str) -> str:
    return f"{base_url}/a2a/{agent.name}"


def _capabilities(agent: AgentInfo, more: JsonObject) -> JsonObject:
    """Return the capabilities in a card: those of the gateway, and those of the upstream server that the gateway relays
    (`interface.describe`). `more` are capabilities that only one version has."""
    relayed: JsonObject = _upstream_card(agent).get("capabilities") or {}
    extensions = [_EXTENSION, *(relayed.get("extensions") or ())]
    return {**relayed, "streaming": True, "pushNotifications": True, **more, "extensions": extensions}


def relayed_extensions(agent: AgentInfo) -> Set[str]:
    """Return the URIs of the upstream server's extensions that a request may activate."""
    relayed: JsonObject = _upstream_card(agent).get("capabilities") or {}
    return {each["uri"] for each in relayed.get("extensions") or ()}


def _schemes_1_0(access: Authentication) -> JsonObject:
    """Return the security schemes of a 1.0 card by name (specification 1.0, 4.5.1). A client needs only one of them."""
    schemes: JsonObject = {}
    if access.is_required:
        schemes[_BEARER] = {"httpAuthSecurityScheme": {"scheme": "Bearer"}}
    if access.accepts_keys:
        schemes[_API_KEY] = {"apiKeySecurityScheme": {"location": "header", "name": "X-Api-Key"}}
    for issuer in access.issuers:
        scheme = {"openIdConnectUrl": issuer.discovery_url}
        schemes[f"{_ISSUER}-{issuer.name}"] = {"openIdConnectSecurityScheme": scheme}
    return schemes


def _schemes_0_3(access: Authentication) -> JsonObject:
    """Return the security schemes of a 0.3 card by name (specification 0.3, 5.5.3). A client needs only one of them."""
    schemes: JsonObject = {}
    if access.is_required:
        schemes[_BEARER] = {"type": "http", "scheme": "bearer"}
    if access.accepts_keys:
        schemes[_API_KEY] = {"type": "apiKey", "in": "header", "name": "X-Api-Key"}
    for issuer in access.issuers:
        scheme = {"type": "openIdConnect", "openIdConnectUrl": issuer.discovery_url}
        schemes[f"{_ISSUER}-{issuer.name}"] = scheme
    return schemes


def _scopes_of(scheme: str, access: Authentication) -> list[str]:
    """Return the scopes that a client must request if it uses a security scheme. Only the schemes of issuers have
    scopes: the scopes of an API key are in the gateway's settings."""
    return list(access.scopes) if scheme.startswith(f"{_ISSUER}-") else []


def _interfaces(agent: AgentInfo, base_url: str, rpc_address: str | None) -> list[JsonObject]:
    """Return the interfaces of an agent in the order of preference (specification 1.0, 4.4.6)."""
    url = _url(agent, base_url)
    new, old = (
        [{"url": url, "protocolBinding": binding, "protocolVersion": version} for binding in (JSON_RPC, REST)]
        for version in (V1, MINOR_0_3)
    )
    if rpc_address is None:
        return [*new, *old]
    # All agents have one address: clients repeat the tenant in each request.
    rpc = {"url": rpc_address, "protocolBinding": GRPC, "protocolVersion": V1, "tenant": agent.name}
    return [*new, rpc, *old]


def _connection_1_0(agent: AgentInfo, base_url: str, access: Authentication, rpc_address: str | None) -> JsonObject:
    connection: JsonObject = {
        "supportedInterfaces": _interfaces(agent, base_url, rpc_address),
        "capabilities": _capabilities(agent, {"extendedAgentCard": access.is_required}),
    }
    if schemes := _schemes_1_0(access):
        connection["securitySchemes"] = schemes
        # One scheme is enough: the list is an OR (specification 1.0, 4.5).
        connection["securityRequirements"] = [
            {"schemes": {name: {"list": _scopes_of(name, access)}}} for name in schemes
        ]
    return connection


def _connection_0_3(agent: AgentInfo, base_url: str, access: Authentication) -> JsonObject:
    url = _url(agent, base_url)
    connection: JsonObject = {
        "protocolVersion": V0_3,
        "url": url,
        "preferredTransport": JSON_RPC,
        # Specification 0.3, 5.6.2: the list should contain the preferred transport, too.
        "additionalInterfaces": [{"url": url, "transport": binding} for binding in (JSON_RPC, REST)],
        # Specification 0.3, 5.5.2. 1.0 has no `stateTransitionHistory`.
        "capabilities": _capabilities(agent, {"stateTransitionHistory": False}),
        "supportsAuthenticatedExtendedCard": access.is_required,
    }
    if schemes := _schemes_0_3(access):
        connection["securitySchemes"] = schemes
        connection["security"] = [{name: _scopes_of(name, access)} for name in schemes]
    return connection


def card_1_0(agent: AgentInfo, base_url: str, access: Authentication, rpc_address: str | None = None) -> JsonObject:
    return {**_card_fields(agent), **_connection_1_0(agent, base_url, access, rpc_address)}


def card_0_3(agent: AgentInfo, base_url: str, access: Authentication) -> JsonObject:
    return {**_card_fields(agent), **_connection_0_3(agent, base_url, access)}


def merged_card(agent: AgentInfo, base_url: str, access: Authentication, rpc_address: str | None = None) -> JsonObject:
    """Return a card with the fields of both versions.

    The objects that both versions have (`capabilities`, `securitySchemes`) are merged: their members have different
    names.
    """
    old = _connection_0_3(agent, base_url, access)
    new = _connection_1_0(agent, base_url, access, rpc_address)
    # a2a-sdk 0.3.26 cannot read a card without `url`; 1.3.0 ignores what it does not know.
    merged = {**_card_fields(agent), **new, **old}
    merged["capabilities"] = {**new["capabilities"], **old["capabilities"]}
    if access.is_required:
        schemes = old["securitySchemes"]
        merged["securitySchemes"] = {name: {**schemes[name], **new["securitySchemes"][name]} for name in schemes}
    return merged
