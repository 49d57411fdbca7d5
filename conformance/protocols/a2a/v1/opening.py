"""Detection of agents of A2A 1.0."""

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urljoin

from babelgate.conformance.probe import NotSpoken, Opened, Options
from babelgate.conformance.protocols.a2a.agent import Agent
from babelgate.conformance.protocols.a2a.binding import Binding
from babelgate.conformance.protocols.a2a.discovery import UNJUDGED, Found, find_card, why_not_spoken
from babelgate.conformance.protocols.a2a.jsonrpc import Dialect, JsonRpcBinding
from babelgate.conformance.protocols.a2a.v1.rest import RestBinding
from babelgate.conformance.verdict import Prerequisite
from babelgate.conformance.wire.exchange import as_list, dig
from babelgate.conformance.wire.http import Wire

DIALECT: Final = Dialect(
    is_first_generation=False,
    method=lambda operation: operation,
    params=lambda operation, params: dict(params),
    result=lambda operation, result: result,
    event=lambda result: result,
)


async def open_agent(wire: Wire, url: str, options: Options, is_told: bool) -> Opened[Agent]:
    """Find the agent by the card at a URL. Raises NotSpoken."""
    agent = await _find_agent(wire, url)
    if not agent.bindings:
        why = why_not_spoken(agent.card, transports_of(agent.card), "interface of version 1.x")
        if not is_told:
            raise NotSpoken(f"{why} ({agent.found.exchange})")
        agent = Agent(agent.url, agent.found, (JsonRpcBinding(wire, url, DIALECT, headers_of(agent.card)),), _reopen)
        because = f"named by the user, although {why}"
    else:
        named = ", ".join(f"{each.name} at {each.url}" for each in agent.bindings)
        because = f"the card at {agent.found.exchange.url} names {named}"
        if "GRPC" in transports_of(agent.card):
            because += f"; {UNJUDGED}"
    return Opened(agent, agent.bindings[0].url, because, capabilities_of(agent))


async def _find_agent(wire: Wire, url: str) -> Agent:
    found = await find_card(wire, url, version="1.0", receives={2: "AgentCard"})
    return Agent(url.rstrip("/"), found, _bindings(wire, found), _reopen)


async def _reopen(wire: Wire, url: str) -> Agent:
    agent = await _find_agent(wire, url)
    if not agent.bindings:
        raise Prerequisite(f"an agent card at {url}, which the triggers name", None, agent.found.exchange)
    return agent


def _bindings(wire: Wire, found: Found) -> tuple[Binding, ...]:
    """Return the first binding of each kind."""
    by_name: dict[str, Binding] = {}
    for binding in every_binding(wire, found):
        by_name.setdefault(binding.name, binding)
    return tuple(by_name.values())


def every_binding(wire: Wire, found: Found) -> Iterator[Binding]:
    """Yield the HTTP bindings of versions 1.x."""
    headers = headers_of(found.card)
    for each in as_list(dig(found.card, "supportedInterfaces")):
        where, name = dig(each, "url"), dig(each, "protocolBinding")
        if isinstance(where, str) and _is_of_1_0(each):
            absolute = urljoin(found.exchange.url, where)
            if name == "JSONRPC":
                yield JsonRpcBinding(wire, absolute, DIALECT, headers)
            elif name == "HTTP+JSON":
                yield RestBinding(wire, absolute, headers)


def transports_of(card: Any) -> list[Any]:
    """Return the bindings of versions 1.x in the card."""
    return [dig(each, "protocolBinding") for each in as_list(dig(card, "supportedInterfaces")) if _is_of_1_0(each)]


def _is_of_1_0(interface: Any) -> bool:
    """Return True if an interface speaks 1.x.

    An interface without a version breaks the specification (4.4.6) and is judged, because only cards of 1.0 have
    interfaces of this form.
    """
    return str(dig(interface, "protocolVersion") or "1.0").startswith("1")


def headers_of(card: Any) -> dict[str, str]:
    """Return the headers of every request: the version, and the extensions that the card requires."""
    extensions = as_list(dig(card, "capabilities", "extensions"))
    required = [str(dig(each, "uri")) for each in extensions if dig(each, "required") is True]
    return {"A2A-Version": "1.0", **({"A2A-Extensions": ",".join(required)} if required else {})}


def capabilities_of(agent: Agent) -> frozenset[str]:
    card: Any = agent.card
    names = {"JSONRPC": "jsonrpc", "HTTP+JSON": "rest"}
    declared = dig(card, "capabilities")
    extensions = as_list(dig(declared, "extensions"))
    versions = [str(dig(each, "protocolVersion")) for each in as_list(dig(card, "supportedInterfaces"))]
    has = {
        "streaming": dig(declared, "streaming") is True,
        "push": dig(declared, "pushNotifications") is True,
        "extended-card": dig(declared, "extendedAgentCard") is True,
        "extensions": bool(extensions),
        "required-extension": any(dig(each, "required") is True for each in extensions),
        "security": bool(as_list(dig(card, "securityRequirements"))),
        "signatures": bool(as_list(dig(card, "signatures"))),
        "0.3": any(version.startswith("0.") for version in versions),
    }
    return frozenset({*(names[each.name] for each in agent.bindings), *(name for name, value in has.items() if value)})
