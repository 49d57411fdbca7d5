"""Detection of A2A agents by their card: what 0.3 and 1.0 have in common."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar
from urllib.parse import urljoin

from babelgate.conformance.probe import NotSpoken, Opened, ProbeOptions
from babelgate.conformance.protocols.a2a.agent import A2aTarget
from babelgate.conformance.protocols.a2a.binding import Binding
from babelgate.conformance.protocols.a2a.discovery import UNJUDGED, CardDiscovery, find_card, why_not_spoken
from babelgate.conformance.protocols.a2a.jsonrpc import JsonRpcBinding, VersionConversion
from babelgate.conformance.protocols.a2a.rest import RestBinding
from babelgate.conformance.verdict import Prerequisite
from babelgate.conformance.wire.http import Wire


class A2aVersion(ABC):
    """Reader of the agent cards of one protocol version, which detects the agent and creates its bindings."""

    version: ClassVar[str]
    """Value of the header `A2A-Version` in the request for the card."""
    interface: ClassVar[str]
    """Description of the interfaces that the card should declare, for the message about a card without one: `interface
    of version 1.x`."""
    dialect: ClassVar[VersionConversion]
    rest: ClassVar[type[RestBinding]]

    @abstractmethod
    def interfaces(self, card: Any) -> Iterator[tuple[Any, Any]]:
        """Yield the URL and the binding name of each interface in the card that belongs to the protocol version. Both
        are as received, so they may be invalid."""

    @abstractmethod
    def capabilities(self, card: Any) -> Mapping[str, bool]:
        """Return the capabilities that requirements may need, such as `streaming`, each with True if the card declares
        it."""

    def headers(self, card: Any) -> Mapping[str, str]:
        """Return the headers that every request to the agent needs."""
        return {}

    def version_note(self, card: Any) -> str:
        """Return a note about the version in the card, which the report appends to the evidence that the agent speaks
        the protocol version. Empty if there is none."""
        return ""

    async def open(self, wire: Wire, url: str, options: ProbeOptions, is_requested: bool) -> Opened[A2aTarget]:
        """Find the agent by the card at a URL, as `ProbeSuite.open` requires. If `is_requested`, the user named this
        protocol version, so the agent is judged even if its card does not declare it. Otherwise raises NotSpoken."""
        agent = await self._find_agent(wire, url)
        card = agent.card
        transports = [name for _, name in self.interfaces(card)]
        if not agent.bindings:
            why = why_not_spoken(card, transports, self.interface)
            if not is_requested:
                raise NotSpoken(f"{why} ({agent.found.exchange})")
            binding = JsonRpcBinding(wire, url, self.dialect, self.headers(card))
            agent = A2aTarget(agent.url, agent.found, (binding,), self._reopen)
            because = f"named by the user, although {why}"
        else:
            named = ", ".join(f"{each.name} at {each.url}" for each in agent.bindings)
            because = f"the card at {agent.found.exchange.url} names {named}{self.version_note(card)}"
            if "GRPC" in transports:
                because += f"; {UNJUDGED}"
        return Opened(agent, agent.bindings[0].url, because, self._capabilities(agent))

    async def _find_agent(self, wire: Wire, url: str) -> A2aTarget:
        found = await find_card(wire, url, version=self.version, receives={2: "AgentCard"})
        by_name: dict[str, Binding] = {}
        for binding in self.every_binding(wire, found):
            by_name.setdefault(binding.name, binding)
        return A2aTarget(url.rstrip("/"), found, tuple(by_name.values()), self._reopen)

    async def _reopen(self, wire: Wire, url: str) -> A2aTarget:
        agent = await self._find_agent(wire, url)
        if not agent.bindings:
            raise Prerequisite(f"an agent card at {url}, which the triggers name", None, agent.found.exchange)
        return agent

    def every_binding(self, wire: Wire, found: CardDiscovery) -> Iterator[Binding]:
        """Yield the JSON-RPC and REST bindings of the protocol version that the card declares, in the order of the
        card."""
        headers = self.headers(found.card)
        for where, name in self.interfaces(found.card):
            if not isinstance(where, str):
                continue
            absolute = urljoin(found.exchange.url, where)
            if name == "JSONRPC":
                yield JsonRpcBinding(wire, absolute, self.dialect, headers)
            elif name == "HTTP+JSON":
                yield self.rest(wire, absolute, headers)

    def _capabilities(self, agent: A2aTarget) -> frozenset[str]:
        names = {"JSONRPC": "jsonrpc", "HTTP+JSON": "rest"}
        declared = (name for name, value in self.capabilities(agent.card).items() if value)
        return frozenset({*(names[each.name] for each in agent.bindings), *declared})
