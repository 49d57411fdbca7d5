"""Plug-in interface of clients: the folder of a protocol exports one `Upstream` value next to its `Adapter`, and the
gateway calls agents through it."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import httpx

from babelgate.adapters.kit.card_trust import CardTrust
from babelgate.adapters.kit.program import ProgramHost, ProgramRules
from babelgate.canonical import AgentInfo, Event, Invocation
from babelgate.canonical.value import JsonObject

FORWARDED: ContextVar[Mapping[str, str]] = ContextVar("forwarded", default=MappingProxyType({}))
"""Headers of the caller's request that are sent with every request of the run to its agent's server. They are set when
the run starts."""


class Client(Protocol):
    """Client for one agent behind a URL: the interface `babelgate.canonical.agent.Agent`. If runs on its server can be
    found again after a restart, it also implements `Reattachable`."""

    def run(self, call: Invocation) -> AsyncGenerator[Event]:
        """Start a run of the agent for this call, and yield its events."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...


@runtime_checkable
class SelfDescribing(Protocol):
    """Client whose agent is described by the program that the gateway starts for it."""

    async def describe(self) -> AgentInfo:
        """Return the description of the agent. Raises the fault of the program."""
        ...


Describe = Callable[[str, httpx.AsyncClient, Mapping[str, str], AgentInfo], Awaitable[Mapping[str, JsonObject]]]
"""Function that fetches the schemas of an agent: (URL, HTTP client, headers, agent) → schemas by name."""


StartedClient = Callable[[str, ProgramHost, ProgramRules], Client]
"""Factory of clients for agents that the gateway starts as a program: (name of the agent, starter of its processes,
settings) → client."""


DiscoverSigned = Callable[[str, httpx.AsyncClient, Mapping[str, str], CardTrust], Awaitable[Sequence[AgentInfo]]]
"""Function that lists the agents of a server and verifies their cards: (URL, HTTP client, headers, verification) →
agents. Raises FaultError with the reason why a card is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """The client half of one protocol: how the gateway recognizes servers that speak it, and calls their agents."""

    protocol: str
    """Name of the protocol, as the setting `protocol` of an agent has it."""
    title: str
    discover: Callable[[str, httpx.AsyncClient, Mapping[str, str]], Awaitable[Sequence[AgentInfo]]]
    """Function that lists the agents of a server: (URL, HTTP client, headers) → agents. Raises FaultError with the
    server's response if the server does not speak the protocol."""
    discover_signed: DiscoverSigned | None = None
    """Function that lists the agents of a server like `discover`, and verifies the cards by which the server describes
    them. None if the protocol has no signed cards."""
    client: Callable[..., Client]
    """Factory of clients: `client(url, name, headers=…, timeout=…, **options)`. If the protocol has signed cards, also
    with `trust=…`, a `CardTrust`."""
    name_of: Callable[[AgentInfo], str]
    """Function that returns the name which the server itself uses for an agent that it listed."""
    own_path: str | None = None
    """Path under which this gateway serves an agent to clients of this protocol; `{agent}` is replaced by the agent's
    name. None if the gateway does not serve the protocol."""
    alone: bool = False
    """True if every server of this protocol has one agent only, so that the configuration need not name it."""
    is_detected: bool = True
    """False if no request of the protocol is harmless on a server of another one. The gateway then uses the protocol
    only if the operator has configured it."""
    assume: Callable[[str], AgentInfo] | None = None
    """Function that returns a description of an agent from the server's name for it alone. It is used if the operator
    has configured the protocol and the agent, and the server lists no agents."""
    describe: Describe | None = None
    """Function that fetches the schemas of an agent which the server listed without them. Raises FaultError with the
    server's response. None if agents have no schemas, or are listed with them."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Additional arguments of `client` that an agent's settings may contain: the permitted values, by the name of the
    argument."""
    program: StartedClient | None = None
    """Factory of clients for agents that the gateway starts as a program, without a URL. None if the protocol is spoken
    only to servers."""
    has_urls: bool = True
    """True if the protocol is also spoken to servers behind a URL. Otherwise it has no `client`."""
