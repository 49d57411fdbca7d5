"""How an agent of 0.2.5 to 0.3 is found. Its JSON-RPC is judged: of its REST the specification leaves open which JSON
it is, and its SDKs differ."""

from typing import Any, Final
from urllib.parse import urljoin

from conformance.probe import NotSpoken, Opened, Options
from conformance.protocols.a2a.agent import Agent
from conformance.protocols.a2a.binding import Binding
from conformance.protocols.a2a.discovery import Found, find_card
from conformance.protocols.a2a.jsonrpc import Dialect, JsonRpcBinding
from conformance.protocols.a2a.v0.translation import event_of, method_of, params_of, result_of
from conformance.verdict import Prerequisite
from conformance.wire.exchange import as_list, dig
from conformance.wire.http import Wire

DIALECT: Final = Dialect(is_first_generation=True, method=method_of, params=params_of, result=result_of, event=event_of)


async def open_agent(wire: Wire, url: str, options: Options, is_told: bool) -> Opened[Agent]:
    agent = await _find_agent(wire, url)
    if not agent.bindings:
        why = "the card names no JSON-RPC of version 0.x" if agent.card else "there is no agent card"
        if not is_told:
            raise NotSpoken(f"{why} ({agent.found.exchange})")
        agent = Agent(agent.url, agent.found, (JsonRpcBinding(wire, url, DIALECT, {}),), _reopen)
        because = f"it was said to speak it, though {why}"
    else:
        version = dig(agent.card, "protocolVersion")
        because = f"the card at {agent.found.exchange.url} names {agent.bindings[0].url}, version {version}"
    return Opened(agent, agent.bindings[0].url, because, _capabilities(agent.card))


async def _find_agent(wire: Wire, url: str) -> Agent:
    found = await find_card(wire, url, version="0.3", receives={2: "AgentCard"})
    return Agent(url.rstrip("/"), found, _bindings(wire, found), _reopen)


async def _reopen(wire: Wire, url: str) -> Agent:
    agent = await _find_agent(wire, url)
    if not agent.bindings:
        raise Prerequisite(f"an agent card at {url}, which the triggers name", None, agent.found.exchange)
    return agent


def _bindings(wire: Wire, found: Found) -> tuple[Binding, ...]:
    card = found.card
    version = str(dig(card, "protocolVersion") or "0.3")
    where = dig(card, "url")
    if not isinstance(where, str) or not version.startswith("0."):
        return ()
    preferred = str(dig(card, "preferredTransport") or "JSONRPC")
    faces: list[Any] = [{"url": where, "transport": preferred}, *as_list(dig(card, "additionalInterfaces"))]
    for face in faces:
        if dig(face, "transport") == "JSONRPC" and isinstance(dig(face, "url"), str):
            return (JsonRpcBinding(wire, urljoin(found.exchange.url, face["url"]), DIALECT, {}),)
    return ()


def _capabilities(card: Any) -> frozenset[str]:
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
    return frozenset(name for name, value in has.items() if value)
