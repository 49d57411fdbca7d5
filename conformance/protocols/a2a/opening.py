"""Detection of A2A agents by their card: what 0.3 and 1.0 have in common."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple
from urllib.parse import urljoin

from babelgate.conformance.probe import NotSpoken, Opened, ProbeOptions
from babelgate.conformance.protocols.a2a.agent import A2aTarget
from babelgate.conformance.protocols.a2a.binding import Binding
from babelgate.conformance.protocols.a2a.discovery import CardDiscovery, find_card, why_not_spoken
from babelgate.conformance.protocols.a2a.jsonrpc import JsonRpcBinding, VersionConversion
from babelgate.conformance.protocols.a2a.rest import RestBinding
from babelgate.conformance.verdict import Prerequisite
from babelgate.conformance.wire.http import Wire


class CardInterface(NamedTuple):
    """Interface in a card, with its members as received, so they may be invalid."""

    url: Any
    binding: Any
    tenant: Any = None


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
    def interfaces(self, card: Any) -> Iterator[CardInterface]:
        """Yield each interface in the card that belongs to the protocol version."""

    @abstractmethod
    def capabilities(self, card: Any) -> Mapping[str, bool]:
        """Return the capabilities that requirements may need, such as `streaming`, each with True if the card declares
        it."""

    @abstractmethod
    def why_no_grpc(self) -> str:
        """Return why gRPC interfaces are not checked. Empty if they are."""

    def grpc(self, wire: Wire, interface: CardInterface, card_url: str, headers: Mapping[str, str]) -> Binding:
        """Return the client of a gRPC interface. Only called if gRPC interfaces are checked."""
        raise NotImplementedError

    def untestable(self, transports: Iterable[Any]) -> Mapping[str, str]:
        """Return the capabilities of a card with these bindings that cannot be tested, each with the reason
        (`Opened.untestable`)."""
        return {}

    def headers(self, card: Any) -> Mapping[str, str]:
        """Return the headers that every request to the agent needs."""
        return {}

    def version_note(self, card: Any) -> str:
        """Return a note about the version in the card, which the report appends to the evidence that the agent speaks
        the protocol version. Empty if there is none."""
        return ""

    async def open(self, wire: Wire, url: str, options: ProbeOptions, is_requested: bool) -> Opened[A2aTarget]:
        """Find the agent by the card at a URL, as `ProbeSuite.open` requires. If `is_requested`, the user named this
        protocol version, so the agent is judged even if its card does not declare it. Otherwise raises NotSpoken, and
        also if the card declares only gRPC and that cannot be checked."""
        agent = await self._find_agent(wire, url)
        card = agent.card
        transports = [each.binding for each in self.interfaces(card)]
        why_no_grpc = self.why_no_grpc()
        if not agent.bindings:
            why = why_not_spoken(card, transports, self.interface, why_no_grpc)
            if not is_requested or (why_no_grpc and "GRPC" in transports):
                raise NotSpoken(f"{why} ({agent.found.exchange})")
            binding = JsonRpcBinding(wire, url, self.dialect, self.headers(card))
            agent = A2aTarget(agent.url, agent.found, (binding,), self._reopen)
            because = f"named by the user, although {why}"
        else:
            named = ", ".join(f"{each.name} at {each.url}" for each in agent.bindings)
            because = f"the card at {agent.found.exchange.url} names {named}{self.version_note(card)}"
            if "GRPC" in transports and why_no_grpc:
                because += f"; {why_no_grpc}"
        untestable = self.untestable(transports)
        capabilities = self._capabilities(agent) | untestable.keys()
        return Opened(agent, agent.bindings[0].url, because, capabilities, untestable)

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
        """Yield the bindings of the protocol version that the card declares and the check supports, in the order of the
        card."""
        headers = self.headers(found.card)
        checks_grpc = not self.why_no_grpc()
        for each in self.interfaces(found.card):
            if not isinstance(each.url, str):
                continue
            absolute = urljoin(found.exchange.url, each.url)
            if each.binding == "JSONRPC":
                yield JsonRpcBinding(wire, absolute, self.dialect, headers)
            elif each.binding == "HTTP+JSON":
                yield self.rest(wire, absolute, headers)
            elif each.binding == "GRPC" and checks_grpc:
                yield self.grpc(wire, each, found.exchange.url, headers)

    def _capabilities(self, agent: A2aTarget) -> frozenset[str]:
        names = {"JSONRPC": "jsonrpc", "HTTP+JSON": "rest", "GRPC": "grpc"}
        declared = (name for name, value in self.capabilities(agent.card).items() if value)
        return frozenset({*(names[each.name] for each in agent.bindings), *declared})
