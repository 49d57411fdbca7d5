"""A configured agent as the rest of the gateway sees it: what it says of itself, the agent, and its settings."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from babelgate.canonical.agent import Agent, AgentInfo
from babelgate.canonical.value import JsonObject
from babelgate.gateway.settings.model import Timeout


@dataclass(frozen=True, slots=True)
class RegisteredAgent:
    """An agent behind the gateway."""

    info: AgentInfo
    agent: Agent | None
    """None = broken, and it cannot be called."""
    broken: str | None = None
    """Why, in one line. With an agent: its server did not describe it, and a call tries it."""
    concurrency: int | None = None
    timeout: Timeout = field(default_factory=Timeout)
    idempotent: bool = False
    replay: bool = True
    forward: frozenset[str] = frozenset()
    """Names of headers, in lower case."""
    instance: str | None = None
    """Of the gateway that the agent's server is, if it is one."""
    because: str = ""
    """What its server was found to speak, in one line."""
    server: str | None = None
    """The URL of the server that was given to be served whole, if it is one of its agents."""
    again: "Again | None" = field(default=None, repr=False)
    """Looks for a broken one behind a URL."""
    describe: "Describe | None" = field(default=None, repr=False)
    """Fetches what its server tells of it besides its name."""


Describe = Callable[[], Awaitable[Mapping[str, JsonObject]]]
"""The schemas of an agent. Raises what the server answers instead."""
Again = Callable[[], Awaitable[Sequence[RegisteredAgent]]]
"""What there is in the place of a broken agent; if it still is, that one, with the reason of now."""
