"""Plug-in interface of clients: how a protocol's folder puts agents behind the gateway, one `Upstream` value beside its
`Adapter`."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import httpx

from babelgate.canonical import AgentInfo, Event, Invocation
from babelgate.canonical.value import JsonObject

FORWARDED: ContextVar[Mapping[str, str]] = ContextVar("forwarded", default=MappingProxyType({}))
"""Headers of the caller's request that go along with every request of the run: set where the run is begun, and read
where requests are made."""


class Client(Protocol):
    """An agent behind a URL. See `babelgate.canonical.agent`: `Agent`, and `Reattachable` for those that can be found
    again."""

    def run(self, call: Invocation) -> AsyncGenerator[Event]: ...

    async def aclose(self) -> None: ...


Describe = Callable[[str, httpx.AsyncClient, Mapping[str, str], AgentInfo], Awaitable[Mapping[str, JsonObject]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    protocol: str
    """As `protocol` in the settings."""
    title: str
    discover: Callable[[str, httpx.AsyncClient, Mapping[str, str]], Awaitable[Sequence[AgentInfo]]]
    """The agents of a server, by its URL. Raises FaultError with what came back instead."""
    client: Callable[..., Client]
    """`client(url, name, headers=…, timeout=…, **options)`."""
    name_of: Callable[[AgentInfo], str]
    """What the server itself calls an agent that it listed."""
    own_path: str | None = None
    """Where this gateway serves its agents to clients of this protocol, with `{agent}` for an agent's name; None if it
    does not."""
    alone: bool = False
    """A server has one agent, whatever it is called."""
    assume: Callable[[str], AgentInfo] | None = None
    """Describes an agent by the server's own name for it. Used if the operator names protocol and agent, and the server
    lists no agents."""
    describe: Describe | None = None
    """Fetches the schemas of an agent that the server listed without them. Raises FaultError with what came back."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further arguments of `client`, with the values that each may have."""
