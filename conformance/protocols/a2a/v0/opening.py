"""Detection of agents of A2A 0.2.5 to 0.3."""

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urljoin

from babelgate.conformance.probe import NotSpoken, Opened, Options
from babelgate.conformance.protocols.a2a.agent import Agent
from babelgate.conformance.protocols.a2a.binding import Binding
from babelgate.conformance.protocols.a2a.discovery import UNJUDGED, Found, find_card, why_not_spoken
from babelgate.conformance.protocols.a2a.jsonrpc import Dialect, JsonRpcBinding
from babelgate.conformance.protocols.a2a.v0.rest import RestBinding
from babelgate.conformance.protocols.a2a.v0.translation import event_of, method_of, params_of, result_of
from babelgate.conformance.verdict import Prerequisite
from babelgate.conformance.wire.exchange import as_list, dig
from babelgate.conformance.wire.http import Wire

DIALECT: Final = Dialect(is_first_generation=True, method=method_of, params=params_of, result=result_of, event=event_of)


async def open_agent(wire: Wire, url: str, options: Options, is_told: bool) -> Opened[Agent]:
    """Find the agent by the card at a URL. Raises NotSpoken."""
    agent = await _find_agent(wire, url)
    if not agent.bindings:
        why = why_not_spoken(agent.card, _transports(agent.card), "JSON-RPC or HTTP+JSON of version 0.x")
        if not is_told:
            raise NotSpoken(f"{why} ({agent.found.exchange})")
        agent = Agent(agent.url, agent.found, (JsonRpcBinding(wire, url, DIALECT, {}),), _reopen)
        because = f"named by the user, although {why}"
    else:
        version = dig(agent.card, "protocolVersion")
        named = ", ".join(f"{each.name} at {each.url}" for each in agent.bindings)
        because = f"the card at {agent.found.exchange.url} names {named}, version {version}"
        if "GRPC" in _transports(agent.card):
            because += f"; {UNJUDGED}"
    return Opened(agent, agent.bindings[0].url, because, _capabilities(agent))


async def _find_agent(wire: Wire, url: str) -> Agent:
    found = await find_card(wire, url, version="0.3", receives={2: "AgentCard"})
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
    """Yield the HTTP bindings, starting with that of the card's own URL."""
    places: set[tuple[str, str]] = set()
    for face in _faces(found.card):
        where, name = dig(face, "url"), dig(face, "transport")
        if not isinstance(where, str) or (where, str(name)) in places:
            continue
        places.add((where, str(name)))
        absolute = urljoin(found.exchange.url, where)
        if name == "JSONRPC":
            yield JsonRpcBinding(wire, absolute, DIALECT, {})
        elif name == "HTTP+JSON":
            yield RestBinding(wire, absolute)


def _faces(card: Any) -> list[Any]:
    """Return the interfaces of version 0.x, starting with that of the card's own URL."""
    version = str(dig(card, "protocolVersion") or "0.3")
    where = dig(card, "url")
    if not isinstance(where, str) or not version.startswith("0."):
        return []
    preferred = str(dig(card, "preferredTransport") or "JSONRPC")
    return [{"url": where, "transport": preferred}, *as_list(dig(card, "additionalInterfaces"))]


def _transports(card: Any) -> list[Any]:
    return [dig(each, "transport") for each in _faces(card)]


def _capabilities(agent: Agent) -> frozenset[str]:
    card: Any = agent.card
    names = {"JSONRPC": "jsonrpc", "HTTP+JSON": "rest"}
    declared = dig(card, "capabilities")
    has = {
        "streaming": dig(declared, "streaming") is True,
        "push": dig(declared, "pushNotifications") is True,
        "extended-card": dig(card, "supportsAuthenticatedExtendedCard") is True,
        "extensions": bool(as_list(dig(declared, "extensions"))),
        "security": bool(as_list(dig(card, "security"))),
        "signatures": bool(as_list(dig(card, "signatures"))),
        "interfaces": bool(as_list(dig(card, "additionalInterfaces"))),
    }
    return frozenset({*(names[each.name] for each in agent.bindings), *(name for name, value in has.items() if value)})
