"""Agent in the registry: its description, the client that runs it, and its settings."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from babelgate.canonical.agent import Agent, AgentInfo
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.gateway.settings.model import AgentSettings, Timeout

log = logging.getLogger("babelgate.registry")


@dataclass(frozen=True, slots=True)
class RegisteredAgent:
    """Entry of the registry for one agent."""

    info: AgentInfo
    agent: Agent | None
    """Client that runs the agent; None if the agent is broken and cannot be called."""
    broken: str | None = None
    """Reason why the agent is broken, on one line; None if it is not. If `agent` is set, the server did not describe
    the agent, but calls are tried."""
    concurrency: int | None = None
    timeout: Timeout = field(default_factory=Timeout)
    idempotent: bool = False
    replay: bool = True
    forward: frozenset[str] = frozenset()
    """Names of the callers' headers to forward to the agent's server, in lower case."""
    instance: str | None = None
    """Instance id of the agent's server, if that is a Babelgate; None otherwise."""
    detection: str = ""
    """Result of the detection of the server's protocol, on one line."""
    server: str | None = None
    """URL of the server, if the command line or settings name only the server, so that all its agents are served; None
    otherwise."""
    settings: AgentSettings | None = None
    """Settings of the agent; None if it is not listed under `agents` in the settings."""
    described: AgentInfo | None = None
    """Description from the agent's server, before the settings have changed it."""
    detect: "Detect | None" = field(default=None, repr=False)
    """Function that repeats the detection of a broken agent behind a URL; None if it cannot be repeated."""
    describe: "Describe | None" = field(default=None, repr=False)
    """Function that fetches the description of the agent, with its schemas, from its server; None if its protocol has
    none, or if they are known."""

    def refuse(self, run_id: str = "-") -> FaultError:
        """Return the fault for a call of a broken agent, and log the reason.

        The reason is for the operator alone: it names URLs, hosts and files.
        """
        log.warning("broken agent called agent=%s run=%s reason=%s", self.info.name, run_id, self.broken)
        why = "it could not be loaded" if self.detect is None else "its server cannot be used at the moment"
        words = f"Agent {self.info.name} is not available: {why}. The log of the gateway has the reason."
        return FaultError(FaultCode.AGENT_UNREACHABLE, words)


Describe = Callable[[], Awaitable[AgentInfo]]
"""Function that returns the description of an agent, with its schemas. Raises the fault with which the server
answers."""
Detect = Callable[[], Awaitable[Sequence[RegisteredAgent]]]
"""Function that returns the agents that replace a broken one. If the agent is still broken, it returns that agent with
the current reason."""
