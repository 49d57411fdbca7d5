"""Detection of the protocols that servers speak at some URLs."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from babelgate.conformance.across.a2a import A2A03, A2A10, endpoint_of
from babelgate.conformance.across.acp import Acp
from babelgate.conformance.across.agent_protocol import AgentProtocol
from babelgate.conformance.across.aief import Aief
from babelgate.conformance.across.driver import Driver, ProtocolAddress
from babelgate.conformance.across.langgraph import LangGraph
from babelgate.conformance.across.mcp import Mcp
from babelgate.conformance.across.openai import ChatDriver, ResponsesDriver
from babelgate.conformance.protocols.a2a.discovery import origin_of
from babelgate.conformance.protocols.mcp.target import HELLO, request
from babelgate.conformance.protocols.openai.target import base_of
from babelgate.conformance.wire.exchange import Exchange, as_list, dig
from babelgate.conformance.wire.http import Unanswered, Wire

DRIVERS: Final[Sequence[type[Driver]]] = (
    Acp,
    A2A03,
    A2A10,
    Aief,
    LangGraph,
    AgentProtocol,
    ChatDriver,
    ResponsesDriver,
    Mcp,
)
_CARD: Final = "/.well-known/agent-card.json"
_AGENT: Final = "{agent}"


@dataclass(frozen=True, slots=True)
class FoundProtocol:
    driver: Driver
    evidence: str

    @property
    def name(self) -> str:
        return self.driver.name


async def find(wire: Wire, urls: Sequence[str], agents: Sequence[str]) -> Sequence[FoundProtocol]:
    """Return the protocols that servers at some URLs speak, at most one server for each protocol, in the order of
    DRIVERS.

    `agents` are names of agents that triggers use; `{agent}` in a URL is replaced by such a name. Raises Unanswered if
    no server answers at any of the URLs.
    """
    looking = _Looking(wire, agents)
    for url in urls:
        await looking.at(url.rstrip("/"))
    if not looking.found and looking.silence is not None and not looking.is_anybody_there:
        raise looking.silence
    return [looking.found[each.name] for each in DRIVERS if each.name in looking.found]


class _Looking:
    def __init__(self, wire: Wire, agents: Sequence[str]) -> None:
        self.wire = wire
        self.agents = list(agents)
        self.found: dict[str, FoundProtocol] = {}
        self.silence: Unanswered | None = None
        self.is_anybody_there = False
        self._looks: Mapping[str, Callable[[str, str], Awaitable[None]]] = {
            "acp": self._acp,
            "threads": self._threads,
            "a2a": self._a2a,
            "aief": self._aief,
            "openai": self._openai,
            "mcp": self._mcp,
        }

    async def at(self, url: str) -> None:
        base, agent = _split_agent(url)
        for look in self._looks.values():
            for place in dict.fromkeys((url, base)):
                await look(place, agent)

    async def _ask(self, method: str, url: str, body: Any = None, **headers: str) -> Exchange | None:
        try:
            exchange = await self.wire.request(method, url, sends=None, receives=None, body=body, headers=headers)
        except Unanswered as error:
            self.silence = error
            return None
        self.is_anybody_there = True
        return exchange if exchange.status == 200 else None

    def _add(self, kind: type[Driver], place: ProtocolAddress, exchange: Exchange) -> None:
        self.found.setdefault(kind.name, FoundProtocol(kind(self.wire, place), str(exchange)))

    def _note_agents(self, agents: Sequence[str], agent: str) -> str:
        """Add `agents`, the agents that a server lists, to all known names. Return the default agent of the server:
        `agent` if it is not empty, else the first listed."""
        self.agents += [each for each in agents if each not in self.agents]
        return agent or (agents[0] if agents else "")

    async def _acp(self, url: str, agent: str) -> None:
        for base in (url, f"{url}/acp"):
            listed = await self._ask("GET", f"{base}/agents")
            names = [str(dig(each, "name")) for each in as_list(dig(listed and listed.json, "agents"))]
            if listed is not None and names:
                self._add(Acp, ProtocolAddress(base, self._note_agents(names, agent)), listed)
                return

    async def _threads(self, url: str, agent: str) -> None:
        assistants = await self._ask("POST", f"{url}/assistants/search", {"limit": 100})
        names = [str(dig(each, "graph_id")) for each in as_list(assistants and assistants.json)]
        if assistants is not None and names:
            self._add(LangGraph, ProtocolAddress(url, self._note_agents(names, agent)), assistants)
        # Where both answer at one address, they speak LangGraph there.
        for base in (f"{url}/agent-protocol", *(() if names else (url,))):
            agents = await self._ask("POST", f"{base}/agents/search", {"limit": 100})
            ids = [str(dig(each, "agent_id")) for each in as_list(agents and agents.json)]
            if agents is not None and ids:
                self._add(AgentProtocol, ProtocolAddress(base, self._note_agents(ids, agent)), agents)
                return

    async def _a2a(self, url: str, agent: str) -> None:
        for base in (f"{url}/a2a/{_AGENT}", url):
            for name in self._names(base, agent):
                card = await self._card(base, name)
                if card is None:
                    continue
                for kind in (A2A03, A2A10):
                    endpoint = endpoint_of(card.json, kind.version)
                    if endpoint is not None:
                        self._add(kind, ProtocolAddress(_template(endpoint, base, name), name), card)
                return

    def _names(self, base: str, agent: str) -> Sequence[str]:
        """Return the agent names for which a base URL is tried: all known ones if the URL contains `{agent}`, else only
        `agent`."""
        return [each for each in dict.fromkeys((agent, *self.agents)) if each] if _AGENT in base else [agent]

    async def _card(self, base: str, name: str) -> Exchange | None:
        """Return the exchange that read an agent card, or None if there is no card. The card is below the agent's own
        URL, or below the origin if the server has one agent."""
        places = (base.replace(_AGENT, name), *(() if _AGENT in base else (origin_of(base),)))
        for place in dict.fromkeys(f"{each}{_CARD}" for each in places):
            card = await self._ask("GET", place, **{"A2A-Version": "1.0"})
            if card is not None and dig(card.json, "name") is not None:
                return card
        return None

    async def _aief(self, url: str, agent: str) -> None:
        for base in (f"{url}/agent/{_AGENT}", url.partition("/ap/v1")[0]):
            for name in self._names(base, agent):
                listed = await self._ask("GET", f"{base.replace(_AGENT, name)}/ap/v1/agent/tasks?page_size=1")
                if listed is not None and isinstance(dig(listed.json, "tasks"), list):
                    self._add(Aief, ProtocolAddress(base, name), listed)
                    return

    async def _openai(self, url: str, agent: str) -> None:
        """Find both OpenAI APIs below one base URL.

        Not every server lists its models. Such a server is recognized by the form of its error for an empty request.
        """
        for base in dict.fromkeys((base_of(url), f"{url}/v1")):
            listed = await self._ask("GET", f"{base}/models")
            names = [str(dig(each, "id")) for each in as_list(dig(listed and listed.json, "data"))]
            for kind in (ChatDriver, ResponsesDriver):
                with suppress(Unanswered):
                    place = f"{base}/{kind.path}"
                    refused = await self.wire.request("POST", place, sends=None, receives=None, body={})
                    is_error = isinstance(dig(refused.json, "error", "type"), str)
                    if refused.status not in (404, 405) and (names or is_error):
                        self._add(
                            kind, ProtocolAddress(base, agent if agent in names or not names else names[0]), refused
                        )

    async def _mcp(self, url: str, agent: str) -> None:
        accept = {"Accept": "application/json, text/event-stream"}
        for place in (url, f"{url}/mcp"):
            hello = await self._ask("POST", place, request(1, "initialize", dict(HELLO)), **accept)
            if hello is not None and '"protocolVersion"' in _text(hello):
                self._add(Mcp, ProtocolAddress(place, agent), hello)
                return


def _text(exchange: Exchange) -> str:
    return exchange.content.decode(errors="replace") + "".join(frame.data for frame in exchange.frames)


def _template(endpoint: str, base: str, name: str) -> str:
    """Return the endpoint URL with the agent's name replaced by `{agent}`, so that it serves for all agents of the
    server. `base` is the URL pattern by which the card was found; if it names no agent, the endpoint is returned
    unchanged."""
    if not name or _AGENT not in base:
        return endpoint
    return endpoint.replace(f"/{name}", f"/{_AGENT}")


def _split_agent(url: str) -> tuple[str, str]:
    """Split a URL such as `…/a2a/echo` into the server's base URL and the agent's name. Return the whole URL and an
    empty name if it names no agent."""
    for mark in ("/a2a/", "/agent/", "/agents/"):
        base, found, rest = url.partition(mark)
        if found and rest:
            return base.removesuffix("/acp").removesuffix("/agent-protocol"), unquote(rest.partition("/")[0])
    return url, ""
