"""Plug-in interface of clients: the folder of a protocol exports one `Upstream` value next to its `Adapter`, and the
gateway calls agents through it."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import httpx

from babelgate.adapters.kit.card_trust import CardTrust
from babelgate.canonical import AgentInfo, Event, Invocation
from babelgate.canonical.value import JsonObject

FORWARDED: ContextVar[Mapping[str, str]] = ContextVar("forwarded", default=MappingProxyType({}))
"""Headers of the caller's request that are sent with every upstream request of the run. They are set when the run
starts."""


class Client(Protocol):
    """An agent behind a URL. See `babelgate.canonical.agent` for the interface `Agent`, and for `Reattachable`, whose
    runs can be found again after a restart."""

    def run(self, call: Invocation) -> AsyncGenerator[Event]:
        """Yield the events of one run."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...


Describe = Callable[[str, httpx.AsyncClient, Mapping[str, str], AgentInfo], Awaitable[Mapping[str, JsonObject]]]
"""(URL, HTTP client, headers, agent) → the agent's schemas by name."""


DiscoverSigned = Callable[[str, httpx.AsyncClient, Mapping[str, str], CardTrust], Awaitable[Sequence[AgentInfo]]]
"""(URL, HTTP client, headers, verification) → agents. Raises FaultError with the reason why a card is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """The client half of one protocol."""

    protocol: str
    """Name of the protocol, as `protocol` in the settings."""
    title: str
    discover: Callable[[str, httpx.AsyncClient, Mapping[str, str]], Awaitable[Sequence[AgentInfo]]]
    """Lists the agents of a server: (URL, HTTP client, headers) → agents. Raises FaultError with the server's response
    if it does not speak the protocol."""
    discover_signed: DiscoverSigned | None = None
    """Lists the agents of a server like `discover`, and verifies the cards by which the server describes them. None if
    the protocol has no signed cards."""
    client: Callable[..., Client]
    """Factory of clients: `client(url, name, headers=…, timeout=…, **options)`. If the protocol has signed cards, also
    with `trust=…`, a `CardTrust`."""
    name_of: Callable[[AgentInfo], str]
    """The server's own name of an agent that it listed."""
    own_path: str | None = None
    """Path under which this gateway serves an agent to clients of this protocol. `{agent}` represents the agent's name.
    None if the gateway does not serve the protocol."""
    alone: bool = False
    """True if a server has one agent only, whose name does not matter."""
    assume: Callable[[str], AgentInfo] | None = None
    """Describes an agent by the server's own name for it. Used if the operator names the protocol and the agent, and
    the server lists no agents."""
    describe: Describe | None = None
    """Fetches the schemas of an agent that the server listed without them. Raises FaultError with the server's
    response."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Names of the additional arguments of `client`, each with its permitted values."""
