"""A configured agent as the rest of the gateway sees it: what it says of itself, the agent, and its settings."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from babelgate.canonical.agent import Agent, AgentInfo
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.value import JsonObject
from babelgate.gateway.settings.model import Timeout

log = logging.getLogger("babelgate.registry")


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

    def refuse(self, run_id: str = "-") -> FaultError:
        """Return the fault of a call of a broken agent, and log the reason.

        The reason is for the operator alone: it names URLs, hosts and files.
        """
        log.warning("broken agent called agent=%s run=%s reason=%s", self.info.name, run_id, self.broken)
        why = "it could not be loaded" if self.again is None else "its server cannot be used at the moment"
        words = f"Agent {self.info.name} is not available: {why}. The log of the gateway has the reason."
        return FaultError(FaultCode.AGENT_UNREACHABLE, words)


Describe = Callable[[], Awaitable[Mapping[str, JsonObject]]]
"""The schemas of an agent. Raises what the server answers instead."""
Again = Callable[[], Awaitable[Sequence[RegisteredAgent]]]
"""What there is in the place of a broken agent; if it still is, that one, with the reason of now."""
