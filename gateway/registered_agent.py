"""Configured agent as the rest of the gateway sees it: its description, the agent itself, and its settings."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from babelgate.canonical.agent import Agent, AgentInfo
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.value import JsonObject
from babelgate.gateway.settings.model import AgentSettings, Timeout

log = logging.getLogger("babelgate.registry")


@dataclass(frozen=True, slots=True)
class RegisteredAgent:
    """Agent behind the gateway."""

    info: AgentInfo
    agent: Agent | None
    """Callable agent; None if it is broken and cannot be called."""
    broken: str | None = None
    """Reason why the agent is broken, on one line. If `agent` is set, its server did not describe it, and calls are
    tried."""
    concurrency: int | None = None
    timeout: Timeout = field(default_factory=Timeout)
    idempotent: bool = False
    replay: bool = True
    forward: frozenset[str] = frozenset()
    """Names of headers to forward, in lower case."""
    instance: str | None = None
    """Id of the gateway instance that the agent's server is, if it is a gateway."""
    detection: str = ""
    """Result of the detection of the server's protocol, on one line."""
    server: str | None = None
    """URL of the server, if the settings name it without a single agent, so that all its agents are served."""
    settings: AgentSettings | None = None
    """Settings of the agent; None if it is not from `agents` of the settings."""
    described: AgentInfo | None = None
    """Description of the agent before its settings were applied."""
    detect: "Detect | None" = field(default=None, repr=False)
    """Function that repeats the detection of a broken agent behind a URL."""
    describe: "Describe | None" = field(default=None, repr=False)
    """Function that fetches the schemas of the agent from its server."""

    def refuse(self, run_id: str = "-") -> FaultError:
        """Return the fault for a call of a broken agent, and log the reason.

        The reason is for the operator alone: it names URLs, hosts and files.
        """
        log.warning("broken agent called agent=%s run=%s reason=%s", self.info.name, run_id, self.broken)
        why = "it could not be loaded" if self.detect is None else "its server cannot be used at the moment"
        words = f"Agent {self.info.name} is not available: {why}. The log of the gateway has the reason."
        return FaultError(FaultCode.AGENT_UNREACHABLE, words)


Describe = Callable[[], Awaitable[Mapping[str, JsonObject]]]
"""Function that returns the schemas of an agent. Raises the error that the server answers."""
Detect = Callable[[], Awaitable[Sequence[RegisteredAgent]]]
"""Function that returns the agents in exchange for a broken one. If it is still broken, it is returned with its current
reason."""
